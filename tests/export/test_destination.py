"""The text of a destination is checked before the first request, and no message shows a password."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from connector.choices import EXPORT_FORMATS
from connector.errors import ConfigurationError
from connector.units import resolve_destination
from connector.warehouse.destination import Destination, Format, parse_destination, parse_receipts
from connector.warehouse.opening import open_writer
from tests.export.people import BARE_SUBSCRIBER, EXPORT_TIME, MIXED_TABLE, build_run, build_start, build_test_table
from tests.export.readers import read_exported_table
from tests.export.warehouses import DATABASE_FORMATS, FILE_FORMATS


@pytest.fixture(autouse=True)
def use_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()


def test_a_person_can_choose_each_file_format() -> None:
    file_formats = {file_format for file_format in Format if not Destination(file_format, Path("out")).is_database}
    assert file_formats == set(EXPORT_FORMATS) == set(FILE_FORMATS)


def test_the_tests_cover_each_format() -> None:
    assert {*FILE_FORMATS, *DATABASE_FORMATS, Format.DELTA} == set(Format)


def test_a_suffix_or_a_scheme_selects_the_format() -> None:
    texts_and_destinations: list[tuple[str, Format, str]] = [
        ("out.parquet", Format.PARQUET, "out.parquet"),
        ("folder/Out.CSV", Format.CSV, "folder/Out.CSV"),
        ("out.jsonl", Format.JSON_LINES, "out.jsonl"),
        ("duckdb:///w.duckdb", Format.DUCKDB, "w.duckdb"),
        ("DUCKDB:///folder/w.db", Format.DUCKDB, "folder/w.db"),
        ("sqlite:////tmp/w.db", Format.SQLITE, "/tmp/w.db"),
        ("sqlite+pysqlite:///w.db", Format.SQLITE, "w.db"),
        ("sqlite:///two%20words%3F%25.db", Format.SQLITE, "two words?%.db"),
        ("duckdb:///gr%C3%B6ße%2541.duckdb", Format.DUCKDB, "größe%41.duckdb"),
        ("two%20words.csv", Format.CSV, "two%20words.csv"),
    ]
    for text, file_format, path in texts_and_destinations:
        destination = parse_destination(text)
        assert (destination.format, destination.path, destination.table) == (file_format, Path(path), "subscribers")


REFUSED_DESTINATIONS: list[tuple[str, dict[str, Any], str]] = [
    # the destination, its options, and a part of the error
    ("out.xls", {}, "Cannot write.*.parquet, .csv"),
    ("out", {}, ".parquet, .csv"),
    ("", {}, ".parquet, .csv"),
    ("mongodb://host/db", {}, "duckdb:///warehouse.duckdb"),
    ("sqlite://", {}, "does not contain the path of a database file"),
    ("sqlite:///:memory:", {}, "does not contain the path of a database file"),
    ("sqlite:///%3Amemory%3A", {}, "does not contain the path of a database file"),
    ("sqlite:///w%00.db", {}, "cannot be written"),
    ("duckdb://w.duckdb", {}, "does not contain the path of a database file"),
    ("sqlite:///w.db?mode=ro", {}, r"continues with '\?' and options.*leave the options out"),
    ("folder/../nowhere/out.csv", {}, "does not exist"),
    ("sqlite:///nowhere/w.db", {}, "does not exist"),
    ("sqlite:///folder", {}, "is a directory"),
    ("delta://~/lake", {}, "write the full path"),
    ("~/people.csv", {}, "write the full path"),
    ("mysql+mysqldb://ann:pass-word@host/shop", {}, "Write mysql:// in place of mysql.mysqldb://"),
    ("mariadb+mariadbconnector://ann:pass-word@h/s", {}, "Write mariadb:// in place of mariadb.mariadbconnector"),
    ("postgresql+psycopg2cffi://me:pass-word@h/d", {}, r"write postgresql:// in place of postgresql\+psycopg2cffi://"),
    ("oracle://me:pass-word@host/db", {}, "oracle"),
    ("oracle://me:pass/word@host/db?password=pass-word", {}, "oracle"),
    ("etl:pass-word@db/warehouse", {}, "Cannot write"),
    ("postgresql:/etl:pass-word@db/w", {}, "Cannot write"),
    ("postgresql//etl:pass-word@db/w", {}, "Cannot write"),
    ("user=etl password=pass-word", {}, "Cannot write"),
    ("snowflake://u:pass-word@a/b", {}, "Snowflake is not written directly.*docs/how-to/warehouses.md"),
    ("bigquery://project", {}, "BigQuery"),
    ("redshift+psycopg2://u:pass-word@h/d", {}, "Redshift"),
    ("mssql+pyodbc://u:pass-word@h/d", {}, "SQL Server"),
    ("databricks://token:pass-word@h", {}, "Databricks"),
    # Names of tables and schemas
    ("sqlite:///w.db", {"table": ""}, "readable"),
    ("sqlite:///w.db", {"table": "a\x00b"}, "readable"),
    ("sqlite:///w.db", {"table": "a:b"}, "readable"),
    ("sqlite:///w.db", {"table": "sqlite_x"}, "reserved"),
    ("sqlite:///w.db", {"table": "t", "schema": "s"}, "no schemas"),
    # Options that a destination does not have
    ("people.csv", {"file_format": "jsonl"}, "is written as csv"),
    ("people.parquet", {"partition_by": ["gender"]}, "does not support --partition-by"),
    ("sqlite:///w.db", {"file_format": "csv"}, "does not support --format"),
    ("sqlite:///w.db", {"group_readable": True}, "does not support --group-readable"),
    ("people.csv", {"table": "people"}, "does not support --table"),
    ("people.csv", {"schema": "crm"}, "does not support --schema"),
    ("sqlite:///w.db", {"run_columns": False}, r"does not support --no-run-columns \(in a job: `run_columns`\)"),
    ("people.xlsx", {"delimiter": ";"}, "does not support --delimiter"),
    ("people.xlsx", {"csv_dialect": "excel"}, "does not support --csv-dialect"),
    ("people.xlsx", {"guard_formulas": True}, "does not support --guard-formulas"),
    ("people.parquet", {"delimiter": "\t"}, "does not support --delimiter"),
    ("people.xlsx", {"mode": "append"}, "does not support --mode append"),
    ("people.xlsx.gz", {}, "Cannot write"),
    ("people.tsv", {}, "ending in '.tsv'.*another ending and --format"),
    # Object stores
    ("s3://bucket/a.csv", {"table": "people"}, "does not support --table"),
    ("s3://bucket/a.csv", {"group_readable": True}, "does not support --group-readable"),
    ("s3://bucket/a.csv", {"mode": "upsert"}, "Possible: replace."),
    ("s3://bucket/a.txt", {}, "Cannot write to a file ending in '.txt'"),
    ("s3://k:pass-word@bucket/a.csv", {}, "cannot contain credentials"),
    # Delta tables
    ("delta://", {}, "needs a folder"),
    ("delta://lake", {"mode": "history"}, "Possible: replace, append, upsert"),
    ("delta://lake", {"table": "people"}, "does not support --table"),
    ("delta://lake", {"file_format": "csv"}, "does not support --format"),
    ("delta://lake", {"run_columns": False}, "does not support --no-run-columns"),
    ("delta://lake", {"partition_by": ["tags"]}, "cannot be partitioned"),
    ("delta://lake", {"partition_by": ["gender"], "columns": ["email"]}, "add gender to the columns"),
    ("delta://ftp://host/lake", {}, "only objects at s3"),
]


@pytest.mark.parametrize(("destination_text", "options", "expected_text"), REFUSED_DESTINATIONS)
def test_the_error_of_an_unwritable_destination_shows_a_remedy_and_no_password(
    destination_text: str, options: dict[str, Any], expected_text: str
) -> None:
    with pytest.raises(ConfigurationError, match=expected_text) as error_info:
        parse_destination(destination_text, **options)
    assert not any(secret in str(error_info.value) for secret in ("pass-word", "pass/word", "word@"))


@pytest.mark.parametrize(
    ("destination_text", "expected_text"),
    [
        ("out.txt", "Receipts cannot be written. Cannot write to a file ending in '.txt'"),
        ("-", "Receipts cannot be written to standard output"),
        ("out.xlsx", "Receipts cannot be written to out.xlsx"),
        ("sqlite:///nowhere/w.db", "does not exist: create it, or name another destination"),
        ("nowhere/out.parquet", "does not exist: create it, or name another destination"),
    ],
)
def test_the_error_of_a_wrong_destination_of_receipts_does_not_mention_exports(
    destination_text: str, expected_text: str
) -> None:
    with pytest.raises(ConfigurationError, match=expected_text) as error_info:
        parse_receipts(destination_text)
    assert "export" not in str(error_info.value)


@pytest.mark.parametrize("destination_text", ["receipts.csv", "s3://bucket/receipts.csv", "delta://receipts"])
def test_a_table_or_a_schema_is_refused_for_receipts_in_files(destination_text: str) -> None:
    assert parse_receipts(destination_text).path == Path(
        destination_text.removeprefix("delta://").removeprefix("s3://")
    )
    for options in ({"table": "people"}, {"schema": "crm"}):
        with pytest.raises(ConfigurationError, match=f"does not support --{next(iter(options))}"):
            parse_receipts(destination_text, **options)


@pytest.mark.parametrize("scheme", ["duckdb", "sqlite"])
def test_a_relative_database_path_is_resolved_in_a_job_folder_with_any_name(tmp_path: Path, scheme: str) -> None:
    folder, earlier_time = "fo%41ld é a%3Fb+c #1&d 100%", EXPORT_TIME - timedelta(days=1)
    job_folder = tmp_path / folder
    job_folder.mkdir()
    destination = parse_destination(resolve_destination(f"{scheme}:///w.db", job_folder))
    # The first export creates the database, and the second export writes to the existing database.
    for rows, exported_at in (
        (build_test_table(BARE_SUBSCRIBER, exported_at=earlier_time), earlier_time),
        (MIXED_TABLE, EXPORT_TIME),
    ):
        writer = open_writer(destination)
        writer.prepare(build_start(build_run(0)))
        writer.start()
        writer.add(rows)
        assert writer.has_target == (rows is MIXED_TABLE)
        writer.publish(build_run(rows.num_rows, exported_at=exported_at))
        writer.discard()
    assert destination.path == job_folder / "w.db"
    assert [path.name for path in job_folder.iterdir()] == ["w.db"]
    assert [file.name for file in tmp_path.iterdir() if file.name != "folder"] == [folder]
    assert read_exported_table(destination).sort_by("id").equals(MIXED_TABLE.sort_by("id"))


def test_a_question_mark_in_a_path_works_in_sqlite_and_not_in_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_folder = tmp_path / "wh?t"
    job_folder.mkdir()
    assert parse_destination(resolve_destination("sqlite:///w.db", job_folder)).path == job_folder / "w.db"
    with pytest.raises(ConfigurationError, match=r"wh\?t/w.db has a '\?', after which DuckDB reads options"):
        parse_destination(resolve_destination("duckdb:///w.db", job_folder))
    monkeypatch.chdir(job_folder)
    with pytest.raises(ConfigurationError, match=r"wh\?t/w.db has a '\?'"):
        parse_destination("duckdb:///w.db")


def test_the_shown_url_of_a_destination_can_be_parsed_again() -> None:
    Path("100%25 ü?").mkdir()
    description = str(parse_destination("sqlite:///100%2525 ü%3F/w.db"))
    assert description == "sqlite:///100%2525 ü%3F/w.db (table subscribers)"
    assert parse_destination(description.split(" (table")[0]).path == Path("100%25 ü?/w.db")
