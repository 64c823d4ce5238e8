"""Where an export goes is told before anything starts, in words that help and show no password."""

from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.export import Format, parse_destination


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "room").mkdir()


@pytest.mark.parametrize(
    ("text", "form", "path"),
    [
        ("out.parquet", Format.PARQUET, "out.parquet"),
        ("room/Out.CSV", Format.CSV, "room/Out.CSV"),
        ("out.jsonl", Format.JSON_LINES, "out.jsonl"),
        ("duckdb:///w.duckdb", Format.DUCKDB, "w.duckdb"),
        ("DUCKDB:///room/w.db", Format.DUCKDB, "room/w.db"),
        ("sqlite:////tmp/w.db", Format.SQLITE, "/tmp/w.db"),
    ],
)
def test_a_suffix_or_a_scheme_tells_the_format(text: str, form: Format, path: str) -> None:
    destination = parse_destination(text)

    assert (destination.format, destination.path, destination.table) == (form, Path(path), "subscribers")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("out.xlsx", ".parquet, .csv or .jsonl"),
        ("out", ".parquet, .csv or .jsonl"),
        ("", ".parquet, .csv or .jsonl"),
        ("mongodb://host/db", "duckdb:///warehouse.duckdb"),
        ("sqlite://", "names no database file"),
        ("sqlite:///:memory:", "names no database file"),
        ("duckdb://w.duckdb", "names no database file"),
        ("sqlite:///w.db?mode=ro", "names no database file"),
        ("room/../nowhere/out.csv", "does not exist"),
        ("sqlite:///nowhere/w.db", "does not exist"),
        ("sqlite:///room", "is a directory"),
    ],
)
def test_what_cannot_be_written_is_refused_with_what_can(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_destination(text)


def test_a_directory_named_like_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(ConfigurationError, match="is a directory"):
        parse_destination("out.csv")


@pytest.mark.parametrize("text", ["oracle://me:hunter2@host/db", "oracle://me:hunt/er2@host/db?password=hunter2"])
def test_a_password_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse_destination(text)

    assert "hunter2" not in str(refusal.value)
    assert "er2@" not in str(refusal.value)


@pytest.mark.parametrize(
    ("table", "schema", "words"),
    [("", None, "no name"), ("a\x00b", None, "no name"), ("sqlite_x", None, "for itself"), ("t", "s", "no schemas")],
)
def test_a_name_that_a_database_cannot_have_is_refused(table: str, schema: str | None, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_destination("sqlite:///w.db", table=table, schema=schema)


def test_it_shows_itself_to_people() -> None:
    assert str(parse_destination("out.csv")) == "out.csv"
    assert str(parse_destination("duckdb:///w.duckdb", schema="esp")) == "duckdb:///w.duckdb (table esp.subscribers)"
