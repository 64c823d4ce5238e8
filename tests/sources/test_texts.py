"""The conversion of values of databases to texts."""

import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest

from connector.sources.cell_text import format_value


def test_a_value_of_a_database_is_converted_to_its_text() -> None:
    cases: list[tuple[object, str]] = [
        ("007", "007"),
        ("", ""),
        (7, "7"),
        (-(10**30), "-1" + "0" * 30),
        (True, "true"),
        (False, "false"),
        (7.0, "7"),
        (1e22, "1" + "0" * 22),
        (1e16, "1" + "0" * 16),
        (1234567890123456789.0, "1.2345678901234568e+18"),
        (777711159064846000.0, "777711159064846000"),
        (9007199254740991.0, "9007199254740991"),
        (0.1, "0.1"),
        (1.5e-9, "0.0000000015"),
        (Decimal("1E+3"), "1000"),
        (Decimal("12.50"), "12.5"),
        (Decimal("42.0000000000"), "42"),
        (Decimal("10115.00"), "10115"),
        (Decimal("1000"), "1000"),
        (Decimal("-0.00"), "0"),
        (Decimal("1E-9"), "0.000000001"),
        (date(2001, 2, 3), "2001-02-03"),
        (datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC), "2001-02-03T04:05:06+00:00"),
        (time(4, 5), "04:05:00"),
        (timedelta(hours=4, minutes=5), "04:05:00"),
        (timedelta(days=1, microseconds=500), "24:00:00.000500"),
        (-timedelta(seconds=90), "-00:01:30"),
        (b"\xc3\xa9", "é"),
        (memoryview(b"ab"), "ab"),
        (["a", 1, None], '["a",1,null]'),
        ({"k": Decimal("1.5")}, '{"k":"1.5"}'),
        ([{"k": b"ab"}, Decimal("1E+3")], '[{"k":"ab"},"1000"]'),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ]
    for value, text in cases:
        assert format_value(value) == text


def test_a_value_without_a_text_is_refused() -> None:
    cases: list[object] = [b"\xff", float("inf"), Decimal("-Infinity"), "\ud800", ["\ud800"], {"k": "\udfff"}]
    for value in cases:
        with pytest.raises(ValueError):
            format_value(value)
