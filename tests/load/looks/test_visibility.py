"""The confirmed creates that look-ups show, and the lag of the list that the confirmed creates prove."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from connector.listing.access import (
    ConfirmedCreate,
    ConfirmedCreateVisibility,
    find_latest_confirmation_time,
    read_confirmed_create_visibility,
)
from connector.listing.base_list import describe_unreadable_list
from connector.listing.lookup import FilterCheck, find_visible_confirmed_creates
from connector.paging.certificate import Certificate, CertificateReason, CertificateVerdict, Order
from connector.subscribers.spellings import find_text_traits
from tests.load.looks.fake_list import FakeList
from tests.load.sessions import build_confirmed_create, run_with_fake_list

NEVER = float("-inf")
PLAIN_TRAITS = frozenset({find_text_traits("email", "a@x.org")})
PASSED_CHECK = FilterCheck(PLAIN_TRAITS)
OLD_CONFIRMED_CREATE, NEW_CONFIRMED_CREATE = (
    build_confirmed_create(100.0, 1, "old@x.org"),
    build_confirmed_create(200.0, 2, "new@x.org"),
)


def build_certificate(reason: CertificateReason) -> Certificate:
    is_complete = reason in (CertificateReason.ONE_ANSWER, CertificateReason.ID_ORDER, CertificateReason.TWO_SWEEPS)
    verdict, swept_at = (
        CertificateVerdict.COMPLETE if is_complete else CertificateVerdict.INCOMPLETE,
        datetime(2026, 1, 1, tzinfo=UTC),
    )
    return Certificate(verdict, reason, Order.ID, 1, 1, 0, 0, 0, 0, 0, {}, swept_at, swept_at)


def test_a_confirmed_create_counts_in_id_order_only_if_the_previous_reading_showed_its_id() -> None:
    sweeps: list[tuple[CertificateReason, set[int], set[int], float, float]] = [
        (CertificateReason.ONE_ANSWER, {1, 2}, set(), 200.0, 0.0),
        (CertificateReason.TWO_SWEEPS, {1, 2}, set(), 200.0, 0.0),
        (CertificateReason.TWO_SWEEPS, {1}, set(), 100.0, 100.0),
        (CertificateReason.TWO_SWEEPS, {2}, set(), 200.0, 200.0),
        (CertificateReason.TWO_SWEEPS, set(), set(), NEVER, 200.0),
        # Both confirmed creates may have appeared in the middle of the sweep.
        (CertificateReason.ID_ORDER, {1, 2}, set(), NEVER, 0.0),
        (CertificateReason.ID_ORDER, {1, 2}, {1}, 100.0, 0.0),
        (CertificateReason.ID_ORDER, {1, 2}, {1, 2}, 200.0, 0.0),
        (CertificateReason.ID_ORDER, {1}, {1, 2}, 100.0, 100.0),  # this sweep does not show the confirmed create 2
        # Rows may be skipped, so a missing confirmed create is not a sign of lag.
        (CertificateReason.UNSTABLE_ORDER, {1}, set(), 100.0, 0.0),
    ]
    for certificate_reason, seen_ids, previous_seen_ids, latest_confirmed_create_at, lag_s in sweeps:
        visibility = read_confirmed_create_visibility(
            [OLD_CONFIRMED_CREATE, NEW_CONFIRMED_CREATE],
            frozenset(seen_ids),
            frozenset(previous_seen_ids),
            build_certificate(certificate_reason),
            300.0,
        )
        assert (find_latest_confirmation_time(visibility.seen_confirmed_creates), visibility.lag_s) == (
            latest_confirmed_create_at,
            lag_s,
        )


def test_a_missing_subscriber_is_not_a_lag_if_its_create_was_confirmed_during_the_reading() -> None:
    visibility = read_confirmed_create_visibility(
        [NEW_CONFIRMED_CREATE], frozenset(), frozenset(), build_certificate(CertificateReason.ONE_ANSWER), 150.0
    )
    assert (find_latest_confirmation_time(visibility.seen_confirmed_creates), visibility.lag_s) == (NEVER, 0.0)


def find_confirmed_creates(
    fake_list: FakeList, folder: Path, *confirmed_creates: ConfirmedCreate, filter_check: FilterCheck = PASSED_CHECK
) -> ConfirmedCreateVisibility:
    return run_with_fake_list(
        fake_list,
        folder,
        lambda session: find_visible_confirmed_creates(session.list_access, filter_check, 1000.0, ["email"]),
        confirmed_creates=confirmed_creates,
    )


def test_a_confirmed_create_counts_only_for_look_ups_by_its_own_identity_field(tmp_path: Path) -> None:
    """The service may find subscribers by their email long before it finds them by their client_user_id."""
    fake_list, confirmed_create = FakeList(), build_confirmed_create(900.0, 1, "a@x.org")
    fake_list.add(1, "a@x.org")

    def find_seen_confirmation_time(fields: list[str], folder: str) -> float:
        visibility = run_with_fake_list(
            fake_list,
            tmp_path / folder,
            lambda session: find_visible_confirmed_creates(session.list_access, PASSED_CHECK, 1000.0, fields),
            confirmed_creates=(confirmed_create,),
        )
        return find_latest_confirmation_time(visibility.seen_confirmed_creates)

    assert find_seen_confirmation_time(["email"], "email") == 900.0
    assert find_seen_confirmation_time(["client_user_id"], "id") == NEVER
    assert find_seen_confirmation_time(["client_user_id", "email"], "both") == NEVER


def build_consecutive_creates(confirmed_create_count: int) -> tuple[ConfirmedCreate, ...]:
    """Return confirmed creates with consecutive Ids up to 999. The Id of a confirmed create is also the time when it
    was confirmed."""
    return tuple(
        build_confirmed_create(float(confirmed_at), confirmed_at, f"p{confirmed_at}@x.org")
        for confirmed_at in range(1000 - confirmed_create_count, 1000)
    )


def build_lagging_list(confirmed_creates: tuple[ConfirmedCreate, ...], last_shown_at: float) -> FakeList:
    """Return a list that shows only the confirmed creates that were confirmed at `last_shown_at` or earlier."""
    fake_list = FakeList()
    for confirmed_create in confirmed_creates:
        if confirmed_create.confirmed_at <= last_shown_at:
            fake_list.add(confirmed_create.subscriber_id, confirmed_create.identity_text.lower())
    return fake_list


MIXED_CONFIRMED_CREATES = (
    build_confirmed_create(900.0, 1, "a+1@x.org"),
    build_confirmed_create(910.0, 2, "b@x.org"),
    build_confirmed_create(920.0, 3, "c+3@x.org"),
)
VisibilityCase = tuple[float, tuple[ConfirmedCreate, ...], FilterCheck, tuple[float, float], int | None]
VISIBILITY_CASES: dict[str, VisibilityCase] = {
    "one request is enough if the list shows the latest confirmed create": (
        999.0, build_consecutive_creates(500), PASSED_CHECK, (999.0, 0.0), 1,
    ),
    "a confirmed create that a trial has found is not looked up again": (
        999.0,
        build_consecutive_creates(1),
        FilterCheck(PLAIN_TRAITS, seen_confirmed_creates=build_consecutive_creates(1)),
        (999.0, 0.0),
        0,
    ),
    "the latest of a few visible confirmed creates is found": (
        995.0, build_consecutive_creates(10), PASSED_CHECK, (995.0, 4.0), None,
    ),
    "if the list shows no confirmed create, the lag is the age of the oldest confirmed create": (
        0.0, build_consecutive_creates(5), PASSED_CHECK, (NEVER, 5.0), None,
    ),
    "if a working filter does not find a confirmed create, the list lags": (
        0.0, MIXED_CONFIRMED_CREATES, PASSED_CHECK, (NEVER, 90.0), None,
    ),
    "if a failed filter does not find a confirmed create, the lag is unknown": (
        0.0, MIXED_CONFIRMED_CREATES, FilterCheck(), (NEVER, 0.0), None,
    ),
    "a confirmed create is looked up in every spelling": (
        900.0, (build_confirmed_create(900.0, 1, "P900@X.org"),), PASSED_CHECK, (900.0, 0.0), None,
    ),
    "a create confirmed after the start of the look-up does not count": (
        0.0, (build_confirmed_create(1000.5, 1, "a@x.org"),), PASSED_CHECK, (NEVER, 0.0), 0,
    ),
    "without a confirmed create, no request is sent": (0.0, (), PASSED_CHECK, (NEVER, 0.0), 0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("last_shown_at", "confirmed_creates", "filter_check", "expected_visibility", "query_count"),
    VISIBILITY_CASES.values(),
    ids=VISIBILITY_CASES,
)
def test_look_ups_find_the_latest_visible_confirmed_create_and_the_lag_of_the_list(
    tmp_path: Path,
    last_shown_at: float,
    confirmed_creates: tuple[ConfirmedCreate, ...],
    filter_check: FilterCheck,
    expected_visibility: tuple[float, float],
    query_count: int | None,
) -> None:
    fake_list = build_lagging_list(confirmed_creates, last_shown_at)
    visibility = find_confirmed_creates(fake_list, tmp_path, *confirmed_creates, filter_check=filter_check)
    assert (find_latest_confirmation_time(visibility.seen_confirmed_creates), visibility.lag_s) == expected_visibility
    assert query_count in (None, len(fake_list.queries))


@pytest.mark.parametrize(("confirmed_create_count", "last_shown_at"), [(10, 995.0), (1000, 700.0)])
def test_at_most_nine_requests_find_the_lag_of_a_list(
    tmp_path: Path, confirmed_create_count: int, last_shown_at: float
) -> None:
    confirmed_creates = build_consecutive_creates(confirmed_create_count)
    fake_list = build_lagging_list(confirmed_creates, last_shown_at)
    visibility = find_confirmed_creates(fake_list, tmp_path, *confirmed_creates)
    latest_confirmed_create_at = find_latest_confirmation_time(visibility.seen_confirmed_creates)
    assert latest_confirmed_create_at <= last_shown_at
    assert (
        latest_confirmed_create_at >= last_shown_at - confirmed_create_count / 10 or latest_confirmed_create_at == NEVER
    )
    assert 0 < visibility.lag_s <= 1000.0 - last_shown_at + confirmed_create_count / 10
    assert len(fake_list.queries) <= 9


def test_the_message_about_a_cut_off_list_shows_only_the_evidence_against_the_list() -> None:
    evidence = {
        "gender": "agrees: the groups have 40 subscribers",
        "ledger": "contradicts: look-ups by Id find 3 of 4 subscribers that the list lacks",
        "ids": "nothing",
        "rows": "contradicts: another answer shows 2 unlisted ids between the listed ids",
    }
    certificate = replace(build_certificate(CertificateReason.CUT_OFF), distinct=1000, evidence=evidence)
    assert describe_unreadable_list(certificate) == (
        "the list shows 1,000 subscribers and leaves others out (look-ups by Id find 3 of 4 subscribers that the list "
        "lacks; another answer shows 2 unlisted ids between the listed ids)"
    )
