"""Which identities a run has met already, in 16 bytes each: a set of Python objects would take ten times that.

Of a digest of an identity 12 bytes are kept, which two of ten million people share once in 10^15 runs; of a fingerprint
4, by which one repeat in four thousand million that says something else is taken to say the same.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from connector.plan.digests import Digests

_IDENTITY, _FINGERPRINT = np.dtype("S12"), np.dtype("S4")
_RECORD = np.dtype([("identity", _IDENTITY), ("fingerprint", _FINGERPRINT)])
_PARTS = 16  # by the first bits of a digest; what is merged at one time is a part's, so that the copies stay small
_BOUNDS = np.array([bytes([256 // _PARTS * part]) for part in range(1, _PARTS)], dtype=_IDENTITY)
_GROWTH = 4  # a run of records is merged with the next while it is less than four times as long: few runs, few copies

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Repeats:
    """Two masks over a chunk's rows: the row's identity was met before; it was, and the row says something else."""

    is_duplicate: Mask
    is_different: Mask


class SeenIdentities:
    """The identities met so far, with the fingerprint each was first met with, as a few sorted arrays."""

    def __init__(self) -> None:
        self._parts = [_Part() for _ in range(_PARTS)]

    def add(self, identities: Digests, fingerprints: Digests) -> Repeats:
        """Take in one chunk, in its order (S16 and S8, of one length), and tell its repeats."""
        records = np.empty(len(identities), dtype=_RECORD)
        records["identity"], records["fingerprint"] = identities.astype(_IDENTITY), fingerprints.astype(_FINGERPRINT)
        order = np.argsort(records["identity"], kind="stable")
        ordered = records[order]
        is_first = np.ones(len(records), dtype=bool)
        is_first[1:] = ordered["identity"][1:] != ordered["identity"][:-1]
        group = np.cumsum(is_first) - 1
        is_known, known_as = self._add_sorted(ordered[is_first])
        is_duplicate, is_different = np.empty(len(records), dtype=bool), np.empty(len(records), dtype=bool)
        is_duplicate[order] = ~is_first | is_known[group]
        is_different[order] = ordered["fingerprint"] != known_as[group]
        return Repeats(is_duplicate, is_duplicate & is_different)

    def _add_sorted(self, firsts: np.ndarray) -> tuple[Mask, np.ndarray]:
        """Which of these are known, and the fingerprint that each was first met with (its own, if now)."""
        is_known, known_as = np.zeros(len(firsts), dtype=bool), firsts["fingerprint"].copy()
        ends = [0, *np.searchsorted(firsts["identity"], _BOUNDS).tolist(), len(firsts)]
        for part, (begin, end) in zip(self._parts, pairwise(ends), strict=True):
            part.find(firsts[begin:end], is_known[begin:end], known_as[begin:end])
            part.keep(firsts[begin:end][~is_known[begin:end]])
        return is_known, known_as


class _Part:
    """Some of them, in sorted runs."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def find(self, records: np.ndarray, is_known: Mask, known_as: np.ndarray) -> None:
        """Mark which of these are known, and by which fingerprint."""
        for run in self._runs:
            place = np.searchsorted(run["identity"], records["identity"])
            inside = place < len(run)
            hit = np.zeros(len(records), dtype=bool)
            hit[inside] = run["identity"][place[inside]] == records["identity"][inside]
            is_known |= hit
            known_as[hit] = run["fingerprint"][place[hit]]

    def keep(self, records: np.ndarray) -> None:
        """Add sorted new records, merging runs so that their number grows only with the logarithm of all."""
        while self._runs and len(self._runs[-1]) < _GROWTH * len(records):
            records = np.concatenate([self._runs.pop(), records])
            records = records[np.argsort(records["identity"], kind="stable")]
        if len(records):
            self._runs.append(records)
