"""The source of a reconciliation, chunk by chunk, each row laid beside its base: what a sync --full would read."""

from collections.abc import Iterator
from datetime import date

import numpy as np

from connector.fields import BaseRef
from connector.ledger import Ledger
from connector.reconcile import ListedPeople
from connector.reconcile.matching import Integers
from connector.subscribers import (
    BaseColumn,
    FieldMapping,
    PreparedChunk,
    RowBases,
    Suppression,
    ValidationRules,
    apply_mapping,
    compute_identities,
    find_suppressed,
    read_bases,
    validate_rows,
)
from pipelines.loads.bases import refuse_too_many
from pipelines.loads.loading import LoadPlan
from pipelines.reconciles.base_side import BaseSide, Shared
from pipelines.reconciles.bases import find_base, list_asked
from pipelines.rows.remarks import Remarks
from pipelines.words import agree, count

ROWS = ("read", "valid", "invalid", "duplicate", "suppressed")
"""What a row of the source is; the last four sum up to the first."""


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
        """What a person should know of the rows."""
        yield from self._remarks.told
        yield from self._remarks.describe_cells(self._plan.mapping)
        if self._plan.unmapped_columns:
            yield f"columns not used: {', '.join(self._plan.unmapped_columns)}"
        if self.rows["invalid"]:
            invalid = self.rows["invalid"]
            rows = f"{count(invalid, 'row')} {agree(invalid, 'is', 'are')}"
            yield f"{rows} invalid and {agree(invalid, 'was', 'were')} not compared: connector validate says why"
        if self._unnamed:
            yield (
                f"{self._unnamed:,} of them have no identity, or no base, that can be read: whom they mean may be "
                "among the extra"
            )

    def _count(self, prepared: PreparedChunk, suppressed: int) -> None:
        invalid = len({fault.position for fault in prepared.faults}) + len(prepared.chunk.malformed)
        self.rows["read"] += prepared.read
        self.rows["valid"] += len(prepared.planned.identities) - suppressed
        self.rows["invalid"] += invalid
        self.rows["duplicate"] += len(prepared.repeats)
        self.rows["suppressed"] += suppressed

    def _meet_invalid(self, prepared: PreparedChunk) -> None:
        """Whoever has an invalid row is in the source all the same, if it can be told who that is."""
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


def match_again(side: BaseSide, listed: ListedPeople, ledger: Ledger, identity: str) -> Integers:
    """The places in `side.vanished` of those whom another listing does not show either."""
    asked = BaseRef(side.base.service_id, side.base.name if side.base.service_id is None else None)
    _, mine = find_base(ledger, side.base.account, asked, identity, listed.bases)
    is_absent = listed.match(mine).find(side.vanished) < 0
    return np.flatnonzero(is_absent & ~np.isin(side.vanished_ids, listed.collect_ids()))
