"""The texts of cells. A cell that cannot be read as text rejects its row only if its column is used."""

import sqlite3
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.rows import Source
from connector.sources.cell_text import format_value
from connector.sources.columnar import open_rows
from connector.sources.files import open_file
from connector.sources.sql import open_sql


def test_a_value_of_a_database_is_converted_to_its_text() -> None:
    values_and_texts: list[tuple[object, str]] = [
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
    for value, text in values_and_texts:
        assert format_value(value) == text


def test_a_value_that_cannot_be_written_as_a_text_is_refused() -> None:
    for value in (b"\xff", float("inf"), Decimal("-Infinity"), "\ud800", ["\ud800"], {"k": "\udfff"}):
        with pytest.raises(ValueError):
            format_value(value)


EMAILS = ["ann@example.com", "bo@example.com"]


def open_parquet(folder: Path) -> Source:
    pq.write_table(pa.table({"email": EMAILS, "junk": pa.array([b"\xff" * 16, b"ok"])}), folder / "a.parquet")
    return open_file(folder / "a.parquet")


def open_far_dates(folder: Path) -> Source:
    table = pa.table({"email": EMAILS, "junk": pa.array([2**31 - 1, 1], pa.int32()).cast(pa.date32())})
    pq.write_table(table, folder / "a.parquet")
    return open_file(folder / "a.parquet")


def open_json_lines(folder: Path) -> Source:
    (folder / "a.jsonl").write_text(f'{{"email":"{EMAILS[0]}","junk":-Infinity}}\n{{"email":"{EMAILS[1]}","junk":1}}\n')
    return open_file(folder / "a.jsonl")


def open_database(folder: Path) -> Source:
    with sqlite3.connect(folder / "a.sqlite") as connection:
        connection.execute("create table people (email text, junk blob)")
        connection.executemany("insert into people values (?, ?)", [(EMAILS[0], b"\xff"), (EMAILS[1], b"ok")])
    connection.close()
    return open_sql(f"sqlite:///{folder / 'a.sqlite'}", table="people")


def open_frame(_: Path) -> Source:
    return open_rows(pd.DataFrame({"email": EMAILS, "junk": [object(), "ok"]}), "frame")


SOURCE_OPENERS = [open_parquet, open_far_dates, open_json_lines, open_database, open_frame]


@pytest.mark.parametrize("open_source", SOURCE_OPENERS)
def test_a_row_with_an_unreadable_cell_is_rejected_only_if_the_column_is_used(
    open_source: Callable[[Path], Source], tmp_path: Path
) -> None:
    with open_source(tmp_path) as source:
        for used_columns in (None, ["junk"], ["email", "junk"]):
            (chunk,) = source.read_chunks(used_columns)
            assert chunk.frame["email"].tolist() == EMAILS[1:]
            assert [row.number for row in chunk.malformed_rows] == [int(chunk.row_numbers[0]) - 1]
            assert "junk" in chunk.malformed_rows[0].message
        for other_columns in ([], ["email"]):
            (chunk,) = source.read_chunks(other_columns)
            assert (chunk.frame["email"].tolist(), chunk.malformed_rows) == (EMAILS, ())
