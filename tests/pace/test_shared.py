"""Parts of a joint run under one limit, on virtual time: in sum, by share, and how much is refused."""

import heapq
import os
import random
from collections import Counter
from dataclasses import dataclass
from itertools import count

import pytest

from connector.ledger.store import LEASE_S
from connector.pace.rate import Found
from connector.pace.shared import BEAT_S, Beat, SharedRate
from connector.sandbox.faults import build_limiter

_JITTER = 0.05


@dataclass
class _Played:
    served: dict[int, int]
    shares: dict[int, float]
    refused: int


def play(
    parts: int,
    rate: float,
    seconds: float,
    *,
    kind: str = "bucket",
    retry_after_s: float | None = None,
    rtt_s: float = 0.1,
    count_from_s: float = 0.0,
    begins: dict[int, float] | None = None,
    dies: dict[int, float] | None = None,
    seed: int = 1,
) -> _Played:
    """Let so many parts send for so long; what was served to each, what its share of all was worth, and how many were
    refused in sum, from `count_from_s` on.

    `begins`: when a part joins, if not at once. `dies`: when it stops, though what it said last counts until its lease
    has expired. The share of a part is, of each second in which it was there, what all were served ÷ those there.
    """
    begins, dies = begins or {}, dies or {}
    rng = random.Random(seed)
    limiter = build_limiter(kind, rate, 0, 1.0)
    rates = {number: SharedRate(number, parts) for number in range(1, parts + 1)}
    said: dict[int, tuple[Beat, float]] = {}
    played = _Played(dict.fromkeys(rates, 0), dict.fromkeys(rates, 0.0), 0)
    by_second: Counter[int] = Counter()
    events: list[tuple[float, int, str, int, float]] = []
    order = count()

    def add(at: float, what: str, number: int, sent_at: float = 0.0) -> None:
        heapq.heappush(events, (at, next(order), what, number, sent_at))

    for number in rates:
        begins_s = begins.get(number, 0.0)
        add(begins_s + rng.uniform(0, 3), "send", number)
        add(begins_s + rng.uniform(0, BEAT_S), "beat", number)
    while events:
        now, _, what, number, sent_at = heapq.heappop(events)
        if now > seconds:
            break
        if now >= dies.get(number, seconds):
            continue
        each = rates[number]
        if what == "send":
            wait_s = each.admit(now)
            if wait_s <= 0:
                add(now + rtt_s / 2, "arrive", number, now)
            add(now + max(wait_s, 1e-9), "send", number)
        elif what == "arrive":
            back_s = rtt_s / 2 * rng.uniform(1 - _JITTER, 1 + _JITTER)
            add(now + back_s, "served" if limiter.admit(now) <= 0 else "refused", number, sent_at)
        elif what == "served":
            each.note_served(sent_at, now)
            played.served[number] += now >= count_from_s
            by_second[int(now)] += now >= count_from_s
        elif what == "refused":
            each.note_refused(sent_at, now, retry_after_s)
            played.refused += now >= count_from_s
        else:
            said[number] = (each.say(now), now)
            others = {other: (beat, now - at) for other, (beat, at) in said.items() if other != number}
            each.hear({other: (beat, age_s) for other, (beat, age_s) in others.items() if age_s < LEASE_S}, now)
            add(now + BEAT_S, "beat", number)
    for second, served in by_second.items():
        there = [number for number in rates if begins.get(number, 0.0) <= second < dies.get(number, seconds)]
        for number in there:
            played.shares[number] += served / len(there)
    return played


MANY = 50
IS_CAMPAIGN = int(os.environ.get("CONNECTOR_TEST_PACE_SEEDS", "4")) > 4

CASES = [
    (MANY, 1000.0, "bucket", 1.0),
    (3, 600.0, "bucket", None),
    (3, 60.0, "bucket", 5.0),
    (3, 600.0, "fixed_window", None),
    (3, 600.0, "sliding_window", 1.0),
    (3, 600.0, "bucket", 1.0),
    (MANY, 1000.0, "bucket", None),
    (MANY, 2000.0, "fixed_window", 1.0),
]
CHANGING = [(600.0, "bucket", 1.0), (1000.0, "bucket", None), (600.0, "fixed_window", 1.0)]


def assert_even(played: _Played, allowed: float) -> None:
    served = sum(played.served.values())
    assert served >= 0.9 * allowed
    assert played.refused <= 0.03 * (served + played.refused)
    assert all(played.shares[number] / 2 <= each <= 2 * played.shares[number] for number, each in played.served.items())


@pytest.mark.parametrize(("parts", "rate", "kind", "retry_after_s"), CASES if IS_CAMPAIGN else CASES[:5])
def test_parts_use_what_is_allowed_in_sum_and_share_it_evenly(
    parts: int, rate: float, kind: str, retry_after_s: float | None
) -> None:
    from_s, to_s = 60.0, 240.0
    played = play(parts, rate, to_s, kind=kind, retry_after_s=retry_after_s, count_from_s=from_s)
    assert_even(played, rate * (to_s - from_s))


@pytest.mark.parametrize(("rate", "kind", "retry_after_s"), CHANGING if IS_CAMPAIGN else CHANGING[:1])
def test_parts_that_join_and_die_leave_the_sum_and_the_shares_as_they_were(
    rate: float, kind: str, retry_after_s: float | None
) -> None:
    """A fifth joins while the others send; later the part that leads dies, and every third of the others with it."""
    from_s, to_s = 60.0, 300.0
    begins = dict.fromkeys(range(MANY - MANY // 5 + 1, MANY + 1), 120.0)
    dies = dict.fromkeys([1, *range(3, MANY + 1, 3)], 210.0)
    played = play(
        MANY, rate, to_s, kind=kind, retry_after_s=retry_after_s, count_from_s=from_s, begins=begins, dies=dies
    )
    assert_even(played, rate * (to_s - from_s))


def test_the_ceiling_of_all_holds_when_a_part_takes_the_lead_before_others_begin() -> None:
    parts, ceiling, seconds = 4, 40.0, 60
    each, found = SharedRate(2, parts, ceiling), Found(100, 110, 10, 0, 0)
    beat = Beat(ceiling / parts, 0, found, is_sending=True, leader=1, ramp=0, refused=0, pause_s=0)

    each.admit(0.0)
    each.hear({1: (beat, 0.0)}, 0.0)
    each.hear({}, 0.5)  # the first part has ended
    now, left = 0.5, 0
    while now < seconds:
        each.hear(dict.fromkeys((3, 4), (beat, 0.0)), now)
        while (wait_s := each.admit(now)) <= 0:
            left += 1
            each.note_served(now, now + 0.01)
        now += wait_s

    assert left <= ceiling / parts * seconds + 1
