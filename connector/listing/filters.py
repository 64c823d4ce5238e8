"""Chooses the filter to ask the service by, after a trial of each with listed subscribers and a made-up one.

A filtered reading is compared here row by row, so a filter that lists too many does no harm; one that does not find who
is there leaves subscribers out unseen, and only such a trial shows that (rule 6). How filters combine is not shown
(service-api.md 4.3): one at most is asked by, and only one that found a subscriber that is spelt like the value
asked for.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
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
"""One page, or None where the service gives none."""
Draw = Callable[[int], bytes]
ReadValues = Callable[[str], Sequence[Any]]
"""Gives the values of a field by its name, one for each row of a page: as they came, None where absent or null."""

Match = Callable[[ReadValues], Mask]

_SENTINELS = 2  # the second should the first have vanished meanwhile
_SAMPLE = 200  # subscribers of the list's head: the trial of each filter takes one of them
_FEW_VALUES = ("is_active", "gender")  # fields of which each value is a class of its own
_NARROWEST_FIRST = ("id", "client_user_id", "email", "last_name", "first_name", "base_id", "gender", "is_active")


class Control(StrEnum):
    """What became of the trial of one filter."""

    EXACT = "exact"  # finds what it should, and lists nothing else in the trial
    PARTIAL = "partial"  # finds what it should, and others beside it
    IGNORED = "ignored"  # lists subscribers that it was not asked for
    BY_CASE = "by_case"  # finds an address only as it is spelt: it would leave out other spellings
    BROKEN = "broken"  # does not find a listed subscriber by its own value
    INCONCLUSIVE = "untold"  # no listed subscriber of that class to try it with, or no answer


@dataclass(frozen=True, slots=True)
class Trial:
    """How each filter behaved, the one to ask the service by (None: by none), and the ids of subscribers of the list's
    head that match all of them: those that stay must be in the reading."""

    controls: dict[str, Control]
    sent: str | None
    expected: frozenset[int]


async def try_filters(ask: Ask, filters: Mapping[str, object], draw: Draw) -> Trial:
    """Try each of these filters by itself (service-api.md 4.3): one request for all, and at most five for each."""
    listed = await _read_head(ask)
    controls = {name: await _try_filter(ask, name, asked, listed, draw) for name, asked in filters.items()}
    works = [name for name, control in controls.items() if control in (Control.EXACT, Control.PARTIAL)]
    return Trial(controls, min(works, key=_NARROWEST_FIRST.index, default=None), _find_matching(filters, listed))


async def find_missed(ask: Ask, filters: Mapping[str, object], missed: frozenset[int]) -> frozenset[int]:
    """Return which of the ids that a reading missed are on the list all the same, as far as its head shows."""
    return missed & _find_matching(filters, await _read_head(ask)) if missed else missed


async def _read_head(ask: Ask) -> Sequence[dict[str, Any]]:
    sample = await ask(ListQuery(limit=_SAMPLE))
    return sample.subscribers if sample is not None else []


def _find_matching(filters: Mapping[str, object], listed: Sequence[dict[str, Any]]) -> frozenset[int]:
    chosen = _match(filters, listed).tolist()
    return frozenset(
        each["Id"] for each, is_chosen in zip(listed, chosen, strict=True) if is_chosen and type(each.get("Id")) is int
    )


async def _try_filter(ask: Ask, name: str, asked: object, listed: Sequence[dict[str, Any]], draw: Draw) -> Control:
    nowhere = make_up_value(name, draw)
    if nowhere is not None:
        shown = await ask(ListQuery(limit=1, **{name: nowhere}))
        if shown is None:
            return Control.INCONCLUSIVE
        if not are_as_asked({name: nowhere}, shown.subscribers):
            return Control.IGNORED
    verdict = Control.INCONCLUSIVE
    for subscriber, value in _choose_samples(name, asked, listed):
        verdict = await _try_sentinel(ask, name, subscriber, value)
        if verdict is not Control.BROKEN:
            return verdict
    return verdict


async def _try_sentinel(ask: Ask, name: str, subscriber: dict[str, Any], value: object) -> Control:
    """An address is one however it is spelt (architecture 3): it is asked for with capitals and small letters
    exchanged."""
    if name == "email":
        otherwise = await _try_value(ask, name, subscriber, str(value).swapcase())
        if otherwise is not Control.BROKEN:
            return otherwise
    verdict = await _try_value(ask, name, subscriber, value)
    return Control.BY_CASE if name == "email" and verdict in (Control.EXACT, Control.PARTIAL) else verdict


async def _try_value(ask: Ask, name: str, subscriber: dict[str, Any], value: object) -> Control:
    query = _build_query(name, value)
    shown = await ask(query) if query is not None else None
    return Control.INCONCLUSIVE if shown is None else _decide(name, value, subscriber, shown)


def _decide(name: str, value: object, subscriber: dict[str, Any], shown: ListPage) -> Control:
    """What the answer to a sentinel's own value says."""
    is_found = any(row.get("Id") == subscriber["Id"] for row in shown.subscribers)
    is_whole = shown.total_count is not None and shown.total_count <= len(shown.subscribers)
    if not is_found and is_whole:
        return Control.BROKEN
    if are_as_asked({name: value}, shown.subscribers):  # where more match than an answer holds, that they match must do
        return Control.EXACT
    # A filter of two or three values that lists another value than asked for does not filter.
    return Control.PARTIAL if is_found and name not in _FEW_VALUES else Control.IGNORED


def are_as_asked(asked: Mapping[str, object], rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether every one of these wire objects is as asked, field name to value."""
    return bool(_match(asked, rows).all())


def make_up_value(name: str, draw: Draw) -> Any:
    """Return a value of a filter that no subscriber has: its negative control; None where all values are taken."""
    if name in _FEW_VALUES:
        return None
    drawn = draw(16).hex()
    if name in ("id", "base_id"):
        return (1 << 30) + int(drawn[:7], 16)  # below 2**31, the most that every service can read
    return f"{drawn}@{drawn}.invalid" if name == "email" else f"unknown-{drawn}"  # RFC 2606


def _match(asked: Mapping[str, object], rows: Sequence[dict[str, Any]]) -> Mask:
    match = build_match(asked)

    def read_values(name: str) -> Sequence[Any]:
        return [read_field(row, name) for row in rows]

    return np.ones(len(rows), dtype=np.bool_) if match is None else match(read_values)


def _choose_samples(
    name: str, asked: object, listed: Sequence[dict[str, Any]]
) -> Sequence[tuple[dict[str, Any], object]]:
    """Those whose value is of the class of the one asked for: what is known of one class tells nothing of another."""
    wanted = _classify(name, asked)
    if wanted is None:
        return []
    known = ((subscriber, value) for subscriber in listed if _is_usable(name, value := _read_value(subscriber, name)))
    of_class = [each for each in known if _classify(name, each[1]) == wanted]
    return sorted(of_class, key=lambda each: each[1] != asked)[:_SENTINELS]  # best of all the very value


def _classify(name: str, value: object) -> object:
    """The values of a field that a filter is taken to treat alike; None for one that no trial can speak for."""
    if name in _FEW_VALUES:
        return (value,)
    if not isinstance(value, str):
        return (type(value),)
    if name != "email":
        return describe_spelling(value)
    # Found in both cases, an address is found in any; one whose letters have several forms is not.
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
    """None for a value that cannot be asked for (a broken character)."""
    try:
        return ListQuery(**{name: value})
    except ConfigurationError:
        return None


def build_match(asked: Mapping[str, object]) -> Match | None:
    """Return a test of the rows of a page for `asked`, field name to value; None where nothing is asked.

    Emails are compared as identities, the gender "" as none at all (null or absent), everything else exactly. An email
    with blanks around it equals only itself: whether the service's filter finds it by the other, no trial can tell.
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
    """The form in which two values of the field are equal; the type is part of it, since True is not 1."""
    if name == "gender" and value is None:
        value = ""
    if isinstance(value, str):
        return normalise_email(value) if name == "email" and value == value.strip() else value
    return (type(value), value)
