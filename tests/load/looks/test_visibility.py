"""The sentinels of a look: what they prove about the lag of the list."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from connector.listing.access import Sentinel, Visibility, read_visibility
from connector.listing.lookup import FilterCheck, find_visibility
from connector.paging.certificate import Certificate, Order, Reason, Verdict
from connector.subscribers.identity import classify
from tests.load.looks.fake_list import FakeList
from tests.load.sessions import look_at_fake, sentinel

NOBODY = float("-inf")
PLAIN = frozenset({classify("email", "a@x.org")})
ALL = FilterCheck(PLAIN)
OLD, NEW = sentinel(100.0, 1, "old@x.org"), sentinel(200.0, 2, "new@x.org")


def certificate(reason: Reason) -> Certificate:
    is_complete = reason in (Reason.ONE_ANSWER, Reason.ID_ORDER, Reason.TWO_SWEEPS)
    verdict, at = Verdict.COMPLETE if is_complete else Verdict.INCOMPLETE, datetime(2026, 1, 1, tzinfo=UTC)
    return Certificate(verdict, reason, Order.ID, 1, 1, 0, 0, 0, 0, 0, {}, at, at)


def test_a_sweep_counts_sentinels_of_one_moment_or_of_the_sweep_before() -> None:
    cases: list[tuple[Reason, set[int], set[int], float, float]] = [
        (Reason.ONE_ANSWER, {1, 2}, set(), 200.0, 0.0),
        (Reason.TWO_SWEEPS, {1, 2}, set(), 200.0, 0.0),
        (Reason.TWO_SWEEPS, {1}, set(), 100.0, 100.0),
        (Reason.TWO_SWEEPS, {2}, set(), 200.0, 200.0),
        (Reason.TWO_SWEEPS, set(), set(), NOBODY, 200.0),
        (Reason.ID_ORDER, {1, 2}, set(), NOBODY, 0.0),  # both may have begun to show in the middle of it
        (Reason.ID_ORDER, {1, 2}, {1}, 100.0, 0.0),
        (Reason.ID_ORDER, {1, 2}, {1, 2}, 200.0, 0.0),
        (Reason.ID_ORDER, {1}, {1, 2}, 100.0, 100.0),  # whoever does not show now does not count
        (Reason.UNSTABLE_ORDER, {1}, set(), 100.0, 0.0),  # rows may be skipped there: no sign of lag
    ]
    for reason, seen, seen_before, latest, lag in cases:
        visibility = read_visibility([OLD, NEW], frozenset(seen), frozenset(seen_before), certificate(reason), 300.0)
        assert (visibility.latest_seen_at, visibility.lag_s) == (latest, lag)


def test_a_subscriber_confirmed_during_a_sweep_is_no_sign_of_lag() -> None:
    visibility = read_visibility([NEW], frozenset(), frozenset(), certificate(Reason.ONE_ANSWER), 150.0)
    assert (visibility.latest_seen_at, visibility.lag_s) == (NOBODY, 0.0)


def find(fake: FakeList, folder: Path, *sentinels: Sentinel, checked: FilterCheck | None = None) -> Visibility:
    checked = checked or FilterCheck(PLAIN)
    return look_at_fake(
        fake, folder, lambda session: find_visibility(session.access, checked, 1000.0, ["email"]), sentinels=sentinels
    )


def test_a_field_needs_a_sentinel_of_its_own(tmp_path: Path) -> None:
    """The service may show people by their email long before it finds them by their client_user_id."""
    fake, seen = FakeList(), sentinel(900.0, 1, "a@x.org")
    fake.add(1, "a@x.org")

    def find_by(fields: list[str], name: str) -> Visibility:
        look = lambda session: find_visibility(session.access, FilterCheck(PLAIN), 1000.0, fields)  # noqa: E731
        return look_at_fake(fake, tmp_path / name, look, sentinels=(seen,))

    assert find_by(["email"], "email").latest_seen_at == 900.0
    assert find_by(["client_user_id"], "id").latest_seen_at == NOBODY
    assert find_by(["client_user_id", "email"], "both").latest_seen_at == NOBODY


def run_of(number: int) -> tuple[Sentinel, ...]:
    """Witnesses a second apart, the last at 999.0; the number is the time."""
    return tuple(sentinel(float(at), at, f"p{at}@x.org") for at in range(1000 - number, 1000))


def showing(sentinels: tuple[Sentinel, ...], until: float) -> FakeList:
    fake = FakeList()
    for witness in sentinels:
        if witness.confirmed_at <= until:
            fake.add(witness.subscriber_id, witness.value.lower())
    return fake


MIXED = (sentinel(900.0, 1, "a+1@x.org"), sentinel(910.0, 2, "b@x.org"), sentinel(920.0, 3, "c+3@x.org"))
SENTINELS: dict[str, tuple[float, tuple[Sentinel, ...], FilterCheck, tuple[float, float], int | None]] = {
    "one request is enough where the latest shows": (999.0, run_of(500), ALL, (999.0, 0.0), 1),
    "a sentinel that was the control is not asked for again": (
        999.0, run_of(1), FilterCheck(PLAIN, seen_sentinels=run_of(1)), (999.0, 0.0), 0,
    ),
    "of a few the very latest that shows is found": (995.0, run_of(10), ALL, (995.0, 4.0), None),
    "none shows as long as the first has not": (0.0, run_of(5), ALL, (NOBODY, 5.0), None),
    "of a class that passed": (0.0, MIXED, ALL, (NOBODY, 90.0), None),
    "of a class that did not pass": (0.0, MIXED, FilterCheck(), (NOBODY, 0.0), None),
    "in every spelling": (900.0, (sentinel(900.0, 1, "P900@X.org"),), ALL, (900.0, 0.0), None),
    "not who was confirmed while the look began": (
        0.0, (sentinel(1000.5, 1, "a@x.org"),), ALL, (NOBODY, 0.0), 0,
    ),
    "nothing without a sentinel": (0.0, (), ALL, (NOBODY, 0.0), 0),
}  # fmt: skip


@pytest.mark.parametrize(("until", "sentinels", "checked", "expected", "asked"), SENTINELS.values(), ids=SENTINELS)
def test_sentinels_are_asked_for(
    tmp_path: Path,
    until: float,
    sentinels: tuple[Sentinel, ...],
    checked: FilterCheck,
    expected: tuple[float, float],
    asked: int | None,
) -> None:
    fake = showing(sentinels, until)
    visibility = find(fake, tmp_path, *sentinels, checked=checked)
    assert (visibility.latest_seen_at, visibility.lag_s) == expected
    assert asked in (None, len(fake.asked))


@pytest.mark.parametrize(("number", "until"), [(1, 0.0), (2, 998.0), (10, 995.0), (1000, 700.0), (1000, 998.0)])
def test_a_few_look_ups_find_the_time_from_which_no_sentinel_shows(tmp_path: Path, number: int, until: float) -> None:
    sentinels = run_of(number)
    fake = showing(sentinels, until)
    visibility = find(fake, tmp_path, *sentinels)
    latest = visibility.latest_seen_at
    assert latest <= until
    assert latest >= until - number / 10 or latest == NOBODY
    assert 0 < visibility.lag_s <= 1000.0 - until + number / 10
    assert len(fake.asked) <= 9
