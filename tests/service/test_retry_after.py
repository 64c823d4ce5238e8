"""Retry-After in every form that has been seen, and in some that only a fault would make."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from connector.service import parse_retry_after

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("007", 7.0),
        ("999999999999999999999", 86_400.0),
        ("Sat, 21 Nov 2026 12:00:30 GMT", 30.0),
        ("Saturday, 21-Nov-26 12:00:30 GMT", 30.0),
        ("Sat Nov 21 12:00:30 2026", 30.0),
        ("Sat, 21 Nov 2026 14:00:30 +0200", 30.0),
        ("Sat, 21 Nov 2026 11:59:00 GMT", 0.0),
        ("Sat, 21 Nov 2099 12:00:00 GMT", 86_400.0),
        ("", None),
        ("-1", None),
        ("+5", None),
        ("1e3", None),
        ("inf", None),
        ("nan", None),
        ("soon", None),
        ("5 minutes", None),
        ("٧", None),
        ("2026-13-45T99:00:00Z", None),
        ("Sat, 99 Nov 2026 12:00:30 GMT", None),
    ],
)
def test_a_wait_is_understood_or_none(value: str, seconds: float | None) -> None:
    assert parse_retry_after({"Retry-After": value}, NOW) == seconds


def test_the_headers_name_has_no_case_and_none_is_no_wait() -> None:
    assert parse_retry_after({"x": "y", "RETRY-after": "4"}, NOW) == 4.0
    assert parse_retry_after({}, NOW) is None


def test_a_date_is_read_against_the_answers_own_clock_when_that_is_told() -> None:
    headers = {"Retry-After": "Sat, 21 Nov 2026 12:10:30 GMT", "Date": "Sat, 21 Nov 2026 12:10:00 GMT"}
    for skew in (timedelta(0), timedelta(minutes=11), timedelta(minutes=-9)):
        assert parse_retry_after(headers, NOW + skew) == 30.0
    assert parse_retry_after({**headers, "Date": "no date"}, NOW) == 630.0


@given(st.text())
def test_no_text_makes_it_raise_or_wait_for_ever(value: str) -> None:
    seconds = parse_retry_after({"Retry-After": value, "Date": value}, NOW)
    assert seconds is None or 0.0 <= seconds <= 86_400.0
