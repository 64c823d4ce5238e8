"""SQL sources: SQLite files, a PostgreSQL server, and databases that cannot be opened."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.databases import explain, format_url, parse_url
from connector.errors import ConfigurationError, SourceError
from connector.sources.sql import open_sql
from tests.databases import Database, open_postgres


@pytest.fixture
def crm_url(tmp_path: Path) -> str:
    database = Database("sqlite", f"sqlite:///{tmp_path}/crm.db")
    database.run('create table people (id integer, email text, note, "Group" text)')
    database.insert_rows("people", [(1, "a@x.com", 7.0, "VIP"), (2, None, 0.1, "é"), (3, "", b"bytes", "x")])
    return database.url


@pytest.fixture(scope="module")
def postgres() -> Iterator[Database]:
    with open_postgres() as database:
        yield database


def test_bytes_that_are_not_utf8_reject_their_row(crm_url: str) -> None:
    Database("sqlite", crm_url).run(
        "insert into people values (4, cast(x'4dfc' as text), x'ff00', 'y'), (5, 'b@x.com', 1, 'z')"
    )
    with open_sql(crm_url, query="select * from people where id > 2") as source:
        (chunk,) = source.read_chunks()
    assert chunk.frame["id"].tolist() == ["3", "5"]
    assert chunk.row_numbers.tolist() == [1, 3]
    (row,) = chunk.malformed_rows
    assert (row.number, row.line, row.code) == (2, None, "encoding")
    assert row.raw_record == r'{"id":"4","email":"M\\xfc","note":"\\xff\u0000","Group":"y"}'
    assert "column email" in row.message


def test_an_empty_result_has_no_chunk(crm_url: str) -> None:
    with open_sql(crm_url, query="select * from people where 0") as source:
        assert source.columns == ("id", "email", "note", "Group")
        assert list(source.read_chunks()) == []


def test_a_missing_database_is_refused_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such SQLite database"):
        open_sql(f"sqlite:///{tmp_path}/none.db", table="people")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(SourceError, match="is a folder"):
        open_sql(f"sqlite:///{tmp_path}", table="people")
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at " * 20)
    with pytest.raises(SourceError, match="not a database"):
        open_sql(f"sqlite:///{tmp_path}/text.db", table="people")


def test_the_error_of_a_database_that_cannot_be_opened_shows_no_password() -> None:
    urls_and_errors: list[tuple[str, type[Exception], str]] = [
        ("postgresql://u:hunter2@127.0.0.1:1/x", SourceError, "127.0.0.1"),
        ("mysql://u:hunter2@127.0.0.1:1/x?ssl_key=hunter2", SourceError, "127.0.0.1"),
        ("mariadb://u:hunter2@127.0.0.1:1/x", SourceError, "127.0.0.1"),
        ("oracle://u:hunter2@h/x", ConfigurationError, "driver"),
        ("nosuch://u:hunter2@h/x", ConfigurationError, "driver"),
        (
            "postgresql+asyncpg://u:hunter2@h/x",
            ConfigurationError,
            "write postgresql:// in place of postgresql+asyncpg",
        ),
        ("postgresql://u:hunter2@rd/x@127.0.0.1:1/db", ConfigurationError, "%40 and each / in a password as %2F"),
        ("postgresql://u:pa55w@hunter2/x@127.0.0.1:1/db", ConfigurationError, "%40 and each / in a password as %2F"),
        ("postgresql://u:pa55w@hunter2@127.0.0.1:1/db", ConfigurationError, "%40 and each / in a password as %2F"),
        ("postgresql://u:pa55w@/hunter2@127.0.0.1:1/db", ConfigurationError, "%40 and each / in a password as %2F"),
        ("postgresql://u:pa55w@hunter2?x@127.0.0.1:1/db", ConfigurationError, "%40 and each / in a password as %2F"),
        ("postgresql://u:pa55w@[hunter2]x@127.0.0.1:1/db", ConfigurationError, "%40 and each / in a password as %2F"),
        ("postgresql://u/x:hunter2@127.0.0.1:1/db", ConfigurationError, "%40 and each / in a password as %2F"),
        ("postgresql://u:pa55w@w:hunter2@127.0.0.1:1/db", ConfigurationError, "%40 and each / in a password as %2F"),
        ("postgresql://u:hunter2@w:x/y", ConfigurationError, "%40 and each / in a password as %2F"),
        ("u:hunter2@h", ConfigurationError, "database URL"),
        ("postgresql://u:hunter2@h:port/x", ConfigurationError, "database URL"),
    ]
    for url, error, expected_text in urls_and_errors:
        with pytest.raises(error) as error_info:
            open_sql(url, query="select 1")
        assert expected_text in str(error_info.value)
        assert "hunter2" not in str(error_info.value)
        assert error_info.value.__suppress_context__ or error_info.value.__context__ is None


def test_an_at_sign_outside_the_password_stays_in_its_part_of_the_url() -> None:
    urls_and_parts: list[tuple[str, str | None, str]] = [
        ("postgresql://me@corp.com:pw@h/db", "h", "db"),
        ("postgresql://u:p%40s%2Fw@h/my%40db", "h", "my@db"),
        ("postgresql://u:p/w@h/db", "h", "db"),
        ("postgresql:///db@home", None, "db@home"),
        ("sqlite:////home/a@b/crm.db", None, "/home/a@b/crm.db"),
    ]
    for url, host, database in urls_and_parts:
        parsed_url = parse_url(url)
        assert (parsed_url.host, parsed_url.database) == (host, database)


def test_a_source_needs_either_a_query_or_a_table(crm_url: str) -> None:
    with pytest.raises(ConfigurationError, match="either a query or a table"):
        open_sql(crm_url)
    with pytest.raises(ConfigurationError, match="either a query or a table"):
        open_sql(crm_url, query="select 1", table="people")


def test_the_names_of_a_schema_and_a_table_in_postgresql_are_quoted(postgres: Database) -> None:
    postgres.run('create schema "Sales"', 'create table "Sales"."People" as select 1 as id')
    with open_sql(postgres.url, table="Sales.People") as source:
        assert [chunk.frame.to_dict("list") for chunk in source.read_chunks()] == [{"id": ["1"]}]


def test_a_session_in_postgresql_is_read_only(postgres: Database) -> None:
    postgres.run("create sequence numbers")
    with (
        pytest.raises(SourceError, match="read-only"),
        open_sql(postgres.url, query="select nextval('numbers')") as source,
    ):
        list(source.read_chunks())


def test_a_password_in_the_error_of_a_driver_is_masked() -> None:
    url = parse_url("postgresql://u:hunter2@h/x?sslpassword=hunter3")
    assert explain(ValueError("cannot use hunter2 or hunter3\nat all"), url) == "cannot use *** or ***"
    assert format_url(url) == "postgresql://u:***@h/x"


def test_a_short_option_is_masked_only_if_it_may_be_a_password() -> None:
    url = parse_url("postgresql://h/x?user=u&sslPassword=pq&options=hunter2&note=hunter2more")
    assert explain(ValueError("Connection refused: pq, hunter2 or hunter2more"), url) == (
        "Connection refused: ***, *** or ***"
    )
