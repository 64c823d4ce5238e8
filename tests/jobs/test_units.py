"""Durations, percentages, paths and URLs in a job. Relative paths and URLs start at the folder of the job file, and not
at the current folder."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from connector.units import format_share, parse_duration, parse_share, resolve_destination, resolve_path, resolve_url


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("10m", 600.0),
        ("2h", 7200.0),
        ("1.5h", 5400.0),
        (" 1 s ", 1.0),
        ("0s", 0.0),
        (2, 2.0),
    ],
)
def test_a_duration_is_parsed_as_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["30", "", "s", "-1s", "1w", "1h30m", "٣s", "1e3s", "nan s", "inf", None, [], True, "9" * 40 + "h"]
)
def test_the_error_of_an_invalid_duration_shows_valid_examples(text: object) -> None:
    with pytest.raises(ValueError, match="500ms, 30s, 10m, 2h or 90d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.5%", 0.005), (" 50 % ", 0.5), ("0%", 0.0), ("100%", 1.0)]
)
def test_a_share_is_parsed_as_a_number_from_0_to_1(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "0.05", "101%", "-5%", "five%", "%", "", 5, 0.05, True, None, "١%"])
def test_an_invalid_share_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"such as 5%"):
        parse_share(text)


def test_a_share_is_shown_in_percent() -> None:
    assert [format_share(share) for share in (0.05, 0.1053, 1)] == ["5 %", "10.5 %", "100 %"]


JOB_FOLDER = Path("/srv/jobs")


@pytest.mark.parametrize(
    ("path", "expected_path"),
    [
        ("a.csv", "/srv/jobs/a.csv"),
        ("in/a.csv", "/srv/jobs/in/a.csv"),
        ("../a.csv", "/srv/jobs/../a.csv"),
        ("/x/a.csv", "/x/a.csv"),
        ("~/a.csv", str(Path.home() / "a.csv")),
    ],
)
def test_a_relative_path_starts_at_the_folder_of_the_job_file(path: str, expected_path: str) -> None:
    assert str(resolve_path(path, JOB_FOLDER)) == expected_path
    assert resolve_destination(path, JOB_FOLDER) == expected_path


def test_the_destination_for_standard_output_is_not_a_path() -> None:
    assert resolve_destination("-", JOB_FOLDER) == "-"


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "~no-such-user-here/a.csv"])
def test_an_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"must be a path|a user who is not known"):
        resolve_path(path, JOB_FOLDER)


URLS_AND_RESOLVED_URLS = [
    ("sqlite:///w.db", "sqlite:////srv/jobs/w.db"),
    ("sqlite:///sub/w.db?mode=ro", "sqlite:////srv/jobs/sub/w.db?mode=ro"),
    ("sqlite+pysqlite:///w.db", "sqlite+pysqlite:////srv/jobs/w.db"),
    ("duckdb:///w.duckdb", "duckdb:////srv/jobs/w.duckdb"),
    ("sqlite:////abs/w.db", "sqlite:////abs/w.db"),
    ("sqlite://", "sqlite://"),
    ("sqlite:///", "sqlite:///"),
    ("sqlite:///:memory:", "sqlite:///:memory:"),
    ("sqlite:///file:w.db?uri=true", "sqlite:///file:w.db?uri=true"),
    ("postgresql://u:p@host/w", "postgresql://u:p@host/w"),
    ("postgresql:///w", "postgresql:///w"),
]


@pytest.mark.parametrize(("url", "expected_url"), URLS_AND_RESOLVED_URLS)
def test_a_relative_database_url_starts_at_the_folder_of_the_job_file(url: str, expected_url: str) -> None:
    assert resolve_url(url, JOB_FOLDER) == expected_url
    assert resolve_destination(url, JOB_FOLDER) == expected_url


def test_a_resolved_url_opens_the_file_in_a_folder_with_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "50%25 off? it's #1 é @home:x"
    folder.mkdir()
    sqlite3.connect(folder / "w.db").execute("create table people (name)").connection.close()
    engine = create_engine(resolve_url("sqlite:///w.db", folder))
    with engine.connect() as connection:
        assert connection.execute(text("select name from sqlite_master")).scalar() == "people"
    engine.dispose()
