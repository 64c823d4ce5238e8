"""Tries a filter of the list: with a made-up value, and with listed subscribers whose value is of the class asked for.

The connector compares each row of a filtered reading, so a filter that lists too many subscribers does no harm. A
filter that does not find a subscriber leaves subscribers out unnoticed, and only a trial shows that (rule 6). The
interface does not say how filters combine (service-api.md 4.3). So a reading uses at most one filter, and only a
filter that has found a subscriber whose value is spelt like the requested one. Look-ups, exports and the evidence for
a certificate all use these trials.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from connector.errors import ConfigurationError
from connector.fields import normalise_email
from connector.paging.overlap import Mask
from connector.service.wire import ListPage, ListQuery, read_field
from connector.subscribers.identity import describe_spelling, has_spellings_by_case_alone

Ask = Callable[[ListQuery], Awaitable[ListPage | None]]
"""Returns one page, or None if the service returns no page."""
Draw = Callable[[int], bytes]
ReadValues = Callable[[str], Sequence[Any]]
"""Returns the values of a field by its name, one for each row of a page: as received, None if absent or null."""

Match = Callable[[ReadValues], Mask]
Sample = tuple[int, object]
"""A listed subscriber: the Id, and the value of the filter's field."""

_SENTINELS = 2  # subscribers that a filter is tried with: the first may have vanished meanwhile
_SAMPLE = 200  # subscribers at the head of the list, among which the trials choose
_FEW_VALUES = ("is_active", "gender")  # fields whose every value is a class
_NARROWEST_FIRST = ("id", "client_user_id", "email", "last_name", "first_name", "base_id", "gender", "is_active")


class Control(StrEnum):
    """The result of the trial of one filter."""

    EXACT = "exact"  # lists the subscriber of the trial, and only subscribers with the requested value
    PARTIAL = "partial"  # lists the subscriber of the trial, and others with other values
    IGNORED = "ignored"  # lists subscribers that do not have the requested value
    BY_CASE = "by_case"  # finds an address only in the same case, so it leaves out other spellings
    BROKEN = "broken"  # does not find a listed subscriber by its own value
    INCONCLUSIVE = "untold"  # no listed subscriber of that class to try it with, or no answer


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial with listed subscribers. `is_proof`: the answer had the subscriber, and all that
    match, so an answer without a subscriber can prove absence."""

    control: Control = Control.INCONCLUSIVE
    is_proof: bool = False


async def try_made_up(ask: Ask, name: str, draw: Draw) -> Control:
    """Ask for a value that nobody has. Return EXACT if the answer is empty, or if the field has no such value."""
    made_up = make_up_value(name, draw)
    if made_up is None:
        return Control.EXACT
    page = await ask(ListQuery(limit=1, **{name: made_up}))
    if page is None:
        return Control.INCONCLUSIVE
    return Control.IGNORED if page.subscribers else Control.EXACT


async def try_samples(ask: Ask, name: str, samples: Iterable[Sample]) -> Trial:
    """Ask for the values of these subscribers, one after another, until the filter finds a subscriber. The subscribers
    before may have vanished."""
    trial = Trial()
    for sample in samples:
        trial = await try_sample(ask, name, sample)
        if trial.control is not Control.BROKEN:
            return trial
    return trial


async def try_sample(ask: Ask, name: str, sample: Sample) -> Trial:
    """Ask for the value of this subscriber, and return the result."""
    subscriber_id, value = sample
    query = _build_query(name, value)
    page = await ask(query) if query is not None else None
    if page is None:
        return Trial()
    is_found = any(row.get("Id") == subscriber_id for row in page.subscribers)
    return Trial(_decide(name, value, page, is_found=is_found), is_found and is_whole(page))


def _decide(name: str, value: object, page: ListPage, *, is_found: bool) -> Control:
    """Return the result of asking for a listed subscriber's own value."""
    holds_all = page.total_count is not None and page.total_count <= len(page.subscribers)
    if not is_found and (holds_all or not page.subscribers):
        return Control.BROKEN
    if are_as_asked({name: value}, page.subscribers):  # the page may be full before the subscriber of the trial
        return Control.EXACT
    # A filter of two or three values that lists another value than asked for does not filter.
    return Control.PARTIAL if is_found and name not in _FEW_VALUES else Control.IGNORED


def is_whole(page: ListPage) -> bool:
    """Return whether the answer has all matching subscribers: TotalCount rows, each once, and fewer than its limit."""
    if page.total_count is None or page.limit is None:
        return False
    distinct = len({row.get("Id") for row in page.subscribers})
    return distinct == len(page.subscribers) == page.total_count < page.limit


def change_case(text: str) -> str:
    """Return the address in lower case, or in upper case if it is in lower case already."""
    lower = text.lower()
    return lower if lower != text else text.upper()


# Filters of a reading


@dataclass(frozen=True, slots=True)
class FilterTrials:
    """The result of each filter's trial, the filter to send (None: no filter), and the `expected` ids: subscribers at
    the head of the list that match all filters. The reading must show those that do not vanish."""

    controls: dict[str, Control]
    sent: str | None
    expected: frozenset[int]


async def try_filters(ask: Ask, filters: Mapping[str, object], draw: Draw) -> FilterTrials:
    """Try each of these filters by itself (service-api.md 4.3): one request for all, and at most five for each."""
    listed = await _read_head(ask)
    if not listed and "base_id" in filters:  # the list may hide a base from a request without its Id
        listed = await _read_head(ask, filters["base_id"])
    controls = {name: await _try_filter(ask, name, asked, listed, draw) for name, asked in filters.items()}
    works = [name for name, control in controls.items() if control in (Control.EXACT, Control.PARTIAL)]
    return FilterTrials(controls, min(works, key=_NARROWEST_FIRST.index, default=None), _find_matching(filters, listed))


async def find_missed(ask: Ask, filters: Mapping[str, object], missed: frozenset[int]) -> frozenset[int]:
    """Return which of the ids that a reading missed are on the list all the same, as far as its head shows."""
    return missed & _find_matching(filters, await _read_head(ask)) if missed else missed


async def _read_head(ask: Ask, base_id: Any = None) -> Sequence[dict[str, Any]]:
    sample = await ask(ListQuery(limit=_SAMPLE, base_id=base_id))
    return sample.subscribers if sample is not None else []


def _find_matching(filters: Mapping[str, object], listed: Sequence[dict[str, Any]]) -> frozenset[int]:
    chosen = _match(filters, listed).tolist()
    return frozenset(
        subscriber["Id"]
        for subscriber, is_chosen in zip(listed, chosen, strict=True)
        if is_chosen and type(subscriber.get("Id")) is int
    )


async def _try_filter(ask: Ask, name: str, asked: object, listed: Sequence[dict[str, Any]], draw: Draw) -> Control:
    made_up = await try_made_up(ask, name, draw)
    if made_up is not Control.EXACT:
        return made_up
    control = Control.INCONCLUSIVE
    for subscriber, value in _choose_samples(name, asked, listed):
        control = await _try_spellings(ask, name, (subscriber["Id"], value))
        if control is not Control.BROKEN:
            return control
    return control


async def _try_spellings(ask: Ask, name: str, sample: Sample) -> Control:
    """Ask for an address in other capitals first: an address is one however it is spelt (architecture 3)."""
    if name != "email":
        return (await try_sample(ask, name, sample)).control
    subscriber_id, value = sample
    control = (await try_sample(ask, name, (subscriber_id, change_case(str(value))))).control
    if control is not Control.BROKEN:
        return control
    control = (await try_sample(ask, name, sample)).control
    return Control.BY_CASE if control in (Control.EXACT, Control.PARTIAL) else control


def are_as_asked(asked: Mapping[str, object], rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether all wire objects have the requested values, by field name."""
    return bool(_match(asked, rows).all())


def is_missing_false(inactive_rows: Sequence[dict[str, Any]], active_rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether a missing IsActive means false, which is the documented default: all rows of a request for
    IsActive=0 have false or no value, and all rows of a request for IsActive=1 have true."""
    is_filtered = bool(inactive_rows) and all(row.get("IsActive") in (None, False) for row in inactive_rows)
    return is_filtered and all(row.get("IsActive") is True for row in active_rows)


def make_up_value(name: str, draw: Draw) -> Any:
    """Return a value that no subscriber has, as a negative control, or None if the field has no such value."""
    if name in _FEW_VALUES:
        return None
    random_hex = draw(16).hex()
    if name in ("id", "base_id"):
        return (1 << 30) + int(random_hex[:7], 16)  # below 2**31, so that every service can read the number
    return f"{random_hex}@{random_hex}.invalid" if name == "email" else f"unknown-{random_hex}"  # RFC 2606


def _match(asked: Mapping[str, object], rows: Sequence[dict[str, Any]]) -> Mask:
    match = build_match(asked)

    def read_values(name: str) -> Sequence[Any]:
        return [read_field(row, name) for row in rows]

    return np.ones(len(rows), dtype=np.bool_) if match is None else match(read_values)


def _choose_samples(
    name: str, asked: object, listed: Sequence[dict[str, Any]]
) -> Sequence[tuple[dict[str, Any], object]]:
    """Return listed subscribers whose value is of the class of `asked`, because a trial proves nothing for other
    classes. Subscribers with the same value come first."""
    wanted_class = _classify(name, asked)
    if wanted_class is None:
        return []
    usable = ((subscriber, value) for subscriber in listed if _is_usable(name, value := _read_value(subscriber, name)))
    of_class = [sample for sample in usable if _classify(name, sample[1]) == wanted_class]
    return sorted(of_class, key=lambda sample: sample[1] != asked)[:_SENTINELS]


def _classify(name: str, value: object) -> object:
    """Return the class of a value: a filter is assumed to treat the values of a class alike. None: no trial can show
    how the filter treats the value."""
    if name in _FEW_VALUES:
        return (value,)
    if not isinstance(value, str):
        return (type(value),)
    if name != "email":
        return describe_spelling(value)
    # A filter that finds an address in both cases finds it in any case, unless a letter has more than two forms.
    return describe_spelling(value.lower()) if has_spellings_by_case_alone("email", value) else None


def _read_value(subscriber: dict[str, Any], name: str) -> object:
    value = read_field(subscriber, name)
    return "" if name == "gender" and value is None else value


def _is_usable(name: str, value: object) -> bool:
    if name == "gender":
        return value in ("male", "female", "")
    if name == "is_active":
        return type(value) is bool
    return type(value) is int if name in ("id", "base_id") else isinstance(value, str) and bool(value.strip())


def _build_query(name: str, value: Any) -> ListQuery | None:
    """Return the query, or None for a value that cannot be sent (a lone surrogate)."""
    try:
        return ListQuery(**{name: value})
    except ConfigurationError:
        return None


def build_match(asked: Mapping[str, object]) -> Match | None:
    """Return a function that tests the rows of a page for the values `asked`, by field name. None: no value is asked.

    Emails are compared as identities. None (null or absent) equals the service's default: gender "", is_active False.
    All other values are compared exactly. An email with blanks around it equals only itself, because no trial shows
    whether the service's filter ignores the blanks.
    """
    wanted = {name: _plain(name, value) for name, value in asked.items()}
    if not wanted:
        return None

    def match(read: ReadValues) -> Mask:
        tests = [[_plain(name, value) == plain for value in read(name)] for name, plain in wanted.items()]
        matches: Mask = np.logical_and.reduce(np.array(tests, dtype=np.bool_))
        return matches

    return match


def _plain(name: str, value: object) -> object:
    """Return the form in which equal values of the field are equal. It includes the type, because True is not 1."""
    if value is None:  # the service's defaults (service-api.md 2.1)
        value = {"gender": "", "is_active": False}.get(name)
    if isinstance(value, str):
        return normalise_email(value) if name == "email" and value == value.strip() else value
    return (type(value), value)
