"""Evidence from outside a sweep that the list is not cut off by a result window (architecture 7, rule 7).

A window caps TotalCount and pages alike, for each question by itself. So it shows where the list is asked otherwise:
by counts of its parts, by the Ids of subscribers that the ledger knows and the sweep lacks, and by the Ids beyond the
last. No filter is believed without its controls. What the findings mean is decided in connector.paging.certificate.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from connector.listing.controls import Ask, Draw, are_as_asked, make_up_value
from connector.paging.certificate import (
    Certificate,
    Counts,
    Finding,
    Order,
    Says,
    TotalCount,
    decide_counts,
    decide_totals,
)
from connector.paging.overlap import IdArray
from connector.service.wire import ListPage, ListQuery, read_field

FindLacking = Callable[[IdArray], Awaitable[Sequence[int]]]
"""Ids of confirmed entries of the ledger that are not among these ids (ascending); a few do."""

_SAMPLE = 50  # rows of a part that are compared with what was asked
_LACKING = 20  # entries of the ledger that are looked up, at most
_BEYOND = 20  # ids beyond the last that are looked up
_TAIL = 1000  # ids at the list's end that say how dense ids are
_DENSE = 0.5  # of ids that exist at the end: twenty in a row are missing by chance once in a million
_OVERLAP = 500  # rows before the end at which it is read again
_AGAIN = 3  # readings of the end, and rounds of counts of the bases: replicas may lag
_TRIES = 2  # ids, of those found beyond the end and of the next to it, that are looked up after each reading
_MOST_BASES = 20

_PARTITIONS: dict[str, Sequence[object]] = {"is_active": (True, False), "gender": ("male", "female", "")}
"""Filters whose values are all known (service-api.md 4.3): their parts come to the whole."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A complete reading of a long list: its certificate, the query that it was read by, and the ids it showed
    (ascending)."""

    certificate: Certificate
    query: ListQuery
    ids: IdArray


async def gather_evidence(
    ask: Ask, suspect: Suspect, filters: Collection[str], draw: Draw, find_lacking: FindLacking | None = None
) -> list[Finding]:
    """Ask for evidence, what costs least first, until one piece agrees or contradicts; `filters` are the names of those
    that `suspect.query` asks by. Of a list that does not change at most 60 requests (service-api.md 4.3), else 100.
    """
    gathering = _Gathering(ask, suspect, frozenset(filters), draw)
    if find_lacking is not None:
        await gathering.look_up_lacking(find_lacking)
    for name, values in _PARTITIONS.items():
        await gathering.count_parts(name, values)
    await gathering.count_bases()
    await gathering.look_beyond()
    return gathering.findings


class _Gathering:
    """The findings so far; each step does nothing once there is one that agrees or contradicts."""

    def __init__(self, ask: Ask, suspect: Suspect, filters: frozenset[str], draw: Draw) -> None:
        self._ask, self._suspect, self._draw = ask, suspect, draw
        self._certificate, self._ids = suspect.certificate, suspect.ids
        self._filters = filters
        self._totals: list[int] = []  # TotalCounts of the whole, later than the sweep's
        self._bases = set[int]()
        self._finds_by_id: bool | None = None
        self.findings: list[Finding] = []

    @property
    def _is_decided(self) -> bool:
        return any(each.says is not Says.NOTHING for each in self.findings)

    @property
    def _is_counted(self) -> bool:
        """Whether the service's counts mean anything; else no part is counted, and no base met."""
        return self._certificate.total_count is TotalCount.CHECKED

    def _note(self, kind: str, says: Says, words: str) -> None:
        self.findings.append(Finding(kind, says, words))

    # Counts of parts

    async def count_parts(self, name: str, values: Sequence[object]) -> None:
        """Compare the counts of a partition with TotalCount before and after, up to three times."""
        if self._is_decided or not self._is_counted or name in self._filters or not await self._is_pair_working(name):
            return
        rounds = list[Counts]()
        says: Says | None = None
        while says is None:
            # In turns: a subscriber that changes sides meanwhile is counted twice one way, and not at all the other.
            counts = await self._count_round(name, values if len(rounds) % 2 == 0 else values[::-1])
            if counts is None:
                return
            rounds.append(counts)
            says = self._decide_counts(rounds)
        if self._note_totals():
            return
        if says is Says.AGREES and await self._has_moved_up():
            self._note(name, Says.NOTHING, "others stand at the end of the list meanwhile, and TotalCount is as it was")
        else:
            last = rounds[-1]
            self._note(name, says, f"{' + '.join(f'{each:,}' for each in last.parts)} of {last.after:,}")

    def _decide_counts(self, rounds: Sequence[Counts]) -> Says | None:
        certificate = self._certificate
        known = {each for each in (certificate.total_first, certificate.total_last) if each is not None}
        is_quiet = len(known) == 1 and not (certificate.appeared or certificate.vanished)
        return decide_counts(rounds, is_quiet, known)

    async def _has_moved_up(self) -> bool:
        """Return whether the list's end shows what the sweep did not: it came in, or moved up from beyond a window."""
        ids = _read_ids(await self._read_end())
        return not bool(np.isin(np.array(ids, dtype=np.int64), self._ids).all())

    async def _read_end(self) -> ListPage | None:
        end = await self._ask(replace(self._suspect.query, offset=max(0, self._certificate.distinct - _OVERLAP)))
        if end is not None and end.total_count is not None:
            self._totals.append(end.total_count)
        return end

    async def count_bases(self) -> None:
        """More in the bases that were seen than in the whole contradict it; as many say nothing, since the rest may be
        of bases that no page showed."""
        if (
            self._is_decided
            or not self._is_counted
            or "base_id" in self._filters
            or not 2 <= len(self._bases) <= _MOST_BASES
        ):
            return
        rounds = [await self._count_round("base_id", sorted(self._bases)) for _ in range(_AGAIN)]
        known = [each for each in rounds if each is not None]
        if len(known) == len(rounds) and self._decide_counts(known) is Says.CONTRADICTS and not self._note_totals():
            last = known[-1]
            self._note("base_id", Says.CONTRADICTS, f"{sum(last.parts):,} in {len(last.parts)} bases of {last.after:,}")

    async def _count_round(self, name: str, values: Sequence[object]) -> Counts | None:
        """None where a part's rows are not as asked, or a count is missing."""
        before = await self._count_all()
        parts = [await self._count_part(name, value) for value in values]
        after = await self._count_all()
        if before is None or after is None or any(each is None for each in parts):
            return None
        return Counts(before, [each for each in parts if each is not None], after)

    async def _count_all(self) -> int | None:
        page = await self._ask(replace(self._suspect.query, offset=0, limit=_SAMPLE))
        if page is None or page.total_count is None:
            return None
        self._totals.append(page.total_count)
        self._bases.update(each for row in page.subscribers if type(each := read_field(row, "base_id")) is int)
        return page.total_count

    async def _count_part(self, name: str, value: object) -> int | None:
        page = await self._ask(_narrow(self._suspect.query, {name: value}, _SAMPLE))
        if page is None or page.total_count is None or bool(page.subscribers) != bool(page.total_count):
            return None
        return page.total_count if are_as_asked({**self._asked, name: value}, page.subscribers) else None

    async def _is_pair_working(self, name: str) -> bool:
        """Within a filter: whether the two together still ask by the first, shown by a value of it that is nowhere."""
        for other in self._filters:
            nowhere = make_up_value(other, self._draw)
            if nowhere is None:
                return False
            page = await self._ask(_narrow(self._suspect.query, {other: nowhere, name: _PARTITIONS[name][0]}, _SAMPLE))
            if page is None or page.subscribers or page.total_count:
                return False
        return True

    @property
    def _asked(self) -> dict[str, object]:
        return {name: getattr(self._suspect.query, name) for name in self._filters}

    def _note_totals(self) -> bool:
        """Return whether a TotalCount above the one at the sweep's end was met: no window shows more at another
        time."""
        if decide_totals(self._certificate, self._totals) is not Says.AGREES:
            return False
        highest = max([self._certificate.total_first or 0, *self._totals])
        self._note("total_count", Says.AGREES, f"{highest:,} at another time than {self._certificate.total_last:,}")
        return True

    # Look-ups by Id

    async def look_up_lacking(self, find_lacking: FindLacking) -> None:
        """Look up entries of the ledger that the sweep lacks: one that is there, and is as the query asks, contradicts
        it. By a filter two: one may have been altered meanwhile."""
        lacking = list(await find_lacking(self._ids))[:_LACKING]
        if not lacking or not await self._is_found_by_id():
            return
        found = [each for each in lacking if await self._is_there(each)]
        is_by_filter = bool(self._filters - {"base_id"})
        says = Says.CONTRADICTS if len(found) > is_by_filter else Says.NOTHING
        self._note("ledger", says, f"{len(found)} of {len(lacking)} that the list lacks are there")

    async def look_beyond(self) -> None:
        """Look up the ids beyond the last, in steps of those at the end: where ids are dense there, and none of twenty
        exists, the list ends where they do. Ids that exist contradict it, unless the list's end has them by now."""
        order = self._certificate.order
        if self._is_decided or self._filters or order not in (Order.ID, Order.ID_DESC) or len(self._ids) < 2:
            return
        if not await self._is_found_by_id():
            return
        tail = self._ids[-_TAIL:] if order is Order.ID else self._ids[:_TAIL]
        distance = int(np.gcd.reduce(np.diff(tail)))
        density = (len(tail) - 1) * distance / int(tail[-1] - tail[0])
        last, step = (int(tail[-1]), distance) if order is Order.ID else (int(tail[0]), -distance)
        asked = [each for each in range(last + step, last + (_BEYOND + 1) * step, step) if each > 0]
        if not asked:
            return
        found = {each for each in asked if await self._is_there(each)}
        words = f"{len(found) or 'none'} of {len(asked)} ids beyond the last exist" + "s" * (not found)
        if not found:
            self._note("ids_beyond", Says.AGREES if density >= _DENSE else Says.NOTHING, words)
            return
        is_left_out = await self._is_end_behind(found, step)
        if not (self._is_counted and self._note_totals()):
            self._note("ids_beyond", Says.CONTRADICTS if is_left_out else Says.NOTHING, words)

    async def _is_end_behind(self, found: Collection[int], step: int) -> bool:
        """Return whether the list's end, read again and again, lacks some that are there: of those found, or the next
        ones. Else they came while they were looked up, or came in from beyond a window as others went."""
        known = set(found)
        for _ in range(_AGAIN):
            end = await self._read_end()
            shown = set(_read_ids(end))
            if not shown:
                return False
            last = max(shown) if step > 0 else min(shown)
            asked = {*sorted(known - shown, key=abs)[:_TRIES], *(last + step * each for each in range(1, _TRIES + 1))}
            there = {each for each in asked - shown if each > 0 and await self._is_there(each)}
            if not there:
                return False
            known |= there
        return True

    async def _is_found_by_id(self) -> bool:
        """The control of the filter Id: it finds one that the list has just shown, and lists no other. One that has
        vanished meanwhile is no control."""
        if self._finds_by_id is None:
            self._finds_by_id = False
            for share in (2, 3, 4):
                known = int(self._ids[len(self._ids) // share])
                page = await self._ask(ListQuery(limit=_SAMPLE, id=known))
                if page is None or page.subscribers:
                    self._finds_by_id = page is not None and [row.get("Id") for row in page.subscribers] == [known]
                    break
        return self._finds_by_id

    async def _is_there(self, subscriber_id: int) -> bool:
        """Return whether the service shows it by its Id, and it is as the suspected query asks."""
        page = await self._ask(ListQuery(limit=_SAMPLE, id=subscriber_id))
        shown = [] if page is None else [row for row in page.subscribers if row.get("Id") == subscriber_id]
        return bool(shown) and are_as_asked(self._asked, shown)


def _read_ids(page: ListPage | None) -> list[int]:
    return [] if page is None else [each for row in page.subscribers if type(each := row.get("Id")) is int]


def _narrow(query: ListQuery, values: Mapping[str, Any], limit: int) -> ListQuery:
    return replace(query, offset=0, limit=limit, **values)
