"""When an email is to go: never without a zone, never in the past, never at a time that there is not."""

from datetime import UTC, datetime, timedelta

import pytest

from connector.mail import MessageError
from connector.mail.draft import check_send_at, parse_send_at

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "in_utc"),
    [
        ("2026-12-24T09:00+01:00", "2026-12-24T08:00"),
        ("2026-12-24T09:00:30Z", "2026-12-24T09:00:30"),
        ("2026-12-24 09:00+01:00", "2026-12-24T08:00"),
        ("2026-12-24T09:00 Europe/Berlin", "2026-12-24T08:00"),
        (" 2026-07-24 09:00  Europe/Berlin ", "2026-07-24T07:00"),
        ("2026-07-24 09:00 UTC", "2026-07-24T09:00"),
    ],
)
def test_a_time_with_its_zone(text: str, in_utc: str) -> None:
    assert parse_send_at(text) == datetime.fromisoformat(in_utc).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-12-24T09:00", "no zone"),
        ("2026-12-24", "no zone"),
        ("tomorrow", "no time"),
        ("", "no time"),
        ("2026-12-24T09:00 Europe/Nowhere", "does not know"),
        ("2026-12-24T09:00 ../../etc/passwd", "does not know"),
        ("2026-12-24T09:00Z Europe/Berlin", "two zones"),
        ("2026-03-29T02:30 Europe/Berlin", "forward"),
    ],
)
def test_what_is_no_time_to_send_at_is_told(text: str, words: str) -> None:
    with pytest.raises(MessageError, match=words):
        parse_send_at(text)


def test_a_time_is_an_earliest_one() -> None:
    assert check_send_at(None, NOW) is None
    assert check_send_at(NOW, NOW) == NOW.timestamp()
    assert check_send_at(NOW + timedelta(microseconds=1), NOW) == NOW.timestamp() + 1
    with pytest.raises(MessageError, match="past"):
        check_send_at(NOW - timedelta(microseconds=1), NOW)
