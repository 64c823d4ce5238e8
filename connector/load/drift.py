"""Rows whose source differs from what was sent: which of their fields, by the digests that the ledger keeps. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from connector.fields import BY_NAME
from connector.ledger import KeptMapping, SentFields
from connector.load.candidates import Candidate, Omission, Planned, Row, digest_fields, find_omissions
from connector.plan.digests import split_digests
from connector.plan.field_digests import compare_fields, pick_field


@dataclass(frozen=True, slots=True)
class Told:
    """What a row says of somebody: digest and text of the identity, fingerprint, two bytes for each field of the run's
    mapping (empty: not known), values by field name, and the zip that would not be sent."""

    identity: bytes
    name: str = field(repr=False)
    fingerprint: bytes
    digests: bytes
    values: Mapping[str, object] = field(repr=False)
    omission: Omission | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Change:
    """A row of somebody who is there, and of whom something else was sent.

    `identity` is its text as the source has it, `digest` the one that the ledger knows it by. `drifted` are the fields
    that differ under the same rule (None: it is not known which differ), `by_mapping` those that differ by a change of
    the mapping; `now` are the source's values of the drifted ones, `sent` the two bytes of what was sent of them.
    """

    row: Row
    identity: str = field(repr=False)
    digest: bytes
    drifted: tuple[str, ...] | None
    by_mapping: tuple[str, ...] = ()
    now: Mapping[str, object] = field(default_factory=dict, repr=False)
    sent: Mapping[str, bytes] = field(default_factory=dict)
    base_key: int = 0

    @property
    def is_by_mapping_alone(self) -> bool:
        """Whether nothing has changed but the mapping."""
        return self.drifted == ()


def tell_rows(planned: Planned, places: Sequence[int], identity: str, mapping: KeptMapping | None) -> list[Told]:
    """What the rows at these places (0-based, in `planned.subscribers`) say; `identity` is the field that they are
    known by, `mapping` the one that they were read by."""
    chosen = list(places)
    part = planned.subscribers.iloc[chosen]
    names = [name for name in part.columns if name in BY_NAME]
    columns = [pa.array(part[name], from_pandas=True).to_pylist() for name in names]
    return [
        Told(digest, str(name), fingerprint, digests, dict(zip(names, cells, strict=True)), omission)
        for digest, name, fingerprint, digests, cells, omission in zip(
            split_digests(planned.identities[chosen]),
            part[identity].tolist(),
            split_digests(planned.fingerprints[chosen]),
            digest_fields(part, identity, mapping),
            zip(*columns, strict=True),
            find_omissions(planned, chosen, identity),
            strict=True,
        )
    ]


def tell_candidate(candidate: Candidate) -> Told:
    """What the row of a create says."""
    intent, sent = candidate.intent, candidate.sent
    name = str(sent[intent.field])
    return Told(intent.identity, name, intent.fingerprint, intent.digests, sent, candidate.omission)


def build_change(
    row: Row, told: Told, sent: SentFields | None, mapping: KeptMapping | None, base_key: int = 0
) -> Change:
    """In which fields this row differs from what was `sent` (None: the ledger does not know it field by field)."""
    unknown = Change(row, told.name, told.identity, None, base_key=base_key)
    if sent is None or sent.mapped is None or mapping is None:
        return unknown
    difference = compare_fields(sent.mapped, sent.digests, mapping.fields, told.digests)
    drifted, by_mapping = difference.drifted, difference.by_mapping
    if not drifted and not by_mapping:  # two values have the same two bytes by chance
        return unknown
    now = {name: told.values.get(name) for name in drifted}
    were = {name: pick_field(sent.mapped, sent.digests, name) for name in drifted}
    return Change(row, told.name, told.identity, drifted, by_mapping, now, were, base_key)
