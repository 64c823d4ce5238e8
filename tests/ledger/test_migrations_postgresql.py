"""Older ledgers in PostgreSQL are brought forward, too."""

import psycopg
import pytest

from connector.ledger import KeptCursor, move_cursor, open_ledger, read_cursor
from connector.ledger.schema import SCHEMA_VERSION
from tests.ledger.old_ledgers import ALWAYS, SAMPLES, SOURCE, BrokenError, heard
from tests.ledger.places import add_schema, run_sql


@pytest.fixture(params=["version_2_postgresql.sql", "version_3_postgresql.sql"])
def old_server(request: pytest.FixtureRequest, postgres_url: str) -> str:
    """A ledger of each older version that was ever kept in PostgreSQL."""
    with psycopg.connect(postgres_url) as connection:  # statements of many in one text: SQLAlchemy's prepares each
        connection.execute((SAMPLES / request.param).read_bytes())
    return postgres_url


def describe_server(url: str) -> list[list[tuple[object, ...]]]:
    """Columns and constraints of every table of the ledger in PostgreSQL."""
    columns = (
        "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns "
        "WHERE table_schema = current_schema() ORDER BY 1, 2"
    )
    constraints = (
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2"
    )
    return [run_sql(url, columns), run_sql(url, constraints)]


def read_server(url: str) -> dict[str, list[tuple[object, ...]]]:
    tables = {"entry": ALWAYS, "base": "*", "run": "*", "refusal": "*"}
    return {table: run_sql(url, f"SELECT {columns} FROM {table} ORDER BY 1, 2") for table, columns in tables.items()}


def test_an_old_ledger_in_postgresql_becomes_one_like_a_new_one(old_server: str, postgres: str) -> None:
    before = read_server(old_server)
    assert [len(rows) for rows in before.values()] == [10, 2, 2, 2]
    new = add_schema(postgres)
    for url in (old_server, new):
        with open_ledger(url):
            pass
    assert describe_server(old_server) == describe_server(new)
    before["run"] = [(*row, None, None) for row in before["run"]]  # how many rows they read, and for whom, nobody noted
    assert read_server(old_server) == before
    assert run_sql(old_server, "SELECT value FROM meta ORDER BY name") == [("1",), (str(SCHEMA_VERSION),)]
    with open_ledger(old_server) as ledger, ledger.transaction() as connection:
        move_cursor(connection, "crm-nightly", SOURCE, "7", 1)
        assert read_cursor(connection, "crm-nightly", SOURCE) == KeptCursor("7", "run-old")
        assert ledger.mark_died() == 2


def test_a_migration_that_breaks_in_postgresql_leaves_the_old_ledger_whole(old_server: str) -> None:
    before, version = describe_server(old_server), run_sql(old_server, "SELECT value FROM meta ORDER BY name")

    def break_there(statement: str) -> None:
        if statement.startswith("UPDATE meta"):
            raise BrokenError

    with heard(break_there), pytest.raises(BrokenError), open_ledger(old_server):
        pass
    assert describe_server(old_server) == before
    assert run_sql(old_server, "SELECT value FROM meta ORDER BY name") == version
    assert version[1] in [("2",), ("3",)]
