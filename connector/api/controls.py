"""How the service's filters behave, tried with somebody who is on the list and with somebody made up (rule 6).

A filtered reading is compared here row by row, so a filter that lists too many does no harm; one that does not find who
is there leaves people out unseen, and only such a trial tells.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

from connector.api.rows import WIRE
from connector.errors import ConfigurationError
from connector.fields.spellings import classify
from connector.pages import build_match
from connector.protocol import Listed, ListQuery
from connector.protocol.wire import read_field

Ask = Callable[[ListQuery], Awaitable[Listed | None]]
"""One page, or None where the service gives none."""
Draw = Callable[[int], bytes]

_WITNESSES = 2  # the second should the first have vanished meanwhile
_SAMPLE = 200  # people of the list's head, among whom a witness for every filter is looked for
_KEYS = ("email", "client_user_id")


class Control(StrEnum):
    """What became of the trial of one filter."""

    EXACT = "exact"  # finds whom it should, and lists nobody else in the trial
    PARTIAL = "partial"  # finds whom it should, and others beside them
    IGNORED = "ignored"  # lists whom it was not asked for
    BROKEN = "broken"  # does not find somebody who is on the list, by their own value
    UNTOLD = "untold"  # there was nobody to try it with, or no answer


async def check_filters(ask: Ask, filters: Mapping[str, object], draw: Draw) -> dict[str, Control]:
    """Try each of these filters by itself (api.md 4.3): one request for all, and at most three for each."""
    sample = await ask(ListQuery(limit=_SAMPLE))
    people = sample.subscribers if sample is not None else []
    return {name: await _check_filter(ask, name, asked, people, draw) for name, asked in filters.items()}


async def _check_filter(ask: Ask, name: str, asked: object, people: Sequence[dict[str, Any]], draw: Draw) -> Control:
    nobody = _make_up(name, draw)
    if nobody is not None:
        shown = await ask(nobody[1])
        if shown is None:
            return Control.UNTOLD
        if not _are_all(name, nobody[0], shown):
            return Control.IGNORED
    verdict = Control.UNTOLD
    for person, value, query in _choose_witnesses(name, asked, people):
        shown = await ask(query)
        verdict = Control.UNTOLD if shown is None else _decide(name, value, person, shown)
        if verdict is not Control.BROKEN:
            return verdict
    return verdict


def _decide(name: str, value: object, person: dict[str, Any], shown: Listed) -> Control:
    """What the answer to a witness's own value says."""
    is_found = any(row.get("Id") == person["Id"] for row in shown.subscribers)
    is_whole = shown.total_count is not None and shown.total_count <= len(shown.subscribers)
    if not is_found and is_whole:
        return Control.BROKEN
    if _are_all(name, value, shown):  # where more match than one answer holds, that they match must do
        return Control.EXACT
    # A filter of two or three values that lists another than asked for is none.
    return Control.PARTIAL if is_found and name not in ("is_active", "gender") else Control.IGNORED


def _are_all(name: str, value: object, shown: Listed) -> bool:
    match = build_match({name: value})
    return match is None or bool(match(partial(WIRE.read_values, shown.subscribers)).all())


def _make_up(name: str, draw: Draw) -> tuple[object, ListQuery] | None:
    """A value that nobody has, and the question for it; None where all values are taken."""
    if name in ("is_active", "gender"):
        return None
    drawn = draw(16).hex()
    value: Any = f"nobody-{drawn}"
    if name == "email":
        value = f"{drawn}@{drawn}.invalid"  # RFC 2606
    elif name in ("id", "base_id"):
        value = (1 << 30) + int(drawn[:7], 16)  # below 2**31, the most that every service can read
    return value, ListQuery(limit=1, **{name: value})


def _choose_witnesses(
    name: str, asked: object, people: Sequence[dict[str, Any]]
) -> list[tuple[dict[str, Any], object, ListQuery]]:
    """Those with a value of the field, best one that is spelt in the manner of the one asked for."""
    known = [(person, value) for person in people if _is_told(name, value := _read_value(person, name))]
    if name in _KEYS:
        wanted = classify(name, str(asked))
        known.sort(key=lambda each: classify(name, str(each[1])) != wanted)
    return [(person, value, query) for person, value in known[:_WITNESSES] if (query := _build_query(name, value))]


def _read_value(person: dict[str, Any], name: str) -> object:
    value = read_field(person, name)
    return "" if name == "gender" and value is None else value


def _is_told(name: str, value: object) -> bool:
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
