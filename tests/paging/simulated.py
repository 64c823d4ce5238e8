"""A simulated list of a service, in any order, which changes during the reading. The service may answer wrongly.

All changes come from a seed, and the simulation has no clock. The list records which subscribers were always listed,
and which subscribers were ever listed.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

import numpy as np

from connector.paging.certificate import Certificate
from connector.paging.overlap import PageRequest
from connector.paging.pager import Pager

STARTED_AT = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
FINISHED_AT = datetime(2026, 11, 21, 9, 0, 30, tzinfo=UTC)

ORDERS = (
    "id",
    "id_desc",
    "email",
    "last_change",
    "last_change_desc",
    "ties",
    "shuffled",
    "sometimes",
    "page_sorted",
    "replicas",
)
STABLE_ORDERS = ("id", "id_desc", "email")


Reply = tuple[list[int], int | None, int | None, int | None]
"""Ids, TotalCount, Offset and Limit."""

Filters = tuple[tuple[str, object], ...]
"""The requested filters: field names with their values."""


@dataclass(slots=True)
class SimulatedList:
    """A list of subscribers. `insert_chance`, `delete_chance` and `activity_change_chance` are the chances of a change
    before each request. By default, the list does not change, and all answers are correct."""

    random: Random
    subscriber_count: int  # number of subscribers before the first request
    order: str = "id"  # see `_sort_ids`
    limit: int = 20  # the largest limit that the service accepts
    insert_chance: float = 0.0
    delete_chance: float = 0.0
    activity_change_chance: float = 0.0  # the chance that the `is_active` of a subscriber changes
    max_changes_per_request: int = 1  # the largest number of changes of each kind between two requests
    middle_insert_share: float = 0.0  # share of inserts with an id among the existing ids
    change_position: str = "anywhere"
    """`head`, `middle`, `end`: ids are inserted and deleted at this place of the list. `anywhere`: ids are inserted at
    the end, and deleted at any place."""
    total_mode: str = "correct"
    """The TotalCount of an answer. `cap`: at most twice `limit`. `page_cap`: at most `limit`. `wrong`: too large by 3.
    `sometimes_wrong`: at random, correct or wrong by 1. `none`: the answer has no TotalCount."""
    paging_mode: str = "correct"
    """The faults of pages. `correct`: none. `offset_rounded_down`: the service rounds the offset down to a multiple of
    the limit. `offset_ignored`: the service always returns the first page. `offset_limited`: the service limits the
    offset to three times the limit. `half_pages`: a page has at most half as many rows as its Limit says."""
    has_echoes: bool = True  # whether answers repeat Offset and Limit
    filter_mode: str = "work"
    """How filters work. `work`: correctly. `ignored`: the list ignores the filters. `incomplete`: the filters leave
    some subscribers out. `small`: the filters work only in requests with a
    limit below `limit`, the largest limit that the service accepts."""
    window_size: int = 0  # the size of a result window; 0: no window
    replica_lags: tuple[int, ...] = ()  # lags in requests; one of the replicas answers each request
    id_steps: tuple[int, ...] = (10,)  # the possible differences between an id and the next id
    is_homogeneous: bool = False  # all subscribers are active, in one base, and without a gender
    hidden_groups: Filters = ()  # subscribers of these groups are listed only with the filter of the group
    lost_shard_chance: float = 0.0  # the chance that an answer lacks one of five shards
    duplicate_share: float = 0.0  # share of subscribers that have two rows with the same id
    ids: list[int] = field(default_factory=list)
    email_key_by_id: dict[int, float] = field(default_factory=dict)  # sort keys of the order by email
    person_by_id: dict[int, dict[str, object]] = field(default_factory=dict)
    # The number of the last change of each subscriber, from 1; 0: no change since the first request.
    last_change_number_by_id: dict[int, int] = field(default_factory=dict)
    ids_with_changed_activity: set[int] = field(default_factory=set)  # subscribers whose `is_active` has changed
    request_count: int = 0
    ever_listed_ids: set[int] = field(default_factory=set)
    always_listed_ids: set[int] = field(default_factory=set)
    # For each id, the index of the request before which the id was inserted or deleted.
    insert_request_number_by_id: dict[int, int] = field(default_factory=dict)
    delete_request_number_by_id: dict[int, int] = field(default_factory=dict)
    _change_count: int = 0

    def __post_init__(self) -> None:
        new_id = 1
        for _ in range(self.subscriber_count):
            self._insert_row(new_id)
            new_id += self.random.choice(self.id_steps)
        self.always_listed_ids = set(self.ids)
        self.ever_listed_ids = set(self.ids)

    def answer(self, page: PageRequest, filters: Filters = ()) -> Reply:
        """Return the ids of a page, and its TotalCount, Offset and Limit. The list changes before the next answer."""
        offset, limit = page.offset, page.limit
        filters = () if self.filter_mode == "small" and limit >= self.limit else filters
        if self.request_count:
            self._change_rows()
        self.request_count += 1
        applied_limit = min(limit, self.limit)
        applied_offset = self._choose_offset(offset, applied_limit)
        ids = self._read_replica(self.random.choice(self.replica_lags)) if self.replica_lags else self.ids
        if self.hidden_groups:
            hidden_groups = [hidden_group for hidden_group in self.hidden_groups if hidden_group not in filters]
            ids = [
                subscriber_id
                for subscriber_id in ids
                if not any(self.matches(subscriber_id, (hidden_group,)) for hidden_group in hidden_groups)
            ]
        if self.lost_shard_chance and self.random.random() < self.lost_shard_chance:
            lost_shard_index = self.random.randrange(5)
            ids = [subscriber_id for subscriber_id in ids if subscriber_id // 10 % 5 != lost_shard_index]
        result_ids = self._sort_ids(
            [subscriber_id for subscriber_id in ids if self._lists_subscriber(subscriber_id, filters)]
            if filters
            else ids
        )
        if self.duplicate_share:
            duplicate_ids = [
                subscriber_id for subscriber_id in result_ids if subscriber_id % 1000 < 1000 * self.duplicate_share
            ]
            result_ids = sorted([*result_ids, *duplicate_ids])
        result_ids = result_ids[: self.window_size] if self.window_size else result_ids
        row_count = applied_limit // 2 or 1 if self.paging_mode == "half_pages" else applied_limit
        page_ids = result_ids[applied_offset : applied_offset + row_count]
        if self.order == "page_sorted":
            page_ids = sorted(page_ids)
        total_count = self._choose_total(len(result_ids))
        if not self.has_echoes:
            return page_ids, total_count, None, None
        return page_ids, total_count, applied_offset if self.paging_mode == "offset_limited" else offset, applied_limit

    def _read_replica(self, lag: int) -> list[int]:
        """Return the ids that were listed `lag` requests ago."""
        request_number = self.request_count - lag
        existing_ids = [
            subscriber_id
            for subscriber_id in self.ids
            if self.insert_request_number_by_id[subscriber_id] <= request_number
            or not self.insert_request_number_by_id[subscriber_id]
        ]
        return existing_ids + [
            subscriber_id
            for subscriber_id, delete_request_number in self.delete_request_number_by_id.items()
            if delete_request_number > request_number
            and self.insert_request_number_by_id[subscriber_id] <= request_number
        ]

    def _choose_offset(self, offset: int, limit: int) -> int:
        if self.paging_mode == "offset_rounded_down":
            return offset - offset % limit
        if self.paging_mode == "offset_limited":
            return min(offset, 3 * limit)
        return 0 if self.paging_mode == "offset_ignored" else offset

    def matches(self, subscriber_id: int, filters: Filters) -> bool:
        """Return whether the subscriber matches all filters."""
        person = self.person_by_id[subscriber_id]
        return all(person[name] == value for name, value in filters)

    def _lists_subscriber(self, subscriber_id: int, filters: Filters) -> bool:
        """Return whether the service lists the subscriber for these filters."""
        if self.filter_mode == "ignored":
            return True
        if not self.matches(subscriber_id, filters):
            return False
        if self.filter_mode != "incomplete" or subscriber_id % 7:
            return True
        return all(value not in (False, "") for name, value in filters if name != "base_id")

    def _choose_total(self, subscriber_count: int) -> int | None:
        return {
            "correct": subscriber_count,
            "cap": min(subscriber_count, 2 * self.limit),
            "page_cap": min(subscriber_count, self.limit),
            "wrong": subscriber_count + 3,
            "sometimes_wrong": subscriber_count + self.random.choice((-1, 0, 0, 1)),
            "none": None,
        }[self.total_mode]

    def _sort_ids(self, ids: list[int]) -> list[int]:
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
                return sorted(ids, key=self.email_key_by_id.__getitem__)
            case "grouped":  # a subscriber moves to the head of the list when its `is_active` changes
                return sorted(
                    ids, key=lambda subscriber_id: (subscriber_id not in self.ids_with_changed_activity, subscriber_id)
                )
            case "last_change":
                return sorted(
                    ids, key=lambda subscriber_id: (self.last_change_number_by_id[subscriber_id], subscriber_id)
                )
            case "last_change_desc":
                return sorted(
                    ids, key=lambda subscriber_id: (-self.last_change_number_by_id[subscriber_id], -subscriber_id)
                )
            case "ties":  # 70 neighbouring ids have the same key, and the order of equal keys is random
                return sorted(ids, key=lambda subscriber_id: (subscriber_id // 70, self.random.random()))
            case _:
                return self.random.sample(ids, len(ids))

    def _change_rows(self) -> None:
        for _ in range(self.max_changes_per_request):
            if self.random.random() < self.insert_chance:
                is_in_middle = self.random.random() < self.middle_insert_share
                self._insert_row(
                    self.random.randrange(10 * self.subscriber_count + 10) if is_in_middle else self._choose_new_id()
                )
            if self.ids and self.random.random() < self.delete_chance:
                deleted_id = self._choose_old_id()
                self.ids.remove(deleted_id)
                self.delete_request_number_by_id[deleted_id] = self.request_count
                self.always_listed_ids.discard(deleted_id)
            if self.ids and self.random.random() < self.activity_change_chance:
                self._change_count += 1
                changed_id = self.random.choice(self.ids)
                self.last_change_number_by_id[changed_id] = self._change_count
                self.ids_with_changed_activity.add(changed_id)
                self.person_by_id[changed_id]["is_active"] = not self.person_by_id[changed_id]["is_active"]

    def _choose_new_id(self) -> int:
        if self.change_position == "head":
            return min(self.ids, default=0) - 1
        if self.change_position == "middle":
            return 1 + sorted(self.ids)[len(self.ids) // 2] if self.ids else 1
        return max(self.ids, default=0) + self.random.choice(self.id_steps)

    def _choose_old_id(self) -> int:
        if self.change_position == "anywhere":
            return self.random.choice(self.ids)
        return sorted(self.ids)[{"head": 0, "middle": len(self.ids) // 2, "end": -1}[self.change_position]]

    def _insert_row(self, new_id: int) -> None:
        if new_id in self.ever_listed_ids:
            return
        self.ids.append(new_id)
        self.ever_listed_ids.add(new_id)
        self.email_key_by_id[new_id] = self.random.random()
        self.insert_request_number_by_id[new_id] = self.request_count
        self.person_by_id[new_id] = {
            "id": new_id,
            "is_active": self.is_homogeneous or self.random.random() < 0.5,
            "base_id": 1 if self.is_homogeneous else self.random.randrange(5),
            "gender": "" if self.is_homogeneous else self.random.choice(("male", "female", "")),
        }
        self._change_count += 1
        self.last_change_number_by_id[new_id] = self._change_count if self.request_count else 0


@dataclass(frozen=True, slots=True)
class ReadingResult:
    """The certificate and the ids that reading the simulated list returned."""

    certificate: Certificate
    new_ids_by_sweep: dict[int, list[int]]  # the ids by the number of the sweep (a sweep reads the whole list)
    max_in_flight_count: int = 1  # the largest number of pages in flight

    @property
    def listed_ids(self) -> list[int]:
        return self.new_ids_by_sweep[max(self.new_ids_by_sweep)] if self.new_ids_by_sweep else []

    def has_false_certificate(self, simulated_list: SimulatedList) -> bool:
        """Return whether the certificate says that the reading is complete although the ids or the recorded number of
        ids is wrong. The ids are correct if they have no duplicates, include every subscriber that was always listed,
        and include no subscriber that was never listed."""
        listed_ids = self.listed_ids
        is_list_wrong = (
            len(set(listed_ids)) < len(listed_ids)
            or not simulated_list.always_listed_ids <= set(listed_ids) <= simulated_list.ever_listed_ids
        )
        return self.certificate.is_complete and (is_list_wrong or self.certificate.distinct != len(listed_ids))


@dataclass(slots=True)
class PagesInFlight:
    """Pages that were requested and not received yet. The service answers the requests in any order, and the list
    changes between two answers."""

    simulated_list: SimulatedList
    pages: list[PageRequest] = field(default_factory=list)
    reply_by_index: dict[int, Reply] = field(default_factory=dict)  # the index is the index in `pages`

    def request_pages(self, pages: list[PageRequest], *, is_list_unchanging: bool) -> None:
        """Drop the pages in flight that differ from `pages`, and request the missing pages."""
        equal_page_count = 0
        shorter_length = min(len(self.pages), len(pages))
        while (
            is_list_unchanging
            and equal_page_count < shorter_length
            and self.pages[equal_page_count] == pages[equal_page_count]
        ):
            equal_page_count += 1
        self.reply_by_index = {index: reply for index, reply in self.reply_by_index.items() if index < equal_page_count}
        self.pages = [*self.pages[:equal_page_count], *pages[equal_page_count:]]

    def receive_first_reply(self) -> Reply:
        """Return the answer to the first page. The service may answer some later pages before the first page."""
        while 0 not in self.reply_by_index:
            index = self.simulated_list.random.choice(
                [page_index for page_index in range(len(self.pages)) if page_index not in self.reply_by_index]
            )
            self.reply_by_index[index] = self.simulated_list.answer(self.pages[index])
        reply = self.reply_by_index.pop(0)
        self.pages.pop(0)
        self.reply_by_index = {index - 1: reply for index, reply in self.reply_by_index.items()}
        return reply


def read_list(simulated_list: SimulatedList, limit: int = 1000, *, pages_ahead_count: int = 0) -> ReadingResult:
    """Read the whole simulated list. Request up to `pages_ahead_count` pages beyond the next page in advance."""
    pager, new_ids_by_sweep, pages_in_flight, max_in_flight_count = (
        Pager(limit),
        dict[int, list[int]](),
        PagesInFlight(simulated_list),
        1,
    )
    while (page := pager.decide_next_page()) is not None:
        assert simulated_list.request_count < 20_000, "reading the list does not end"
        pages_in_flight.request_pages(
            [page, *pager.decide_pages_ahead(pages_ahead_count)], is_list_unchanging=pager.is_list_unchanging
        )
        max_in_flight_count = max(max_in_flight_count, len(pages_in_flight.pages))
        ids, total_count, offset, echoed_limit = pages_in_flight.receive_first_reply()
        new_row_mask = pager.add_page(
            np.array(ids, dtype=np.int64),
            total_count=total_count,
            offset=offset,
            limit=echoed_limit,
        )
        new_ids = [subscriber_id for subscriber_id, is_new in zip(ids, new_row_mask, strict=True) if is_new]
        new_ids_by_sweep.setdefault(page.sweep_number, []).extend(new_ids)
    return ReadingResult(pager.certify(STARTED_AT, FINISHED_AT), new_ids_by_sweep, max_in_flight_count)
