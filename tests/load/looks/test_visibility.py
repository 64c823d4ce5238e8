"""The sentinels that look-ups show, and the lag of the list that the sentinels prove."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from connector.listing.access import Sentinel, SentinelVisibility, find_latest_time, read_sentinel_visibility
from connector.listing.base_list import describe_unreadable_list
from connector.listing.lookup import FilterCheck, find_visible_sentinels
from connector.paging.certificate import Certificate, CertificateReason, CertificateVerdict, Order
from connector.subscribers.spellings import classify_spelling
from tests.load.looks.fake_list import FakeList
from tests.load.sessions import build_sentinel, run_with_fake_list

NEVER = float("-inf")
PLAIN_SPELLING_KINDS = frozenset({classify_spelling("email", "a@x.org")})
PASSED_CHECK = FilterCheck(PLAIN_SPELLING_KINDS)
OLD_SENTINEL, NEW_SENTINEL = build_sentinel(100.0, 1, "old@x.org"), build_sentinel(200.0, 2, "new@x.org")


def build_certificate(reason: CertificateReason) -> Certificate:
    is_complete = reason in (CertificateReason.ONE_ANSWER, CertificateReason.ID_ORDER, CertificateReason.TWO_SWEEPS)
    verdict, swept_at = (
        CertificateVerdict.COMPLETE if is_complete else CertificateVerdict.INCOMPLETE,
        datetime(2026, 1, 1, tzinfo=UTC),
    )
    return Certificate(verdict, reason, Order.ID, 1, 1, 0, 0, 0, 0, 0, {}, swept_at, swept_at)


def test_a_sweep_in_id_order_counts_only_sentinels_that_the_previous_sweep_showed() -> None:
    sweeps: list[tuple[CertificateReason, set[int], set[int], float, float]] = [
        (CertificateReason.ONE_ANSWER, {1, 2}, set(), 200.0, 0.0),
        (CertificateReason.TWO_SWEEPS, {1, 2}, set(), 200.0, 0.0),
        (CertificateReason.TWO_SWEEPS, {1}, set(), 100.0, 100.0),
        (CertificateReason.TWO_SWEEPS, {2}, set(), 200.0, 200.0),
        (CertificateReason.TWO_SWEEPS, set(), set(), NEVER, 200.0),
        # Both sentinels may have appeared in the middle of the sweep.
        (CertificateReason.ID_ORDER, {1, 2}, set(), NEVER, 0.0),
        (CertificateReason.ID_ORDER, {1, 2}, {1}, 100.0, 0.0),
        (CertificateReason.ID_ORDER, {1, 2}, {1, 2}, 200.0, 0.0),
        (CertificateReason.ID_ORDER, {1}, {1, 2}, 100.0, 100.0),  # this sweep does not show the sentinel 2
        # Rows may be skipped, so a missing sentinel is not a sign of lag.
        (CertificateReason.UNSTABLE_ORDER, {1}, set(), 100.0, 0.0),
    ]
    for certificate_reason, seen_ids, previous_seen_ids, latest_sentinel_at, lag_s in sweeps:
        visibility = read_sentinel_visibility(
            [OLD_SENTINEL, NEW_SENTINEL],
            frozenset(seen_ids),
            frozenset(previous_seen_ids),
            build_certificate(certificate_reason),
            300.0,
        )
        assert (find_latest_time(visibility.seen_sentinels), visibility.lag_s) == (latest_sentinel_at, lag_s)


def test_a_subscriber_that_is_confirmed_during_a_sweep_is_not_a_sign_of_lag() -> None:
    visibility = read_sentinel_visibility(
        [NEW_SENTINEL], frozenset(), frozenset(), build_certificate(CertificateReason.ONE_ANSWER), 150.0
    )
    assert (find_latest_time(visibility.seen_sentinels), visibility.lag_s) == (NEVER, 0.0)


def find_sentinels(
    fake_list: FakeList, folder: Path, *sentinels: Sentinel, filter_check: FilterCheck = PASSED_CHECK
) -> SentinelVisibility:
    return run_with_fake_list(
        fake_list,
        folder,
        lambda session: find_visible_sentinels(session.list_access, filter_check, 1000.0, ["email"]),
        sentinels=sentinels,
    )


def test_a_sentinel_of_one_field_proves_nothing_for_another_field(tmp_path: Path) -> None:
    """The service may find subscribers by their email long before it finds them by their client_user_id."""
    fake_list, sentinel = FakeList(), build_sentinel(900.0, 1, "a@x.org")
    fake_list.add(1, "a@x.org")

    def find_sentinels_by_fields(fields: list[str], folder: str) -> SentinelVisibility:
        return run_with_fake_list(
            fake_list,
            tmp_path / folder,
            lambda session: find_visible_sentinels(session.list_access, PASSED_CHECK, 1000.0, fields),
            sentinels=(sentinel,),
        )

    assert find_latest_time(find_sentinels_by_fields(["email"], "email").seen_sentinels) == 900.0
    assert find_latest_time(find_sentinels_by_fields(["client_user_id"], "id").seen_sentinels) == NEVER
    assert find_latest_time(find_sentinels_by_fields(["client_user_id", "email"], "both").seen_sentinels) == NEVER


def build_series(sentinel_count: int) -> tuple[Sentinel, ...]:
    """Return sentinels with consecutive Ids up to 999. The Id of a sentinel is also the time when it was confirmed."""
    return tuple(
        build_sentinel(float(confirmed_at), confirmed_at, f"p{confirmed_at}@x.org")
        for confirmed_at in range(1000 - sentinel_count, 1000)
    )


def build_lagging_list(sentinels: tuple[Sentinel, ...], last_shown_at: float) -> FakeList:
    """Return a list that shows only the sentinels that were confirmed at `last_shown_at` or earlier."""
    fake_list = FakeList()
    for sentinel in sentinels:
        if sentinel.confirmed_at <= last_shown_at:
            fake_list.add(sentinel.subscriber_id, sentinel.value.lower())
    return fake_list


MIXED_SENTINELS = (
    build_sentinel(900.0, 1, "a+1@x.org"),
    build_sentinel(910.0, 2, "b@x.org"),
    build_sentinel(920.0, 3, "c+3@x.org"),
)
SENTINEL_CASES: dict[str, tuple[float, tuple[Sentinel, ...], FilterCheck, tuple[float, float], int | None]] = {
    "one request is enough if the list shows the latest sentinel": (
        999.0, build_series(500), PASSED_CHECK, (999.0, 0.0), 1,
    ),
    "a sentinel that was a control is not looked up again": (
        999.0, build_series(1), FilterCheck(PLAIN_SPELLING_KINDS, seen_sentinels=build_series(1)), (999.0, 0.0), 0,
    ),
    "the latest of a few visible sentinels is found": (995.0, build_series(10), PASSED_CHECK, (995.0, 4.0), None),
    "if the list shows no sentinel, the lag is the age of the oldest sentinel": (
        0.0, build_series(5), PASSED_CHECK, (NEVER, 5.0), None,
    ),
    "a missing sentinel is a sign of lag if its kind of spelling passed the check": (
        0.0, MIXED_SENTINELS, PASSED_CHECK, (NEVER, 90.0), None,
    ),
    "a missing sentinel is not a sign of lag if no kind of spelling passed the check": (
        0.0, MIXED_SENTINELS, FilterCheck(), (NEVER, 0.0), None,
    ),
    "a sentinel is looked up in every spelling": (
        900.0, (build_sentinel(900.0, 1, "P900@X.org"),), PASSED_CHECK, (900.0, 0.0), None,
    ),
    "a sentinel confirmed after the start of the look-up does not count": (
        0.0, (build_sentinel(1000.5, 1, "a@x.org"),), PASSED_CHECK, (NEVER, 0.0), 0,
    ),
    "without a sentinel, no request is sent": (0.0, (), PASSED_CHECK, (NEVER, 0.0), 0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("last_shown_at", "sentinels", "filter_check", "expected_visibility", "query_count"),
    SENTINEL_CASES.values(),
    ids=SENTINEL_CASES,
)
def test_look_ups_of_sentinels_find_the_latest_visible_sentinel_and_the_lag(
    tmp_path: Path,
    last_shown_at: float,
    sentinels: tuple[Sentinel, ...],
    filter_check: FilterCheck,
    expected_visibility: tuple[float, float],
    query_count: int | None,
) -> None:
    fake_list = build_lagging_list(sentinels, last_shown_at)
    visibility = find_sentinels(fake_list, tmp_path, *sentinels, filter_check=filter_check)
    assert (find_latest_time(visibility.seen_sentinels), visibility.lag_s) == expected_visibility
    assert query_count in (None, len(fake_list.queries))


@pytest.mark.parametrize(("sentinel_count", "last_shown_at"), [(10, 995.0), (1000, 700.0)])
def test_at_most_nine_requests_find_the_lag_of_a_list(
    tmp_path: Path, sentinel_count: int, last_shown_at: float
) -> None:
    sentinels = build_series(sentinel_count)
    fake_list = build_lagging_list(sentinels, last_shown_at)
    visibility = find_sentinels(fake_list, tmp_path, *sentinels)
    latest_sentinel_at = find_latest_time(visibility.seen_sentinels)
    assert latest_sentinel_at <= last_shown_at
    assert latest_sentinel_at >= last_shown_at - sentinel_count / 10 or latest_sentinel_at == NEVER
    assert 0 < visibility.lag_s <= 1000.0 - last_shown_at + sentinel_count / 10
    assert len(fake_list.queries) <= 9


def test_the_message_about_a_cut_off_list_has_only_contradicting_evidence() -> None:
    evidence = {
        "gender": "agrees: the classes have 40 subscribers",
        "ledger": "contradicts: look-ups by Id find 3 of 4 subscribers that the list lacks",
        "ids": "nothing",
        "rows": "contradicts: another answer shows 2 unlisted ids between the listed ids",
    }
    certificate = replace(build_certificate(CertificateReason.CUT_OFF), distinct=1000, evidence=evidence)
    assert describe_unreadable_list(certificate) == (
        "the list shows 1,000 subscribers and leaves others out (look-ups by Id find 3 of 4 subscribers that the list "
        "lacks; another answer shows 2 unlisted ids between the listed ids)"
    )
