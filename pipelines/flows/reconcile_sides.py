"""The sides of a reconciliation: the bases of its rows, each as the source, the ledger and the service have it,
and the source chunk by chunk, each row laid beside its base.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa

from connector.fields import BaseRef
from connector.imports.base_loads import describe_base, refuse_too_many
from connector.imports.flow import LoadPlan
from connector.imports.remarks import Remarks
from connector.ledger.entries import Entry, Ledger, list_confirmed
from connector.ledger.records import find_or_add_base, learn_base, list_bases
from connector.ledger.store import Base
from connector.listing.base_reader import BaseReader
from connector.paging.overlap import contained
from connector.plurals import agree, count
from connector.reconcile import BaseOf, Integers, ListedRows, Matching
from connector.rows import Planned, write_cell
from connector.service.wire import differing_fields
from connector.states import State
from connector.subscribers.identity import (
    IDENTITY_BYTES,
    Digests,
    SeenIdentities,
    compute_identities,
    join_digests,
    split_digests,
)
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.preparation import PreparedChunk, find_suppressed
from connector.subscribers.row_bases import BaseColumn, RowBases, read_bases
from connector.subscribers.rules import FieldMapping, ValidationRules
from connector.subscribers.suppression import Suppression
from connector.subscribers.validation import validate_rows
from pipelines.report.differences import DifferenceFile, Differences, explain_missing, name_state

_AT_ONCE = 1024  # rows taken out of their columns together: enough that it costs nothing, few enough to hold
_CONFIRMED_AT_ONCE = 10_000  # lines of the ledger

ROWS = ("read", "valid", "invalid", "duplicate", "suppressed")
"""What a row of the source is; the last four sum up to the first."""


def list_asked(base: BaseRef | BaseColumn) -> list[BaseRef] | None:
    """Return the bases that the job itself names; None: the cells of a column name them."""
    if isinstance(base, BaseRef):
        return [base]
    return None if base.values is None else list(dict.fromkeys(base.values.values()))


def build_wanted(asked: Iterable[BaseRef] | None, ledger: Ledger, account: str) -> Callable[[BaseOf], bool]:
    """Return a test whether a listed base may be one of those that are asked for; all pass if `asked` is None.

    One that the ledger knows by a name that is asked for is wanted by its id, too: it may be called otherwise by now.
    """
    if asked is None:
        return lambda _base: True
    asked = list(asked)
    names = {each.name for each in asked if each.service_id is None}
    with ledger.transaction() as connection:
        known = {base.service_id for base in list_bases(connection, account) if base.name in names}
    ids = ({each.service_id for each in asked} | known) - {None}
    return lambda base: base[0] in ids or base[1] in names


def find_base(
    ledger: Ledger, account: str, asked: BaseRef, identity: str, listed: Sequence[BaseOf]
) -> tuple[Base, list[BaseOf]]:
    """Return the ledger's base, with all that the list tells of it, and those of `listed` that are it.

    Raises RunAborted when a name is borne by several bases or by another than it was, ConfigurationError when the
    ledger knows several of that name.
    """
    with ledger.transaction() as connection:
        base = find_or_add_base(connection, account, asked.service_id, asked.name)
        reader = BaseReader(base, asked.name if asked.service_id is None else None, [identity])
        mine = [each for each in listed if reader.is_of_base({"Id": each[0], "Name": each[1]})]
        name = asked.name if asked.service_id is None else _find_name(mine, listed)
        if (
            reader.service_id is not None
            and name is not None
            and (base.service_id, base.name) != (reader.service_id, name)
        ):
            base = learn_base(connection, base, reader.service_id, name)
    return base, mine


def _find_name(mine: Sequence[BaseOf], listed: Sequence[BaseOf]) -> str | None:
    """The name of a base that was asked for by its id, if no other bears it."""
    names = {name for _, name in mine if isinstance(name, str)}
    others = {name for each in listed if each not in mine for name in each[1:]}
    return next(iter(names)) if len(names) == 1 and not names & others else None


@dataclass(frozen=True, slots=True)
class Shared:
    """What the bases of one reconciliation share: `names` are the fields that are compared, `listed_ids` the ids of the
    whole list, ascending."""

    ledger: Ledger
    listed: ListedRows
    listed_ids: Integers
    identity: str
    names: tuple[str, ...]
    found: Differences
    file: DifferenceFile


class BaseSide:
    """`meet` and `compare` what the source has of the base, then `finish`.

    `nameless` are the ids of subscribers that are listed without an identity: no row of the source can be one of them.
    Afterwards `known` is how many the ledger has confirmed in it, `there` how many of them are listed in it, and
    `vanished` and `vanished_ids` are the identities (S16) and ids of those that the service no longer lists anywhere.
    """

    def __init__(self, base: Base, matching: Matching, nameless: Integers, shared: Shared) -> None:
        self.base, self.matching, self.nameless = base, matching, nameless
        self._shared, self._name = shared, describe_base(base)
        self._missing = SeenIdentities()  # in a base that rows name in two ways, a row may be missing twice
        self._reported: list[Digests] = []  # of the vanished, those that were reported with their row
        self.known = self.there = 0
        self.vanished: Digests = join_digests((), IDENTITY_BYTES)
        self.vanished_ids: Integers = np.empty(0, dtype=np.int64)

    @property
    def renamed(self) -> int:
        """How many confirmed subscribers are listed under another identity or in another base."""
        return self.known - self.there - len(self.vanished)

    def meet(self, identities: Digests) -> None:
        """Note rows of the source that are not compared: invalid and suppressed ones."""
        self.matching.meet(identities)

    def compare(self, part: Planned) -> None:
        """Compare these rows of the source with the base. Raises LedgerError and RunAborted."""
        numbers, is_new = self.matching.compare(part.identities)
        for indices in _split(np.flatnonzero(is_new)):
            self._compare_values(part, indices, numbers[indices])
        if self._shared.found.is_certain:
            missing = np.flatnonzero(numbers < 0)
            repeats = self._missing.add(part.identities[missing], part.fingerprints[missing])
            for indices in _split(missing[~repeats.is_duplicate]):
                self._report_missing(part, indices)

    def finish(self) -> None:
        """Report subscribers that the source lacks, once all of it was read. Raises LedgerError and RunAborted."""
        for numbers in _split(self.matching.find_duplicated()):
            self._report_listed("duplicated", numbers)
        if self._shared.found.is_certain:
            for numbers in _split(self.matching.find_extra()):
                self._report_listed("extra", numbers)
            self._report_nameless()
            self._find_vanished()

    # Who is on both sides

    def _compare_values(self, part: Planned, indices: Integers, numbers: Integers) -> None:
        ids, listed_indices, is_duplicated = self.matching.find_first(numbers)
        chosen = dict(zip(indices.tolist(), zip(ids.tolist(), listed_indices.tolist(), strict=True), strict=True))
        doubled = [
            pair for pair, is_one in zip(zip(indices, numbers, strict=True), is_duplicated, strict=True) if is_one
        ]
        chosen |= self._choose_known(part, doubled)
        rows = part.subscribers.iloc[indices]
        names = rows[self._shared.identity].tolist()
        for name, values, (subscriber_id, listed_index) in zip(
            names, _take_values(part, rows, self._shared.names), chosen.values(), strict=True
        ):
            _, listed = self._shared.listed.read(listed_index)
            if differing := differing_fields(self._shared.names, values, listed):
                self._report_drifted(str(name), subscriber_id, differing, values, listed)

    def _choose_known(self, part: Planned, doubled: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Return, for subscribers that are listed several times, the one that the ledger knows: by index in `part`,
        its id and index in the listing. The others are reported as duplicates, and not compared."""
        digests = {int(index): split_digests(part.identities[[index]])[0] for index, _ in doubled}
        entries = self._find_entries(list(digests.values()))
        chosen = {}
        for index, number in doubled:
            person, entry = self.matching.read(int(number)), entries.get(digests[int(index)])
            of_id = person.ids.index(entry.subscriber_id) if entry and entry.subscriber_id in person.ids else 0
            chosen[int(index)] = (person.ids[of_id], person.indices[of_id])
        return chosen

    def _report_drifted(
        self,
        name: str,
        subscriber_id: int,
        differing: Sequence[int],
        values: Sequence[object],
        listed: Sequence[object],
    ) -> None:
        shared = self._shared
        shared.found.count("drifted", subscriber_id)
        for index in differing:
            field = shared.names[index]
            shared.found.fields[field] += 1
            source, service = write_cell(values[index]) or "", write_cell(listed[index]) or ""
            shared.file.write("drifted", self._name, name, [subscriber_id], field=field, source=source, service=service)

    # Who is on one side

    def _report_missing(self, part: Planned, indices: Integers) -> None:
        shared, identities = self._shared, split_digests(part.identities[indices])
        rows, entries, vanished = part.subscribers.iloc[indices], self._find_entries(identities), list[bytes]()
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
                self._report_vanished(str(name), known_id)
        self._reported.append(join_digests(vanished, IDENTITY_BYTES))

    def _report_listed(self, kind: str, numbers: Integers) -> None:
        """Report subscribers of the service, with all their ids."""
        identities = split_digests(self.matching.take_identities(numbers))
        entries = self._find_entries(identities)
        for number, digest in zip(numbers.tolist(), identities, strict=True):
            person, entry = self.matching.read(number), entries.get(digest)
            name, _ = self._shared.listed.read(person.indices[0])
            known_id = entry.subscriber_id if entry is not None else None
            message = f"the ledger knows the id {known_id}" if known_id is not None else ""
            self._shared.found.count(kind, person.ids[0])
            self._shared.file.write(kind, self._name, name, person.ids, ledger=name_state(entry), message=message)

    def _report_nameless(self) -> None:
        shared = self._shared
        for subscriber_id in self.nameless.tolist():
            shared.found.count("extra", subscriber_id)
            message = f"is listed without the identity ({shared.identity})"
            shared.file.write("extra", self._name, "", [subscriber_id], message=message)

    def _find_vanished(self) -> None:
        reported, vanished, vanished_ids = (
            np.concatenate([self.vanished, *self._reported]),
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
            for subscriber_id in ids[is_gone & ~np.isin(digests, reported)].tolist():
                self._report_vanished("", subscriber_id)
        self.vanished, self.vanished_ids = np.concatenate(vanished), np.concatenate(vanished_ids)

    def _report_vanished(self, name: str, subscriber_id: int) -> None:
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


class SourceSide:
    """`take` each chunk, prepared without the suppression list, then `finish`. Both raise LedgerError, RunAborted, and
    ConfigurationError where the ledger knows several bases of a name."""

    def __init__(self, plan: LoadPlan, suppression: Suppression | None, shared: Shared) -> None:
        self._plan, self._suppression, self._shared = plan, suppression, shared
        self._sides: dict[BaseRef, BaseSide] = {}  # one that is asked for in two ways is here twice
        self._remarks = Remarks()
        self.rows = dict.fromkeys(ROWS, 0)
        self._unnamed = 0
        for asked in list_asked(plan.base) or ():
            self._open(asked)

    @property
    def sides(self) -> list[BaseSide]:
        """Each base once."""
        return list({side.base.key: side for side in self._sides.values()}.values())

    def take(self, prepared: PreparedChunk) -> None:
        """Lay the rows of a chunk beside their bases."""
        planned, bases, identity = prepared.planned, prepared.bases, self._plan.rules.identity
        is_suppressed = find_suppressed(self._suppression, planned.subscribers, planned.identities, identity)
        self._remarks.take(prepared)
        self._count(prepared, int(np.count_nonzero(is_suppressed)))
        self._meet_invalid(prepared)
        for asked, places in self._split(len(planned.identities), bases):
            side, mask = self._open(asked), is_suppressed[places]
            side.meet(planned.identities[places[mask]])
            side.compare(planned.select(places[~mask]))

    def finish(self) -> None:
        """All of the source was read."""
        for side in self.sides:
            side.finish()

    def remark(self) -> Iterator[str]:
        """Yield what a person should know of the rows."""
        yield from self._remarks.messages
        yield from self._remarks.describe_cells(self._plan.mapping)
        if self._plan.unmapped_columns:
            yield f"columns not used: {', '.join(self._plan.unmapped_columns)}"
        if self.rows["invalid"]:
            invalid = self.rows["invalid"]
            rows = f"{count(invalid, 'row')} {agree(invalid, 'is', 'are')}"
            yield f"{rows} invalid and {agree(invalid, 'was', 'were')} not compared: connector validate says why"
        if self._unnamed:
            yield (
                f"{self._unnamed:,} of them have no identity, or no base, that can be read: their "
                "subscribers may be counted as extra"
            )

    def _count(self, prepared: PreparedChunk, suppressed: int) -> None:
        self.rows["read"] += prepared.read
        self.rows["valid"] += len(prepared.planned.identities) - suppressed
        self.rows["invalid"] += prepared.invalid
        self.rows["duplicate"] += len(prepared.repeats)
        self.rows["suppressed"] += suppressed

    def _meet_invalid(self, prepared: PreparedChunk) -> None:
        """Count subscribers with an invalid row as in the source, if the row has a usable identity."""
        positions = sorted({fault.position for fault in prepared.faults})
        self._unnamed += len(prepared.chunk.malformed)
        if not positions:
            return
        identity, column = self._plan.rules.identity, self._plan.base_column
        frame = prepared.chunk.frame.iloc[positions].reset_index(drop=True)
        mapped = apply_mapping(frame, FieldMapping({identity: self._plan.mapping.rules[identity]}))
        validated = validate_rows(mapped.frame, ValidationRules(identity=identity), today=date.max, known=mapped.faults)
        named = validated.subscribers
        bases = None if column is None else read_bases(frame, column)[0].select(named.index.to_numpy())
        identities = compute_identities(named[identity], identity)
        met = 0
        for asked, places in self._split(len(identities), bases):
            self._open(asked).meet(identities[places])
            met += len(places)
        self._unnamed += len(positions) - met

    def _split(self, rows: int, bases: RowBases | None) -> Iterator[tuple[BaseRef, Integers]]:
        """Each base that rows are for, with the places of its rows."""
        if isinstance(self._plan.base, BaseRef):
            yield self._plan.base, np.arange(rows)
        elif bases is not None:
            yield from bases.split()

    def _open(self, asked: BaseRef) -> BaseSide:
        if asked in self._sides:
            return self._sides[asked]
        if isinstance(self._plan.base, BaseColumn):
            refuse_too_many(self._plan.base, len(self._sides) + 1)
        shared, account = self._shared, self._plan.settings.account
        base, listed = find_base(shared.ledger, account, asked, shared.identity, shared.listed.bases)
        side = next((each for each in self._sides.values() if each.base.key == base.key), None)
        nameless = shared.listed.collect_nameless(listed)
        self._sides[asked] = side or BaseSide(base, shared.listed.match(listed), nameless, shared)
        return self._sides[asked]


def match_again(side: BaseSide, listed: ListedRows, ledger: Ledger, identity: str) -> Integers:
    """Return the places in `side.vanished` of subscribers that another listing does not show either."""
    asked = BaseRef(side.base.service_id, side.base.name if side.base.service_id is None else None)
    _, mine = find_base(ledger, side.base.account, asked, identity, listed.bases)
    is_absent = listed.match(mine).find(side.vanished) < 0
    return np.flatnonzero(is_absent & ~np.isin(side.vanished_ids, listed.collect_ids()))
