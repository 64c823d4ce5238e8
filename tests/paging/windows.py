"""Lists that leave subscribers out, and honest lists, which a reading judges with the evidence of rule 7."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from connector.listing.reader import read_list
from connector.paging.certificate import Certificate
from connector.paging.overlap import IdArray, PageRequest
from connector.service.request_counts import RequestCounts
from connector.service.retry import Retrier
from connector.service.wire import ListPage, ListQuery
from tests.paging.simulated import STARTED, Filters, SimulatedList

_FILTERS = ("id", "is_active", "base_id", "gender")
_HIDES: Sequence[Filters] = (
    (("is_active", False),),
    (("is_active", False),),
    (("gender", "male"),),
    (("gender", ""),),
    (("is_active", False), ("gender", "female")),
    (("base_id", 3),),
)


@dataclass(slots=True)
class LongList:
    """A simulated list, asked by list queries; `known` are ids that a ledger has confirmed."""

    simulated: SimulatedList
    known: frozenset[int] = frozenset()
    asked: int = 0  # requests for evidence: every request after the sweep
    pages: int = 0
    was_hidden: bool = True  # at each request for evidence some subscribers were beyond the window
    rows: list[int] = field(default_factory=list)
    is_quiet: bool = False
    counts: dict[str, RequestCounts] = field(default_factory=lambda: {"list": RequestCounts()})

    @property
    def has_evidence(self) -> bool:
        """Whether the service would show more, asked otherwise: its filters work, and tell parts of the list apart, or
        reach ids beyond the last."""
        simulated = self.simulated
        is_dense = simulated.order in ("id", "id_desc") and len(simulated.id_steps) == 1 and not simulated.late
        is_beyond = not simulated.window or self.was_hidden
        return simulated.filters == "work" and is_beyond and (not simulated.is_homogeneous or is_dense)

    @property
    def is_whole(self) -> bool:
        """Whether the rows have everybody who was there throughout, each once. Who changes the class may be hidden at
        each request that would show the other class."""
        moved = self.simulated.raised if self.simulated.hides else set()
        return self.simulated.throughout - moved <= set(self.rows) and len(set(self.rows)) == len(self.rows)

    def read(self) -> Certificate:
        """Read it whole."""
        known = sorted(self.known)

        async def find_lacking(ids: IdArray) -> Sequence[int]:
            listed = set(ids.tolist())
            return [entry for entry in known if entry not in listed]

        return asyncio.run(
            read_list(
                self,  # type: ignore[arg-type] # what a reading needs of a client
                Retrier(),
                ListQuery(),
                self,
                now=lambda: STARTED,
                reads_ahead=False,
                find_lacking=find_lacking if known else None,
                unlisted_bases=[3],
                draw=self.simulated.random.randbytes,
                monotonic=lambda: 0.0,
            )
        )

    def start_sweep(self, number: int) -> None:
        self.rows.clear()

    def take(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows += [row["Id"] for row in rows]

    async def list_subscribers(self, query: ListQuery, parse: object = None) -> ListPage:
        """One page of the list."""
        simulated = self.simulated
        filters = tuple((name, value) for name in _FILTERS if (value := getattr(query, name)) is not None)
        if query.limit < 1000:
            self.asked += 1
            self.was_hidden &= len(simulated.ids) > simulated.window
        ids, total, offset, limit = simulated.answer(PageRequest(1, query.offset, query.limit), filters)
        return ListPage([self._write(number) for number in ids], total, offset, limit)

    def _write(self, number: int) -> dict[str, Any]:
        person = self.simulated.people[number]
        base = {"Id": person["base_id"]}
        return {"Id": number, "Base": base, "IsActive": person["is_active"], "Gender": person["gender"]}


Build = Callable[[int], LongList]


def build_cut_off_list(seed: int) -> LongList:
    """A list of which a window shows a part: 1 to 1,500 subscribers are beyond it."""
    random = Random(seed)
    window = random.choice((100, 500, 999, 1000, 1023, 1024, 2000, 9999 // 5, random.randrange(100, 2500)))
    return _build(random, window + random.choice((1, 7, random.randrange(1, 1500))), (0, 0, 0.02, 0.2), window=window)


def build_hiding_list(seed: int) -> LongList:
    """A list that hides one or two classes of subscribers."""
    random = Random(seed)
    hides = random.choice(_HIDES)
    return _build(random, random.choice((20, 300, random.randrange(20, 2500))), (0, 0, 0.02, 0.2), hides=hides)


def build_sharded_list(seed: int) -> LongList:
    """A list whose answers lack a shard now and then."""
    random = Random(seed)
    lost_shard = random.choice((0.05, 0.2, 0.5))
    return _build(random, random.randrange(20, 2500), (0, 0, 0.02), lost_shard=lost_shard)


def build_sharing_list(seed: int) -> LongList:
    """A list that shows some subscribers twice with one id."""
    random = Random(seed)
    return _build(random, random.randrange(20, 2500), (0, 0, 0.02), shared=random.choice((0.01, 0.1, 1.0)))


def build_honest_list(seed: int) -> LongList:
    """A list that shows everybody: 5 % are empty, 3 % of a size that windows have."""
    random = Random(seed)
    drawn = random.random()
    count = random.choice((random.randrange(20, 900), random.randrange(900, 3500)))
    if drawn < 0.08:
        count = 0 if drawn < 0.05 else random.choice((1000, 1024, 2000, 3000))
    return _build(random, count, (0.02, 0.2, 0.5) if count > 200 else (0, 0.02, 0.1))


def _build(random: Random, count: int, churns: Sequence[float], **habits: Any) -> LongList:
    churn = random.choice(churns)
    simulated = SimulatedList(
        random,
        count,
        random.choice(("id", "id", "id_desc", "email")),
        1000,
        inserts=churn * random.random(),
        deletes=churn * random.random(),
        touches=churn * random.random(),
        late=random.choice((0, 0, 0.5)),
        filters=random.choice(("work",) * 8 + ("ignored", "lossy")),
        lags=random.choice(((), (), (0, 2), (0, 1, 8))),
        id_steps=random.choice(((1,), (1,), (10,), (1, 5, 40))),
        is_homogeneous=random.random() < 0.3,
        **habits,
    )
    known = random.sample(simulated.ids, min(len(simulated.ids), 300)) if random.random() < 0.3 else ()
    return LongList(simulated, frozenset(known))
