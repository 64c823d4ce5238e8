"""One base of a reconciliation: its people as the source, the ledger and the service have them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from connector.ledger import Base, Entry, Ledger, list_confirmed
from connector.load import Planned
from connector.pages.id_set import contained
from connector.reconcile import ListedPeople
from connector.reconcile.matching import Integers, Matching
from connector.rows import write_cell
from connector.service import differing_fields
from connector.states import State
from connector.subscribers import IDENTITY_BYTES, Digests, SeenIdentities, join_digests, split_digests
from pipelines.loads.bases import describe_base
from pipelines.reconciles.difference_file import DifferenceFile
from pipelines.reconciles.differences import Differences
from pipelines.reconciles.entries import explain_missing, name_state

_AT_ONCE = 1024  # people taken out of their columns together: enough that it costs nothing, few enough to hold
_CONFIRMED_AT_ONCE = 10_000  # lines of the ledger


@dataclass(frozen=True, slots=True)
class Shared:
    """What the bases of one reconciliation share: `names` are the fields that are compared, `listed_ids` those of
    everybody on the list, ascending."""

    ledger: Ledger
    listed: ListedPeople
    listed_ids: Integers
    identity: str
    names: tuple[str, ...]
    found: Differences
    file: DifferenceFile


class BaseSide:
    """`meet` and `compare` what the source has of the base, then `finish`.

    `nameless` are the ids of those who are listed without an identity: nobody of the source can be one of them.
    Afterwards `known` is how many the ledger has confirmed in it, `there` how many of them are listed in it, and
    `vanished` and `vanished_ids` are the identities (S16) and ids of those whom the service no longer lists anywhere.
    """

    def __init__(self, base: Base, matching: Matching, nameless: Integers, shared: Shared) -> None:
        self.base, self.matching, self.nameless = base, matching, nameless
        self._shared, self._name = shared, describe_base(base)
        self._missing = SeenIdentities()  # a base that rows name in two ways may have somebody missing twice
        self._told: list[Digests] = []  # of the vanished, those that were told with their row
        self.known = self.there = 0
        self.vanished: Digests = join_digests((), IDENTITY_BYTES)
        self.vanished_ids: Integers = np.empty(0, dtype=np.int64)

    @property
    def renamed(self) -> int:
        """How many whom the ledger has confirmed are listed under another identity or in another base."""
        return self.known - self.there - len(self.vanished)

    def meet(self, identities: Digests) -> None:
        """The source has these, and there is nothing to be compared: invalid rows, and suppressed ones."""
        self.matching.meet(identities)

    def compare(self, part: Planned) -> None:
        """These rows of the source are to be in the base. Raises LedgerError and RunAborted."""
        numbers, is_new = self.matching.compare(part.identities)
        for places in _split(np.flatnonzero(is_new)):
            self._compare_values(part, places, numbers[places])
        if self._shared.found.is_certain:
            places = np.flatnonzero(numbers < 0)
            repeats = self._missing.add(part.identities[places], part.fingerprints[places])
            for some in _split(places[~repeats.is_duplicate]):
                self._tell_missing(part, some)

    def finish(self) -> None:
        """Tell of those whom the source does not have, once all of it was read. Raises LedgerError and RunAborted."""
        for numbers in _split(self.matching.find_duplicated()):
            self._tell_listed("duplicated", numbers)
        if self._shared.found.is_certain:
            for numbers in _split(self.matching.find_extra()):
                self._tell_listed("extra", numbers)
            self._tell_nameless()
            self._find_vanished()

    # Who is on both sides

    def _compare_values(self, part: Planned, places: Integers, numbers: Integers) -> None:
        ids, at, is_duplicated = self.matching.find_first(numbers)
        chosen = dict(zip(places.tolist(), zip(ids.tolist(), at.tolist(), strict=True), strict=True))
        doubled = [
            each for each, is_one in zip(zip(places, numbers, strict=True), is_duplicated, strict=True) if is_one
        ]
        chosen |= self._choose_known(part, doubled)
        rows = part.subscribers.iloc[places]
        names = rows[self._shared.identity].tolist()
        for name, told, (subscriber_id, place) in zip(
            names, _take_values(part, rows, self._shared.names), chosen.values(), strict=True
        ):
            _, listed = self._shared.listed.read(place)
            if differing := differing_fields(self._shared.names, told, listed):
                self._tell_drifted(str(name), subscriber_id, differing, told, listed)

    def _choose_known(self, part: Planned, doubled: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Of people who are listed several times the one whom the ledger knows: by place in `part`, id and place in the
        listing. The others are told as duplicates, and compared with nothing."""
        digests = {int(place): split_digests(part.identities[[place]])[0] for place, _ in doubled}
        entries = self._find_entries(list(digests.values()))
        chosen = {}
        for place, number in doubled:
            person, entry = self.matching.read(int(number)), entries.get(digests[int(place)])
            at = person.ids.index(entry.subscriber_id) if entry and entry.subscriber_id in person.ids else 0
            chosen[int(place)] = (person.ids[at], person.places[at])
        return chosen

    def _tell_drifted(
        self, name: str, subscriber_id: int, differing: Sequence[int], told: Sequence[object], listed: Sequence[object]
    ) -> None:
        shared = self._shared
        shared.found.count("drifted", subscriber_id)
        for at in differing:
            field = shared.names[at]
            shared.found.fields[field] += 1
            source, service = write_cell(told[at]) or "", write_cell(listed[at]) or ""
            shared.file.write("drifted", self._name, name, [subscriber_id], field=field, source=source, service=service)

    # Who is on one side

    def _tell_missing(self, part: Planned, places: Integers) -> None:
        shared, identities = self._shared, split_digests(part.identities[places])
        rows, entries, vanished = part.subscribers.iloc[places], self._find_entries(identities), list[bytes]()
        numbers = part.chunk.numbers[rows.index.to_numpy()].tolist()
        for digest, name, number in zip(identities, rows[shared.identity].tolist(), numbers, strict=True):
            entry = entries.get(digest)
            known_id = entry.subscriber_id if entry is not None else None
            is_id_listed = known_id is not None and self._is_listed(known_id)
            state, message = name_state(entry), explain_missing(entry, is_id_listed=is_id_listed)
            shared.found.count("missing", number)
            shared.found.missing_by_ledger[state] += 1
            shared.file.write("missing", self._name, str(name), [], ledger=state, message=message)
            if known_id is not None and not is_id_listed:
                vanished.append(digest)
                self._tell_vanished(str(name), known_id)
        self._told.append(join_digests(vanished, IDENTITY_BYTES))

    def _tell_listed(self, kind: str, numbers: Integers) -> None:
        """People of the service, with all their ids."""
        identities = split_digests(self.matching.take_identities(numbers))
        entries = self._find_entries(identities)
        for number, digest in zip(numbers.tolist(), identities, strict=True):
            person, entry = self.matching.read(number), entries.get(digest)
            name, _ = self._shared.listed.read(person.places[0])
            known_id = entry.subscriber_id if entry is not None else None
            message = f"the ledger knows the id {known_id}" if known_id is not None else ""
            self._shared.found.count(kind, person.ids[0])
            self._shared.file.write(kind, self._name, name, person.ids, ledger=name_state(entry), message=message)

    def _tell_nameless(self) -> None:
        shared = self._shared
        for subscriber_id in self.nameless.tolist():
            shared.found.count("extra", subscriber_id)
            message = f"is listed without the identity ({shared.identity})"
            shared.file.write("extra", self._name, "", [subscriber_id], message=message)

    def _find_vanished(self) -> None:
        told, vanished, vanished_ids = (
            np.concatenate([self.vanished, *self._told]),
            [self.vanished],
            [self.vanished_ids],
        )
        for digests, ids in self._walk_confirmed():
            is_there = self.matching.find(digests) >= 0
            is_gone = ~is_there & ~contained(self._shared.listed_ids, ids)
            self.known += len(digests)
            self.there += int(np.count_nonzero(is_there))
            vanished.append(digests[is_gone])
            vanished_ids.append(ids[is_gone])
            for subscriber_id in ids[is_gone & ~np.isin(digests, told)].tolist():
                self._tell_vanished("", subscriber_id)
        self.vanished, self.vanished_ids = np.concatenate(vanished), np.concatenate(vanished_ids)

    def _tell_vanished(self, name: str, subscriber_id: int) -> None:
        self._shared.found.count("vanished", subscriber_id)
        message = "was there when the ledger recorded it, and is not listed any more"
        self._shared.file.write(
            "vanished", self._name, name, [subscriber_id], ledger=State.CONFIRMED.name.lower(), message=message
        )

    # The ledger

    def _walk_confirmed(self) -> Iterator[tuple[Digests, Integers]]:
        ledger, after = self._shared.ledger, b""
        while True:
            with ledger.transaction() as connection:
                rows = list_confirmed(connection, self.base, self._shared.identity, after, _CONFIRMED_AT_ONCE)
            if not rows:
                return
            ids = np.array([subscriber_id for _, subscriber_id in rows], dtype=np.int64)
            yield join_digests((identity for identity, _ in rows), IDENTITY_BYTES), ids
            after = rows[-1][0]

    def _find_entries(self, identities: Sequence[bytes]) -> Mapping[bytes, Entry]:
        if not identities:
            return {}
        with self._shared.ledger.transaction():
            return self._shared.ledger.find_entries(self.base, identities)

    def _is_listed(self, subscriber_id: int) -> bool:
        return bool(contained(self._shared.listed_ids, np.array([subscriber_id], dtype=np.int64))[0])


def _split(numbers: Integers) -> Iterator[Integers]:
    for begin in range(0, len(numbers), _AT_ONCE):
        yield numbers[begin : begin + _AT_ONCE]


def _take_values(part: Planned, rows: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[object, ...]]:
    """What these rows of `part` say of the fields, row by row; a zip that cannot be sent as its text."""
    nothing = [None] * len(rows)
    columns = [pa.array(rows[name], from_pandas=True).to_pylist() if name in rows else nothing for name in names]
    if part.omitted_zips is not None and "address_zip" in names:
        place = names.index("address_zip")
        texts = pa.array(part.omitted_zips.reindex(rows.index), pa.string(), from_pandas=True).to_pylist()
        columns[place] = [text if value is None else value for value, text in zip(columns[place], texts, strict=True)]
    return zip(*columns, strict=True) if columns else iter([()] * len(rows))
