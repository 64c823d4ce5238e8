"""The destination of an export is checked before the first request. A message helps, and shows no password."""

from datetime import timedelta
from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.units import resolve_destination
from connector.warehouse.destination import Format, parse_destination, parse_receipts
from connector.warehouse.opening import open_writer
from tests.export.people import AT, BARE, MIXED, beginning_of, run_of, table_of
from tests.export.readers import read_back


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "room").mkdir()


def test_a_suffix_or_a_scheme_tells_the_format() -> None:
    cases: list[tuple[str, Format, str]] = [
        ("out.parquet", Format.PARQUET, "out.parquet"),
        ("room/Out.CSV", Format.CSV, "room/Out.CSV"),
        ("out.jsonl", Format.JSON_LINES, "out.jsonl"),
        ("duckdb:///w.duckdb", Format.DUCKDB, "w.duckdb"),
        ("DUCKDB:///room/w.db", Format.DUCKDB, "room/w.db"),
        ("sqlite:////tmp/w.db", Format.SQLITE, "/tmp/w.db"),
        ("sqlite:///two%20words%3F%25.db", Format.SQLITE, "two words?%.db"),
        ("duckdb:///gr%C3%B6ße%2541.duckdb", Format.DUCKDB, "größe%41.duckdb"),
        ("two%20words.csv", Format.CSV, "two%20words.csv"),
    ]
    for text, form, path in cases:
        destination = parse_destination(text)

        assert (destination.format, destination.path, destination.table) == (form, Path(path), "subscribers")


def test_a_destination_that_cannot_be_written_is_refused_with_the_alternatives() -> None:
    cases: list[tuple[str, str]] = [
        ("out.xls", ".parquet, .csv"),
        ("out", ".parquet, .csv"),
        ("", ".parquet, .csv"),
        ("mongodb://host/db", "duckdb:///warehouse.duckdb"),
        ("sqlite://", "names no database file"),
        ("sqlite:///:memory:", "names no database file"),
        ("sqlite:///%3Amemory%3A", "names no database file"),
        ("sqlite:///w%00.db", "cannot be written"),
        ("duckdb://w.duckdb", "names no database file"),
        ("sqlite:///w.db?mode=ro", "names no database file"),
        ("room/../nowhere/out.csv", "does not exist"),
        ("sqlite:///nowhere/w.db", "does not exist"),
        ("sqlite:///room", "is a directory"),
        ("mysql+mysqldb://ann:hunter2@host/shop", "Write mysql:// in place of mysql.mysqldb://"),
        ("mariadb+mariadbconnector://ann:hunter2@host/shop", "Write mariadb:// in place of mariadb.mariadbconnector"),
    ]
    for text, words in cases:
        with pytest.raises(ConfigurationError, match=words):
            parse_destination(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("out.txt", "Cannot write to a file ending in '.txt'"),
        ("-", "a folder ending in .parquet"),
        ("s3://bucket/out.txt", "Cannot write to a file ending in '.txt'"),
        ("snowflake://host/db", "Snowflake is not written directly"),
        ("sqlite:///", "names no database file"),
        ("sqlite:///nowhere/w.db", "does not exist: create it, or name another place"),
        ("nowhere/out.parquet", "does not exist: create it, or name another place"),
        ("out.xlsx", "a folder ending in .parquet"),
        ("mongodb://host/db", "there is no driver for mongodb"),
        ("mysql+mysqldb://host/shop", "Write mysql:// in place of mysql.mysqldb://"),
    ],
)
def test_a_wrong_destination_of_receipts_is_refused_without_a_word_of_an_export(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^Receipts cannot be written. .*{words}") as refusal:
        parse_receipts(text)
    for word in ("export", ".xlsx,", "(standard output)"):
        assert word not in str(refusal.value)


@pytest.mark.parametrize("text", ["oracle://me:hunter2@host/db", "oracle://me:hunt/er2@host/db?password=hunter2"])
def test_a_password_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse_destination(text)

    assert "hunter2" not in str(refusal.value)
    assert "er2@" not in str(refusal.value)


def test_a_name_that_a_database_cannot_have_is_refused() -> None:
    cases: list[tuple[str, str | None, str]] = [
        ("", None, "readable"),
        ("a\x00b", None, "readable"),
        ("a:b", None, "readable"),
        ("sqlite_x", None, "reserved"),
        ("t", "s", "no schemas"),
    ]
    for table, schema, words in cases:
        with pytest.raises(ConfigurationError, match=words):
            parse_destination("sqlite:///w.db", table=table, schema=schema)


@pytest.mark.parametrize("scheme", ["duckdb", "sqlite"])
@pytest.mark.parametrize("folder", ["fo%41ld é", "100%", "a%3Fb", "a+b #1&c"])
def test_a_job_in_any_folder_exports_into_that_folder(tmp_path: Path, scheme: str, folder: str) -> None:
    earlier = AT - timedelta(days=1)
    home = tmp_path / folder
    home.mkdir()
    destination = parse_destination(resolve_destination(f"{scheme}:///w.db", home))
    for rows, at in ((table_of(BARE, at=earlier), earlier), (MIXED, AT)):  # a new database, and one that is there
        writer = open_writer(destination)
        writer.prepare(beginning_of(run_of(0)))
        writer.start()
        writer.add(rows)
        assert writer.has_target == (rows is MIXED)
        writer.publish(run_of(rows.num_rows, at=at))
        writer.discard()

    assert destination.path == home / "w.db"
    assert [path.name for path in home.iterdir()] == ["w.db"]
    assert [file.name for file in tmp_path.iterdir() if file.name != "room"] == [folder]
    assert read_back(destination).sort_by("id").equals(MIXED.sort_by("id"))


def test_a_question_mark_in_a_path_works_in_sqlite_and_not_in_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "wh?t"
    home.mkdir()

    assert parse_destination(resolve_destination("sqlite:///w.db", home)).path == home / "w.db"
    with pytest.raises(ConfigurationError, match=r"wh\?t/w.db has a '\?', after which DuckDB reads options"):
        parse_destination(resolve_destination("duckdb:///w.db", home))
    monkeypatch.chdir(home)
    with pytest.raises(ConfigurationError, match="after which DuckDB reads options"):
        parse_destination("duckdb:///w.db")


def test_the_text_of_a_destination_can_be_parsed() -> None:
    Path("100%25 ü?").mkdir()
    shown = str(parse_destination("sqlite:///100%2525 ü%3F/w.db"))

    assert shown == "sqlite:///100%2525 ü%3F/w.db (table subscribers)"
    assert parse_destination(shown.split(" (table")[0]).path == Path("100%25 ü?/w.db")


def test_a_url_that_was_mistyped_shows_no_password() -> None:
    for text in [
        "etl:s3cret@db/warehouse",
        "postgresql:/etl:s3cret@db/w",
        "postgresql//etl:s3cret@db/w",
        "user=etl password=s3cret",
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match="Cannot write") as refusal:
            parse_destination(text)
        assert "s3cret" not in str(refusal.value)
