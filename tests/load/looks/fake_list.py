"""A fake service that only lists subscribers, without network and clock, so that the tests choose the order
of events.

`test_fake_list.py` compares its answers with the answers of the sandbox.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from connector.service.retry import RequestCounts
from connector.service.wire import AmbiguousResult, ListPage, ListQuery, NotSent, Refused

EVIDENCE_PAGE_SIZES = (50, 999)
"""The page sizes of requests for evidence. The evidence shows whether a list is cut off."""

Answer = ListPage | Refused | AmbiguousResult | NotSent
TextMatch = Callable[[str, str], bool]
"""A function that returns whether a filter with the first text lists a subscriber with the second text."""


def matches_exactly(filter_text: str, stored_text: str) -> bool:
    return filter_text == stored_text


def matches_ignoring_case(filter_text: str, stored_text: str) -> bool:
    return filter_text.lower() == stored_text.lower()


def matches_partially(filter_text: str, stored_text: str) -> bool:
    return filter_text.lower() in stored_text.lower()


def matches_everything(filter_text: str, stored_text: str) -> bool:
    return True


TEXT_MATCH_BY_FILTER_MODE: dict[str, TextMatch] = {
    "exact": matches_exactly,
    "icase": matches_ignoring_case,
    "partial": matches_partially,
    "ignored": matches_everything,
}
"""The match function for each value of the sandbox's switch `filters`."""


@dataclass
class FakeList:
    """The fake service. It has the methods of the client, so the tests use it as the client."""

    people: list[dict[str, Any]] = field(default_factory=list)  # subscribers as JSON objects
    text_match: TextMatch = matches_exactly  # how the filters by email and client_user_id match
    sort_people: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda people: people
    # Converts the number of subscribers that match the filter to the TotalCount of the answer.
    choose_total_count: Callable[[int], int | None] = lambda match_count: match_count
    on_request: Callable[[ListQuery], None] = lambda query: None  # called before each answer; may change the list
    choose_answer: Callable[[ListQuery], Answer | None] = lambda query: None  # None: the answer is a page of the list
    max_limit: int = 1000
    queries: list[ListQuery] = field(default_factory=list)  # requests for pages, and look-ups
    evidence_queries: list[ListQuery] = field(default_factory=list)  # requests that check whether the list is cut off
    hidden_base_ids: frozenset[int] = frozenset()  # ids of bases that the list shows only to a request for the base
    in_flight_count: int = 0
    max_in_flight_count: int = 0
    is_paused: bool = False
    counts: dict[str, RequestCounts] = field(default_factory=lambda: {"list": RequestCounts()})

    def add(self, subscriber_id: int, email: str = "", *, base: object = None, client_user_id: str = "") -> None:
        """Add a subscriber, by default to the base 7."""
        listed_base = {"Id": 7, "Name": "News"} if base is None else base
        self.people.append({"Id": subscriber_id, "Base": listed_base, "Email": email, "ClientUserId": client_user_id})

    async def list_subscribers(self, query: ListQuery, parse: object = None) -> Answer:
        (self.evidence_queries if query.limit in EVIDENCE_PAGE_SIZES else self.queries).append(query)
        self.in_flight_count += 1
        self.max_in_flight_count = max(self.max_in_flight_count, self.in_flight_count)
        try:
            await asyncio.sleep(0)
            self.on_request(query)
            answer = self.choose_answer(query)
            return self.build_page(query) if answer is None else answer
        finally:
            self.in_flight_count -= 1

    def shuffle(self) -> None:
        """Give the list another random order at each request."""
        self.sort_people = lambda people: random.Random(len(self.queries)).sample(people, len(people))

    def build_page(self, query: ListQuery) -> ListPage:
        """Return the page for the query."""
        matching_people = self.sort_people([person for person in self.people if self._matches_query(query, person)])
        limit = min(query.limit, self.max_limit)
        rows = matching_people[query.offset : query.offset + limit]
        return ListPage(rows, self.choose_total_count(len(matching_people)), query.offset, limit)

    def _matches_query(self, query: ListQuery, person: dict[str, Any]) -> bool:
        if query.base_id is not None and person["Base"]["Id"] != query.base_id:
            return False
        if query.base_id is None and person["Base"]["Id"] in self.hidden_base_ids:
            return False
        if query.id is not None:
            return bool(person["Id"] == query.id)
        if query.email is not None:
            return self.text_match(query.email, person["Email"])
        return query.client_user_id is None or self.text_match(query.client_user_id, person["ClientUserId"])

    @property
    def page_count(self) -> int:
        """The number of requests for a page of the whole list."""
        return sum(query == ListQuery(query.offset, query.limit) for query in self.queries)

    def count_requests(self, text: str) -> int:
        """Return the number of requests that filtered by this text."""
        return sum(text in (query.email, query.client_user_id) for query in self.queries)


def build_other_people(
    person_count: int, first_id: int = 1, email_pattern: str = "p{}@crowd.org"
) -> list[dict[str, Any]]:
    """Return people of another base, with consecutive ids. By default, their emails are in lower case and have no
    special characters."""
    base = {"Id": 1, "Name": "Others"}
    ids: Sequence[int] = range(first_id, first_id + person_count)
    return [{"Id": id_, "Base": base, "Email": email_pattern.format(id_), "ClientUserId": f"c{id_}"} for id_ in ids]
