"""How late the service shows people, told by the witnesses that a look shows and those that it does not (architecture
4.5 (c)).

A witness speaks for what a look saw after it: so it is looked up before anybody else or, by a sweep, must be in two.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from connector.load.looks.controls import Checked
from connector.load.looks.lookups import look_up, look_up_together
from connector.load.looks.witness import Witness
from connector.load.session import Session
from connector.pages import Certificate, Reason
from connector.subscribers import build_spellings, classify

_AT_A_TIME = 4
_TIMES = 2  # a thousand witnesses are narrowed down to forty by eight look-ups: near enough, and the next look is later

_OF_ONE_MOMENT = frozenset({Reason.ONE_ANSWER, Reason.TWO_SWEEPS})


@dataclass(frozen=True, slots=True)
class Visibility:
    """When the latest witness shown was confirmed (monotonic, -inf: none), and how late people show at least."""

    latest_seen_at: float = float("-inf")
    lag_s: float = 0.0


def read_visibility(
    witnesses: Collection[Witness],
    seen: frozenset[int],
    seen_before: frozenset[int],
    certificate: Certificate,
    started_at: float,
) -> Visibility:
    """What a sweep says that showed these `seen`, the one before it having shown `seen_before`.

    Pages are read one after another: a sweep in id order may show a witness on a late page, and not somebody older
    whose page was read just before the service began to show both (the ranks tell of that, unless somebody vanished
    there). Not so one whom the sweep before had shown already.
    """
    is_sure = certificate.reason in _OF_ONE_MOMENT or not certificate.is_complete
    counted = seen if is_sure else seen & seen_before
    latest = max((each.at for each in witnesses if each.subscriber_id in counted), default=float("-inf"))
    missed = [each for each in witnesses if each.subscriber_id not in seen] if certificate.is_complete else []
    return Visibility(latest, _measure_lag(missed, started_at))


async def find_visibility(session: Session, checked: Checked, started_at: float, fields: Collection[str]) -> Visibility:
    """The same by the filters of these fields, each of which must show a witness of its own: the latest of all.

    Raises ListFailed.
    """
    found = [await _find_by_filter(session, checked, started_at, field) for field in fields]
    return Visibility(min(each.latest_seen_at for each in found), max(each.lag_s for each in found))


async def _find_by_filter(session: Session, checked: Checked, started_at: float, field: str) -> Visibility:
    """Look for the latest witness and, while it does not show, for some before it.

    One who does not show is a sign of lag only if the filter has passed for their class.
    """
    witnesses = [each for each in session.witnesses if each.at < started_at and each.field == field]
    if not witnesses:
        return Visibility()
    newest = witnesses[-1]
    if newest in checked.shown or await _is_shown(session, newest):
        return Visibility(newest.at)
    told = [each for each in witnesses if classify(each.field, each.value) in checked.passed]
    shown, hidden = await _narrow_down(session, told, newest)
    latest = max((each.at for each in shown), default=float("-inf"))
    return Visibility(latest, _measure_lag(hidden, started_at))


def _measure_lag(missed: Collection[Witness], started_at: float) -> float:
    """Somebody who does not show is late by the time since their answer, at least."""
    return max((started_at - each.at for each in missed if each.at < started_at), default=0.0)


async def _narrow_down(
    session: Session, witnesses: Sequence[Witness], hidden_one: Witness
) -> tuple[list[Witness], list[Witness]]:
    """Look up a few witnesses (in order of time), nearer each time to where they cease to show: shown, hidden."""
    shown, hidden = list[Witness](), [each for each in witnesses[-1:] if each is hidden_one]
    low, high = -1, len(witnesses) - len(hidden)
    for _ in range(_TIMES):
        places = _spread(low + 1, high)
        looks = [partial(_is_shown, session, witnesses[place]) for place in places]
        for place, is_shown in zip(places, await look_up_together(session, looks), strict=True):
            (shown if is_shown else hidden).append(witnesses[place])
            low = max(low, place) if is_shown else low
        high = min((place for place in places if place > low), default=high)
    return shown, hidden


def _spread(start: int, stop: int) -> list[int]:
    """A few places from `start` to before `stop`, evenly, both ends included."""
    number = stop - start
    if number <= _AT_A_TIME:
        return list(range(start, stop))
    return [start + place * (number - 1) // (_AT_A_TIME - 1) for place in range(_AT_A_TIME)]


async def _is_shown(session: Session, witness: Witness) -> bool:
    """By any spelling of what was sent, as whoever is looked for."""
    for text in build_spellings(witness.field, witness.value):
        if (await look_up(session, witness.field, text)).holds(witness.subscriber_id):
            return True
    return False
