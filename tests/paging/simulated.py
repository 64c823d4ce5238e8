"""A list that changes during a reading, in any order, of a service that may answer wrongly. The list is seeded and
has no clock.

It keeps the truth: who was on the list throughout the reading, and who ever was.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

import numpy as np

from connector.paging.certificate import Certificate
from connector.paging.overlap import PageRequest
from connector.paging.pager import Pager

STARTED = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
FINISHED = datetime(2026, 11, 21, 9, 0, 30, tzinfo=UTC)

ORDERS = (
    "id",
    "id_desc",
    "email",
    "touched",
    "touched_desc",
    "ties",
    "shuffled",
    "sometimes",
    "page_sorted",
    "replicas",
)
STABLE = ("id", "id_desc", "email")


Reply = tuple[list[int], int | None, int | None, int | None]
"""Ids, TotalCount, Offset and Limit."""

Filters = tuple[tuple[str, object], ...]
"""Field names and the values asked for."""


@dataclass(slots=True)
class SimulatedList:
    """`order` names how the list is sorted (see `_sorted`); `inserts`, `deletes` and `touches` are chances per request.
    `where` they happen: anywhere (inserts then at the end), or by id at the head, in the middle or at the end; `late`
    is the share of inserts whose id lies among the existing ones. `total` is honest, or a cap, a wrong number or none;
    `filters` work, are ignored, lose some of one value (lossy), or work in answers of less than a page (small); who is
    touched changes sides; `paging` is honest, aligned (offset cut to a multiple of limit), stuck (offset ignored),
    clamped (offset at most 3 limits) or silent (at most half the limit, and the echo does not say so). A `window` cuts
    off every result. `lags` are those of replicas, in requests, of which each answer comes from one. `id_steps` are the
    distances between one id and the next; where `is_homogeneous`, all are active, in one base and of no gender. `hides`
    are classes, each a filter's name and value, that are shown only to a request for the class. An answer lacks one of
    five shards with the probability `lost_shard`. `shared` is the share of subscribers who are listed twice with one
    id, as in two bases.
    """

    random: Random
    count: int
    order: str = "id"
    limit: int = 20
    inserts: float = 0.0
    deletes: float = 0.0
    touches: float = 0.0
    burst: int = 1
    late: float = 0.0
    where: str = "anywhere"
    total: str = "honest"
    paging: str = "honest"
    echoes: bool = True
    filters: str = "work"
    window: int = 0
    lags: tuple[int, ...] = ()
    id_steps: tuple[int, ...] = (10,)
    is_homogeneous: bool = False
    hides: Filters = ()
    lost_shard: float = 0.0
    shared: float = 0.0
    ids: list[int] = field(default_factory=list)
    email: dict[int, float] = field(default_factory=dict)
    people: dict[int, dict[str, object]] = field(default_factory=dict)
    touched: dict[int, int] = field(default_factory=dict)
    raised: set[int] = field(default_factory=set)
    requests: int = 0
    ever: set[int] = field(default_factory=set)
    throughout: set[int] = field(default_factory=set)
    born: dict[int, int] = field(default_factory=dict)
    died: dict[int, int] = field(default_factory=dict)
    _clock: int = 0

    def __post_init__(self) -> None:
        new = 1
        for _ in range(self.count):
            self._insert(new)
            new += self.random.choice(self.id_steps)
        self.throughout = set(self.ids)
        self.ever = set(self.ids)

    def answer(self, page: PageRequest, filters: Filters = ()) -> Reply:
        """The ids of a page and its three echoes; then the list changes."""
        offset, limit = page.offset, page.limit
        filters = () if self.filters == "small" and limit >= self.limit else filters
        if self.requests:
            self._change()
        self.requests += 1
        shown = min(limit, self.limit)
        place = self._place(offset, shown)
        ids = self._read_replica(self.random.choice(self.lags)) if self.lags else self.ids
        if self.hides:
            hidden = [hide for hide in self.hides if hide not in filters]
            ids = [known_id for known_id in ids if not any(self.is_as_asked(known_id, (one,)) for one in hidden)]
        if self.lost_shard and self.random.random() < self.lost_shard:
            shard = self.random.randrange(5)
            ids = [number for number in ids if number // 10 % 5 != shard]
        found = self._sorted(
            [subscriber_id for subscriber_id in ids if self._finds(subscriber_id, filters)] if filters else ids
        )
        if self.shared:
            found = sorted([*found, *(number for number in found if number % 1000 < 1000 * self.shared)])
        found = found[: self.window] if self.window else found
        rows = found[place : place + (shown // 2 or 1 if self.paging == "silent" else shown)]
        if self.order == "page_sorted":
            rows = sorted(rows)
        if not self.echoes:
            return rows, self._total(len(found)), None, None
        return rows, self._total(len(found)), place if self.paging == "clamped" else offset, shown

    def _read_replica(self, lag: int) -> list[int]:
        """The ids as they were so many requests ago."""
        at = self.requests - lag
        alive = [number for number in self.ids if self.born[number] <= at or not self.born[number]]
        return alive + [
            subscriber_id
            for subscriber_id, died_at in self.died.items()
            if died_at > at and self.born[subscriber_id] <= at
        ]

    def _place(self, offset: int, limit: int) -> int:
        if self.paging == "aligned":
            return offset - offset % limit
        if self.paging == "clamped":
            return min(offset, 3 * limit)
        return 0 if self.paging == "stuck" else offset

    def is_as_asked(self, number: int, filters: Filters) -> bool:
        """Whether somebody is what the filters ask for."""
        person = self.people[number]
        return all(person[name] == value for name, value in filters)

    def _finds(self, number: int, filters: Filters) -> bool:
        if self.filters == "ignored":
            return True
        if not self.is_as_asked(number, filters):
            return False
        if self.filters != "lossy" or number % 7:
            return True
        return all(value not in (False, "") for name, value in filters if name != "base_id")

    def _total(self, count: int) -> int | None:
        return {
            "honest": count,
            "cap": min(count, 2 * self.limit),
            "page_cap": min(count, self.limit),
            "wrong": count + 3,
            "apart": count + self.random.choice((-1, 0, 0, 1)),
            "none": None,
        }[self.total]

    def _sorted(self, ids: list[int]) -> list[int]:
        order = self.order
        if order == "sometimes":
            order = self.random.choice(("id", "id", "id", "shuffled"))
        if order == "replicas":
            order = self.random.choice(("id", "email"))
        match order:
            case "id":
                return sorted(ids)
            case "id_desc":
                return sorted(ids, reverse=True)
            case "email" | "page_sorted":
                return sorted(ids, key=self.email.__getitem__)
            case "grouped":  # as by activity: who is touched moves to the first group, wherever the walk may be
                return sorted(ids, key=lambda number: (number not in self.raised, number))
            case "touched":
                return sorted(ids, key=lambda number: (self.touched[number], number))
            case "touched_desc":
                return sorted(ids, key=lambda number: (-self.touched[number], -number))
            case "ties":  # by a coarse key, and within it as it pleases
                return sorted(ids, key=lambda number: (number // 70, self.random.random()))
            case _:
                return self.random.sample(ids, len(ids))

    def _change(self) -> None:
        for _ in range(self.burst):
            if self.random.random() < self.inserts:
                is_late = self.random.random() < self.late
                self._insert(self.random.randrange(10 * self.count + 10) if is_late else self._choose_new())
            if self.ids and self.random.random() < self.deletes:
                gone = self._choose_old()
                self.ids.remove(gone)
                self.died[gone] = self.requests
                self.throughout.discard(gone)
            if self.ids and self.random.random() < self.touches:
                self._clock += 1
                touched = self.random.choice(self.ids)
                self.touched[touched] = self._clock
                self.raised.add(touched)
                self.people[touched]["is_active"] = not self.people[touched]["is_active"]

    def _choose_new(self) -> int:
        if self.where == "head":
            return min(self.ids, default=0) - 1
        if self.where == "middle":
            return 1 + sorted(self.ids)[len(self.ids) // 2] if self.ids else 1
        return max(self.ids, default=0) + self.random.choice(self.id_steps)

    def _choose_old(self) -> int:
        if self.where == "anywhere":
            return self.random.choice(self.ids)
        return sorted(self.ids)[{"head": 0, "middle": len(self.ids) // 2, "end": -1}[self.where]]

    def _insert(self, new: int) -> None:
        if new in self.ever:
            return
        self.ids.append(new)
        self.ever.add(new)
        self.email[new] = self.random.random()
        self.born[new] = self.requests
        self.people[new] = {
            "id": new,
            "is_active": self.is_homogeneous or self.random.random() < 0.5,
            "base_id": 1 if self.is_homogeneous else self.random.randrange(5),
            "gender": "" if self.is_homogeneous else self.random.choice(("male", "female", "")),
        }
        self._clock += 1
        self.touched[new] = self._clock if self.requests else 0


@dataclass(frozen=True, slots=True)
class Result:
    """The certificate, the rows kept of each sweep in the order in which they came, and the most pages under way."""

    certificate: Certificate
    sweeps: dict[int, list[int]]
    most_under_way: int = 1

    @property
    def rows(self) -> list[int]:
        return self.sweeps[max(self.sweeps)] if self.sweeps else []

    def is_false(self, simulated: SimulatedList) -> bool:
        """False: a certificate under which somebody who was there throughout is missing, or a row is twice, or new."""
        rows = self.rows
        is_wrong = len(set(rows)) < len(rows) or not simulated.throughout <= set(rows) <= simulated.ever
        return self.certificate.is_complete and (is_wrong or self.certificate.distinct != len(rows))


@dataclass(slots=True)
class UnderWay:
    """Pages that were asked for and not taken yet: the service answers them in any order, and changes in between."""

    simulated: SimulatedList
    pages: list[PageRequest] = field(default_factory=list)
    replies: dict[int, Reply] = field(default_factory=dict)

    def follow(self, wanted: list[PageRequest], *, is_calm: bool) -> None:
        """Drop what is not wanted any more, answered or not, and ask for what is wanted and was not yet."""
        same = 0
        while is_calm and same < min(len(self.pages), len(wanted)) and self.pages[same] == wanted[same]:
            same += 1
        self.replies = {place: reply for place, reply in self.replies.items() if place < same}
        self.pages = [*self.pages[:same], *wanted[same:]]

    def take_first(self) -> Reply:
        """The answer to the first page; others may be answered before it, at earlier states of the list."""
        while 0 not in self.replies:
            place = self.simulated.random.choice(
                [number for number in range(len(self.pages)) if number not in self.replies]
            )
            page = self.pages[place]
            self.replies[place] = self.simulated.answer(page)
        reply = self.replies.pop(0)
        self.pages.pop(0)
        self.replies = {place - 1: reply for place, reply in self.replies.items()}
        return reply


def read(simulated: SimulatedList, limit: int = 1000, *, ahead: int = 0) -> Result:
    """Read the whole simulated list, with up to `ahead` pages asked for beyond the next one."""
    reading, sweeps, under_way, most = Pager(limit), dict[int, list[int]](), UnderWay(simulated), 1
    while (page := reading.decide_next()) is not None:
        assert simulated.requests < 20_000, "the reading does not end"
        under_way.follow([page, *reading.decide_ahead(ahead)], is_calm=reading.is_calm)
        most = max(most, len(under_way.pages))
        ids, total, offset, shown = under_way.take_first()
        is_new = reading.add_page(
            np.array(ids, dtype=np.int64),
            total=total,
            offset=offset,
            limit=shown,
        )
        sweeps.setdefault(page.sweep, []).extend(number for number, keep in zip(ids, is_new, strict=True) if keep)
    return Result(reading.certify(STARTED, FINISHED), sweeps, most)
