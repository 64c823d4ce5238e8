"""The key `source.sql.cursor` of a job file: valid values, and messages about faults."""

from datetime import datetime
from pathlib import Path

import pytest

from connector.sources.cursor import CursorKind
from tests.jobs.test_loading import read_faulty_job, read_job

JOB = """\
job: crm
source:
  sql: {url: "sqlite:///crm.db", query: "select * from t where updated_at >= :cursor",
        cursor: {column: updated_at, start: 1970-01-01T00:00:00, lookback: 10m}}
subscriber: {base: {id: 7}}
"""


def test_the_start_decides_the_kind_of_the_cursor_and_the_lookback_is_in_seconds(tmp_path: Path) -> None:
    source = read_job(tmp_path, JOB).source
    assert source is not None
    assert source.sql is not None
    cursor = source.sql.cursor
    assert cursor is not None
    assert (cursor.column, cursor.kind, cursor.lookback_s) == ("updated_at", CursorKind.TIMESTAMP, 600.0)
    assert cursor.first_value == datetime(1970, 1, 1)  # noqa: DTZ001 - the start in the job has no time zone


FAULTS = [
    ("1970-01-01T00:00:00", "1970-13-01", "source.sql.cursor.start: must be a date, such as 2026-11-21"),
    ("1970-01-01T00:00:00", "1970-01-01 noon", "source.sql.cursor.start: must be a timestamp, such as"),
    ("start: 1970-01-01T00:00:00", "start: 0", "lookback is for timestamps and dates, and start is a whole number"),
    ("start: 1970-01-01T00:00:00", "start: A", "must be a timestamp, a date or a whole number. A query can cast"),
    ("start: 1970-01-01T00:00:00, ", "", "source.sql.cursor.start: is missing"),
    ("column: updated_at, ", "", "source.sql.cursor.column: is missing"),
    ("lookback: 10m", "lookback: 10", "lookback: must be a duration with its unit"),
    ("lookback: 10m", "look_back: 10m", "there is no such key; did you mean lookback?"),
    (
        " where updated_at >= :cursor",
        "",
        "source.sql: the query does not use :cursor; add a condition on the cursor's column",
    ),
    (
        "cursor: {column: updated_at, start: 1970-01-01T00:00:00, lookback: 10m}",
        "",
        "the query uses :cursor; add source.sql.cursor",
    ),
]


@pytest.mark.parametrize(("valid_text", "faulty_text", "expected_text"), FAULTS)
def test_the_message_about_a_fault_of_a_cursor_names_the_key(
    tmp_path: Path, valid_text: str, faulty_text: str, expected_text: str
) -> None:
    assert JOB.count(valid_text) == 1
    assert expected_text in read_faulty_job(tmp_path, JOB.replace(valid_text, faulty_text))


def test_a_table_can_have_a_cursor_and_a_suppression_list_cannot(tmp_path: Path) -> None:
    job_with_table = JOB.replace('query: "select * from t where updated_at >= :cursor"', "table: t")
    assert read_job(tmp_path, job_with_table).source is not None
    suppress_yaml = (
        "suppress: {sql: {url: 'sqlite:///crm.db', table: gone, column: mail, cursor: {column: a, start: 0}}}\n"
    )
    assert "suppress.sql.cursor: there is no such key" in read_faulty_job(tmp_path, JOB + suppress_yaml)
