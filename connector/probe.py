"""What a service does that its interface document leaves unsaid, measured: with reads alone, or with a few creates.

Each habit is a value, words for a person and how sure it is. A habit is what was seen once: a first guess for the next
run, and never proof of anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Literal

from connector.clock import Clock
from connector.listing.pages import fetch_page
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import Created, ListPage, ListQuery, Refused, encode_subscriber

_SURE_FROM = 10  # rows in order by chance: once in three million
_LAG_WAIT_S, _LAG_STEP_S = 30.0, 0.2
_MARK = "connector-probe"

Sureness = Literal["sure", "likely", "not seen"]


@dataclass(frozen=True, slots=True)
class Habit:
    """One habit: its name, what was seen of it (None: nothing), in words, and how sure that is."""

    name: str
    seen: str | float | None
    words: str
    sureness: Sureness = "sure"

    def as_json(self) -> dict[str, object]:
        """Return it as plain JSON values."""
        return {"habit": self.name, "seen": self.seen, "words": self.words, "sureness": self.sureness}


class ListProbe:
    """Measures the habits of the list, with list requests alone."""

    def __init__(self, client: Client, retrier: Retrier) -> None:
        self._client, self._retrier = client, retrier
        self._rows: Sequence[dict[str, Any]] = ()
        self._total: int | None = None
        self.filters: str | float | None = None  # how the email's filter was seen to match

    async def measure(self) -> list[Habit]:
        """Measure them. Raises ListFailed if the list cannot be read at all."""
        first = await fetch_page(self._client, self._retrier, ListQuery())
        self._rows, self._total = first.subscribers, first.total_count
        habits = [self._judge_page_size(first), self._judge_total()]
        measures = (self._order, self._offset, self._past_end, self._filter, self._two_filters, self._window)
        return [*habits, *[await measure() for measure in measures]]

    @property
    def _ids(self) -> list[int]:
        return _read_ids(self._rows)

    async def _ask(self, query: ListQuery) -> ListPage | None:
        answer = await self._answer(query)
        return answer if isinstance(answer, ListPage) else None

    async def _answer(self, query: ListQuery) -> object:
        return await self._retrier.read(lambda: self._client.list_subscribers(query), self._client.counts["list"])

    def _judge_page_size(self, first: ListPage) -> Habit:
        rows, name = len(first.subscribers), "page_size"
        if first.limit is None:
            return Habit(name, None, "the answer does not repeat the limit", "not seen")
        if rows == first.limit:
            return Habit(name, rows, f"a page holds {rows:,} subscribers at most")
        if self._total is not None and rows < self._total:
            return Habit(name, rows, f"a page held {rows:,} subscribers of {self._total:,}", "likely")
        return Habit(name, first.limit, f"a page holds {first.limit:,} at most, as the answer says", "likely")

    def _judge_total(self) -> Habit:
        rows, total, name = len(self._rows), self._total, "total_count"
        if total is None:
            return Habit(name, "none", "the list says no TotalCount")
        if rows < total:
            return Habit(name, None, f"TotalCount is {total:,}; the list is longer than a page", "not seen")
        if rows > total:
            return Habit(name, "wrong", f"TotalCount is {total:,}, and a page alone holds {rows:,}")
        return Habit(name, "agrees", f"TotalCount is {total:,}, as many as the page holds")

    async def _order(self) -> Habit:
        ids, name = self._ids, "order"
        if len(ids) < 3:
            return Habit(name, None, "too few subscribers are listed", "not seen")
        again = await self._ask(ListQuery())
        if again is None or _read_ids(again.subscribers) != ids:
            return Habit(name, "changes", "the same page, asked for twice, came in two orders or had changed", "likely")
        sureness: Sureness = "sure" if len(ids) >= _SURE_FROM else "likely"
        for order, words in ((sorted(ids), "ascending"), (sorted(ids, reverse=True), "descending")):
            if ids == order:
                return Habit(name, words, f"by id, {words}", sureness)
        return Habit(name, "other", "not by id, and the same when asked twice", sureness)

    async def _offset(self) -> Habit:
        ids, name = self._ids, "offset"
        page = await self._ask(ListQuery(offset=1, limit=2)) if len(ids) > 3 else None
        if page is None:
            return Habit(name, None, "too few subscribers are listed", "not seen")
        got = _read_ids(page.subscribers)
        if got == ids[1:3]:
            return Habit(name, "as asked", "a page begins where it was asked to")
        if got == ids[:2]:
            return Habit(name, "aligned", "an offset is reduced to a multiple of the limit")
        if len(got) > 2:
            return Habit(name, "raised limit", f"a limit of 2 was answered with {len(got)} subscribers")
        return Habit(name, "other", "a page holds others than those at its offset, or the order changes", "likely")

    async def _past_end(self) -> Habit:
        name = "past_end"
        if not self._total:
            return Habit(name, None, "the list is empty", "not seen")
        answer = await self._answer(ListQuery(offset=max(self._total, len(self._rows)) + 1, limit=2))
        if isinstance(answer, ListPage):
            if not answer.subscribers:
                return Habit(name, "empty", "a page past the end is empty")
            return Habit(name, "rows", "a page past the end holds subscribers: the last page again, or a wrong count")
        if isinstance(answer, Refused):
            return Habit(name, f"error {answer.status}", f"a page past the end is an error ({answer.status})")
        return Habit(name, None, "a page past the end had no usable answer", "not seen")

    async def _filter(self) -> Habit:
        name = "filters"
        known = next((row for row in self._rows if _is_plain(row.get("Email"))), None)
        if known is None:
            return Habit(name, None, "no subscriber with a plain address is listed", "not seen")
        email = str(known["Email"])
        made_up = await self._ask(ListQuery(email=f"{token_hex(8)}@example.invalid", limit=10))
        if made_up is None:
            return Habit(name, None, "the list refuses to be filtered by an email", "not seen")
        if made_up.subscribers:
            return self._keep(Habit(name, "ignored", "a made-up address is answered with subscribers"))
        if not await self._finds(email, known):
            return self._keep(Habit(name, "blind", "a listed address is not found by its own filter"))
        if await self._finds(email[1:-1], known):
            return self._keep(Habit(name, "partial", "a part of an address finds the subscriber, too"))
        if await self._finds(email.swapcase(), known):
            return self._keep(Habit(name, "icase", "an address is found in capitals or small letters alike"))
        return self._keep(Habit(name, "exact", "an address is found exactly as it is spelt"))

    def _keep(self, habit: Habit) -> Habit:
        self.filters = habit.seen
        return habit

    async def _finds(self, email: str, known: dict[str, Any]) -> bool:
        page = await self._ask(ListQuery(email=email))
        return page is not None and known["Id"] in _read_ids(page.subscribers)

    async def _two_filters(self) -> Habit:
        name = "two_filters"
        pair = [row for row in self._rows if _is_plain(row.get("Email"))][:2]
        if self.filters not in ("exact", "icase") or len(pair) < 2:
            return Habit(name, None, "the filters of two subscribers cannot be tried", "not seen")
        one, other = pair
        page = await self._ask(ListQuery(email=str(one["Email"]), id=int(other["Id"])))
        alone = await self._ask(ListQuery(id=int(other["Id"])))
        if page is None or alone is None or _read_ids(alone.subscribers) != [other["Id"]]:
            return Habit(name, None, "the filter by Id does not work alone", "not seen")
        found = set(_read_ids(page.subscribers)) & {one["Id"], other["Id"]}
        if not found:
            return Habit(name, "all", "of two filters both must match")
        if len(found) == 2:
            return Habit(name, "any", "of two filters either may match")
        return Habit(name, "one", "of two filters one alone counts")

    async def _window(self) -> Habit:
        name, total = "window", self._total
        if not total:
            return Habit(name, None, "the list is empty", "not seen")
        active = [await self._count_part(is_active=is_active) for is_active in (True, False)]
        genders = [await self._count_part(gender=gender) for gender in ("male", "female", "")]
        sums = [sum(part) for part in (active, genders) if None not in part]  # type: ignore[arg-type] # no part is None
        if not sums:
            return Habit(name, None, "the list cannot be counted in parts: its filters do not work", "not seen")
        if max(sums) > total:
            words = f"the list counts {total:,}, and its parts {max(sums):,}: it is cut off, or its count is wrong"
            return Habit(name, total, words, "likely")
        return Habit(name, "none", f"none was seen among {total:,} subscribers", "likely")

    async def _count_part(self, *, is_active: bool | None = None, gender: str | None = None) -> int | None:
        """TotalCount of a part of the list; None if it holds what is of another part."""
        page = await self._ask(ListQuery(is_active=is_active, gender=gender))
        if page is None:
            return None
        is_part = all(
            bool(row.get("IsActive")) is is_active if is_active is not None else (row.get("Gender") or "") == gender
            for row in page.subscribers
        )
        return page.total_count if is_part else None


async def probe_creates(client: Client, clock: Clock, base_id: int, filters: str | float | None) -> list[Habit]:
    """Create up to four marked and inactive subscribers in the base, and return what the service made of them.

    Each create is sent once, whatever becomes of it. `filters` is how the email's filter was seen to match.
    """
    email = f"{_MARK}-{token_hex(6)}@example.com"
    first = await _create(client, base_id=base_id, email=email)
    if not isinstance(first, Created):
        return [Habit("creates", "refused", f"a create in base {base_id} was not answered as created", "likely")]
    lag = await _measure_lag(client, clock, first, email, filters)
    again = await _create(client, base_id=base_id, email=email)
    return [
        lag,
        _judge_duplicate(first, again),
        _judge_error(await _create(client, base_id=base_id, email=_MARK, gender="neither", birthday="no date")),
        await _measure_base_names(client, first),
    ]


async def _create(client: Client, **values: object) -> object:
    marked = {"is_active": False, "first_name": _MARK, "tags": [_MARK], **values}
    return await client.create_subscriber(encode_subscriber(marked))


async def _measure_lag(
    client: Client, clock: Clock, created: Created, email: str, filters: str | float | None
) -> Habit:
    if filters not in ("exact", "icase", "partial"):
        return Habit("visibility_lag", None, "the filter by email does not work, so no look-up tells", "not seen")
    began = clock.monotonic()
    while (waited_s := clock.monotonic() - began) < _LAG_WAIT_S:
        answer = await client.list_subscribers(ListQuery(email=email))
        if isinstance(answer, ListPage) and created.subscriber_id in _read_ids(answer.subscribers):
            seen_s = round(clock.monotonic() - began, 1)
            return Habit("visibility_lag", seen_s, f"a create showed on the list after {seen_s:g} s")
        await clock.sleep(max(_LAG_STEP_S, waited_s / 5))
    return Habit("visibility_lag", _LAG_WAIT_S, f"a create had not shown on the list after {_LAG_WAIT_S:g} s", "likely")


def _judge_duplicate(first: Created, again: object) -> Habit:
    name = "duplicates"
    if isinstance(again, Created):
        if again.subscriber_id == first.subscriber_id:
            return Habit(name, "same id", "the same subscriber, created again, is answered with its id")
        return Habit(name, "accepted", "the same subscriber, created again, exists twice")
    if isinstance(again, Refused):
        return Habit(
            name, f"refused {again.status}", f"the same subscriber, created again, is refused ({again.status})"
        )
    return Habit(name, None, "the second create had no usable answer", "not seen")


def _judge_error(answer: object) -> Habit:
    name = "error_shape"
    if isinstance(answer, Created):
        return Habit(name, "accepted", "an email, a gender and a birthday that are invalid were accepted")
    if isinstance(answer, Refused):
        words = "with words" if answer.message.strip() else "without words"
        return Habit(
            name, f"{answer.status} {words}", f"an invalid create is refused with status {answer.status}, {words}"
        )
    return Habit(name, None, "an invalid create had no usable answer", "not seen")


async def _measure_base_names(client: Client, created: Created) -> Habit:
    name, base_id, base_name = "base_names", created.read("base_id"), created.read("base_name")
    if not isinstance(base_name, str) or base_name.swapcase() == base_name:
        return Habit(name, None, "the base's name has no letters to write otherwise", "not seen")
    email = f"{_MARK}-{token_hex(6)}@example.com"
    answer = await _create(client, base_name=base_name.swapcase(), email=email)
    if not isinstance(answer, Created):
        return Habit(
            name, None, "a create by the base's name in other capitals was not answered as created", "not seen"
        )
    if answer.read("base_id") == base_id:
        return Habit(name, "folded", "a base is found by its name in other capitals")
    return Habit(name, "exact", "a name in other capitals makes another base: remove the one that this has made")


def _read_ids(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [row["Id"] for row in rows if isinstance(row.get("Id"), int)]


def _is_plain(email: object) -> bool:
    """Return whether an address is one that every working filter finds, and long enough to be cut."""
    return isinstance(email, str) and email.isascii() and email == email.lower() and "+" not in email and len(email) > 5
