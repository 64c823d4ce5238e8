"""A cell that cannot be read as text rejects its row only if its column is used."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.rows import Source
from connector.sources.columnar import open_rows
from connector.sources.files import open_file
from connector.sources.sql import open_sql

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
def test_a_cell_that_cannot_be_read_as_text_rejects_its_row_only_in_a_used_column(
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


def test_nan_is_a_missing_value_in_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"email":"a@example.com","score":NaN}\n{"email":"b@example.com","score":0.5}\n')
    with open_file(tmp_path / "a.jsonl") as source:
        (chunk,) = source.read_chunks()
    assert chunk.frame["score"].fillna("").tolist() == ["", "0.5"]
