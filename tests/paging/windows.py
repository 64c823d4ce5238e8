"""Simulated lists for rule 7 (architecture 7): lists that leave subscribers out, and complete lists."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from connector.listing.reader import read_list
from connector.paging.certificate import Certificate
from connector.paging.overlap import IdArray, PageRequest
from connector.service.retry import RequestCounts, Retrier
from connector.service.wire import ListPage, ListQuery
from tests.paging.simulated import STARTED_AT, Filters, SimulatedList

_FILTER_NAMES = ("id", "is_active", "base_id", "gender")
_HIDDEN_GROUPS: Sequence[Filters] = (
    (("is_active", False),),
    (("is_active", False),),
    (("gender", "male"),),
    (("gender", ""),),
    (("is_active", False), ("gender", "female")),
    (("base_id", 3),),
)


@dataclass(slots=True)
class QueriedList:
    """A simulated list with the methods of a client of the service."""

    simulated_list: SimulatedList
    known_ids: frozenset[int] = frozenset()  # ids that a ledger has confirmed
    evidence_request_count: int = 0
    was_always_cut_off: bool = True  # whether the list was longer than the window at each request for evidence
    row_ids: list[int] = field(default_factory=list)
    is_paused: bool = False  # whether the service has asked for a pause
    counts: dict[str, RequestCounts] = field(default_factory=lambda: {"list": RequestCounts()})

    @property
    def has_evidence(self) -> bool:
        """Whether requests with a filter can prove that the list lacks subscribers. The filters must work. The
        subscribers must have several values in a field, or ids without gaps. If the list has a result window, the list
        must be longer than the window at each of these requests."""
        simulated_list = self.simulated_list
        is_dense = (
            simulated_list.order in ("id", "id_desc")
            and len(simulated_list.id_steps) == 1
            and not simulated_list.middle_insert_share
        )
        is_sometimes_whole = bool(simulated_list.window_size) and not self.was_always_cut_off
        can_divide_list = not simulated_list.is_homogeneous or is_dense
        return simulated_list.filter_mode == "work" and not is_sometimes_whole and can_divide_list

    @property
    def is_whole(self) -> bool:
        """Whether each subscriber that was on the list all the time has a row, and no subscriber has two rows. If the
        list hides a group, a subscriber whose `is_active` has changed may be missing."""
        simulated_list = self.simulated_list
        excused_ids = simulated_list.ids_with_changed_activity if simulated_list.hidden_groups else set()
        return simulated_list.always_listed_ids - excused_ids <= set(self.row_ids) and len(set(self.row_ids)) == len(
            self.row_ids
        )

    def read(self) -> Certificate:
        """Read the whole list, and return the certificate."""
        known_ids = sorted(self.known_ids)

        async def find_unlisted_entries(ids: IdArray) -> Sequence[int]:
            listed_ids = set(ids.tolist())
            return [known_id for known_id in known_ids if known_id not in listed_ids]

        return asyncio.run(
            read_list(
                self,  # type: ignore[arg-type] # it has the methods of a client that a reading calls
                Retrier(),
                ListQuery(),
                self,
                now=lambda: STARTED_AT,
                reads_ahead=False,
                find_unlisted_entries=find_unlisted_entries if known_ids else None,
                unlisted_base_ids=[3],
                draw_bytes=self.simulated_list.random.randbytes,
                monotonic=lambda: 0.0,
            )
        )

    def start_sweep(self, sweep_number: int) -> None:
        self.row_ids.clear()

    def receive_rows(self, rows: Sequence[dict[str, Any]]) -> None:
        self.row_ids += [row["Id"] for row in rows]

    async def list_subscribers(self, query: ListQuery, parse: object = None) -> ListPage:
        """Return one page of the list."""
        simulated_list = self.simulated_list
        filters = tuple((name, value) for name in _FILTER_NAMES if (value := getattr(query, name)) is not None)
        if query.limit < 1000:
            self.evidence_request_count += 1
            self.was_always_cut_off &= len(simulated_list.ids) > simulated_list.window_size
        ids, total_count, offset, limit = simulated_list.answer(PageRequest(1, query.offset, query.limit), filters)
        return ListPage([self._build_row(subscriber_id) for subscriber_id in ids], total_count, offset, limit)

    def _build_row(self, subscriber_id: int) -> dict[str, Any]:
        person = self.simulated_list.person_by_id[subscriber_id]
        base = {"Id": person["base_id"]}
        return {"Id": subscriber_id, "Base": base, "IsActive": person["is_active"], "Gender": person["gender"]}


BuildList = Callable[[int], QueriedList]


def build_cut_off_list(seed: int) -> QueriedList:
    """Build a list that a result window cuts off: 1 to 1,500 subscribers are beyond the window."""
    random = Random(seed)
    window_size = random.choice((100, 500, 999, 1000, 1023, 1024, 2000, 9999 // 5, random.randrange(100, 2500)))
    return _build_queried_list(
        random,
        window_size + random.choice((1, 7, random.randrange(1, 1500))),
        (0, 0, 0.02, 0.2),
        window_size=window_size,
    )


def build_hiding_list(seed: int) -> QueriedList:
    """Build a list that hides one or two groups of subscribers."""
    random = Random(seed)
    hidden_groups = random.choice(_HIDDEN_GROUPS)
    return _build_queried_list(
        random, random.choice((20, 300, random.randrange(20, 2500))), (0, 0, 0.02, 0.2), hidden_groups=hidden_groups
    )


def build_sharded_list(seed: int) -> QueriedList:
    """Build a list whose answers sometimes lack a shard (one of five fixed parts)."""
    random = Random(seed)
    lost_shard_chance = random.choice((0.05, 0.2, 0.5))
    return _build_queried_list(random, random.randrange(20, 2500), (0, 0, 0.02), lost_shard_chance=lost_shard_chance)


def build_duplicating_list(seed: int) -> QueriedList:
    """Build a list in which some subscribers have two rows with the same id."""
    random = Random(seed)
    return _build_queried_list(
        random, random.randrange(20, 2500), (0, 0, 0.02), duplicate_share=random.choice((0.01, 0.1, 1.0))
    )


def build_complete_list(seed: int) -> QueriedList:
    """Build a list that shows every subscriber: 5 % of the lists are empty, and 3 % have the size of a result
    window."""
    random = Random(seed)
    random_share = random.random()
    subscriber_count = random.choice((random.randrange(20, 900), random.randrange(900, 3500)))
    if random_share < 0.08:
        subscriber_count = 0 if random_share < 0.05 else random.choice((1000, 1024, 2000, 3000))
    return _build_queried_list(random, subscriber_count, (0.02, 0.2, 0.5) if subscriber_count > 200 else (0, 0.02, 0.1))


def _build_queried_list(
    random: Random, subscriber_count: int, change_rates: Sequence[float], **settings: Any
) -> QueriedList:
    change_rate = random.choice(change_rates)
    simulated_list = SimulatedList(
        random,
        subscriber_count,
        random.choice(("id", "id", "id_desc", "email")),
        1000,
        insert_chance=change_rate * random.random(),
        delete_chance=change_rate * random.random(),
        activity_change_chance=change_rate * random.random(),
        middle_insert_share=random.choice((0, 0, 0.5)),
        filter_mode=random.choice(("work",) * 8 + ("ignored", "incomplete")),
        replica_lags=random.choice(((), (), (0, 2), (0, 1, 8))),
        id_steps=random.choice(((1,), (1,), (10,), (1, 5, 40))),
        is_homogeneous=random.random() < 0.3,
        **settings,
    )
    known_ids = random.sample(simulated_list.ids, min(len(simulated_list.ids), 300)) if random.random() < 0.3 else ()
    return QueriedList(simulated_list, frozenset(known_ids))
