"""A service that only lists, without network and clock, for interleavings that a real service does not show.

`test_fake_list.py` holds it to what the sandbox answers.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from connector.service.request_counts import RequestCounts
from connector.service.wire import Ambiguous, ListPage, ListQuery, NotSent, Refused

OF_EVIDENCE = (50, 999)
"""The limit of what is asked for evidence that a list is not cut off."""

Answer = ListPage | Refused | Ambiguous | NotSent
Finds = Callable[[str, str], bool]


def exact(asked: str, stored: str) -> bool:
    return asked == stored


def icase(asked: str, stored: str) -> bool:
    return asked.lower() == stored.lower()


def partial(asked: str, stored: str) -> bool:
    return asked.lower() in stored.lower()


def ignored(asked: str, stored: str) -> bool:
    return True


@dataclass
class FakeList:
    """`people` are wire objects, listed in the order of `arrange`; `finds` compares the text asked for with the stored
    one; `count` makes TotalCount of the true number; `before` sees each request first and may change the list;
    `instead` may give another answer than the list's. `asked` are pages and look-ups, `evidence` what a long list is
    asked beside them."""

    people: list[dict[str, Any]] = field(default_factory=list)
    finds: Finds = exact
    arrange: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda people: people
    count: Callable[[int], int | None] = lambda number: number
    before: Callable[[ListQuery], None] = lambda query: None
    instead: Callable[[ListQuery], Answer | None] = lambda query: None
    largest_limit: int = 1000
    asked: list[ListQuery] = field(default_factory=list)
    evidence: list[ListQuery] = field(default_factory=list)
    hidden_bases: frozenset[int] = frozenset()
    under_way: int = 0
    most_under_way: int = 0
    is_quiet: bool = False
    counts: dict[str, RequestCounts] = field(default_factory=lambda: {"list": RequestCounts()})

    def add(self, subscriber_id: int, email: str = "", *, base: object = None, client: str = "") -> None:
        """Somebody more, in the base 7 unless another is given."""
        own_base = {"Id": 7, "Name": "News"} if base is None else base
        self.people.append({"Id": subscriber_id, "Base": own_base, "Email": email, "ClientUserId": client})

    async def list_subscribers(self, query: ListQuery, parse: object = None) -> Answer:
        (self.evidence if query.limit in OF_EVIDENCE else self.asked).append(query)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(0)
            self.before(query)
            answer = self.instead(query)
            return self.answer(query) if answer is None else answer
        finally:
            self.under_way -= 1

    def answer(self, query: ListQuery) -> ListPage:
        """The page that the query names."""
        shown = self.arrange([person for person in self.people if self._matches(query, person)])
        limit = min(query.limit, self.largest_limit)
        return ListPage(shown[query.offset : query.offset + limit], self.count(len(shown)), query.offset, limit)

    def _matches(self, query: ListQuery, person: dict[str, Any]) -> bool:
        if query.base_id is not None and person["Base"]["Id"] != query.base_id:
            return False
        if query.base_id is None and person["Base"]["Id"] in self.hidden_bases:
            return False
        if query.id is not None:
            return bool(person["Id"] == query.id)
        if query.email is not None:
            return self.finds(query.email, person["Email"])
        return query.client_user_id is None or self.finds(query.client_user_id, person["ClientUserId"])

    @property
    def pages(self) -> int:
        """How many pages of the whole list were asked for."""
        return sum(query == ListQuery(query.offset, query.limit) for query in self.asked)

    def times(self, text: str) -> int:
        """How often this text was asked for."""
        return sum(text in (query.email, query.client_user_id) for query in self.asked)


def crowd(number: int, first_id: int = 1, email: str = "p{}@crowd.org") -> list[dict[str, Any]]:
    """So many people of another base, all of the plain class unless the pattern says otherwise."""
    base = {"Id": 1, "Name": "Others"}
    ids: Sequence[int] = range(first_id, first_id + number)
    return [{"Id": id_, "Base": base, "Email": email.format(id_), "ClientUserId": f"c{id_}"} for id_ in ids]
