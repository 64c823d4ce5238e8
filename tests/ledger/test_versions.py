"""A ledger of another version is refused or upgraded. The queries of a run use an index."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, get_args
from zlib import crc32

import pytest
from sqlalchemy import CheckConstraint, Connection, MetaData, String, event, inspect, text
from sqlalchemy.schema import ColumnCollectionConstraint

from connector.errors import ConfigurationError, LedgerError
from connector.ledger.entries import Ledger, count_unsettled_entries
from connector.ledger.opening import open_ledger
from connector.ledger.planned import open_planned_ledger
from connector.ledger.problems import find_problems
from connector.ledger.receipts import ReceiptKind
from connector.ledger.schema import EMAILS_VERSION, SCHEMA_VERSION, emails_metadata, metadata
from connector.ledger.store import Base
from connector.outcomes import ProblemKind
from connector.runs.report import Status
from connector.states import State
from tests.ledger.places import ON_SQLITE, check_opening_fails
from tests.ledger.release_ledgers import (
    RELEASES,
    ROWS_BY_TABLE,
    begin_transaction,
    read_all_rows,
    write_ledger_of_release,
    write_rows_of_release,
)
from tests.ledger.transitions import IDENTITY, add_base, begin_run, bring_to_state

ENTRY_COUNT = 5_000


def write_meta(url: str, name: str, value: str) -> None:
    with open_ledger(url) as ledger, ledger.transaction() as connection:
        statement = text("UPDATE meta SET value = :value WHERE name = :name")
        connection.execute(statement, {"name": name, "value": value})


@pytest.mark.parametrize(
    ("name", "value"), [("schema_version", str(SCHEMA_VERSION + 1)), ("schema_version", ""), ("identity_rule", "0")]
)
def test_a_ledger_of_another_version_is_refused_and_stays_unchanged(ledger_url: str, name: str, value: str) -> None:
    write_meta(ledger_url, name, value)
    for _ in range(2):
        check_opening_fails(open_ledger(ledger_url), ConfigurationError, rf"{name} {value or 'none'},.*Use the version")
    check_opening_fails(open_planned_ledger(ledger_url, "account"), ConfigurationError, name)


def list_columns(ledger: Ledger) -> set[tuple[str, str, bool]]:
    """Return the table, the name and `nullable` of each column in the database of a ledger."""
    with ledger.transaction() as connection:
        columns_by_table = {table: inspect(connection).get_columns(table) for table in metadata.tables}
    return {
        (table, column["name"], column["nullable"]) for table, columns in columns_by_table.items() for column in columns
    }


@pytest.mark.parametrize("release", RELEASES)
def test_an_upgraded_ledger_of_a_release_has_every_column(ledger_url: str, release: str) -> None:
    write_ledger_of_release(ledger_url, release)
    with open_ledger(ledger_url) as ledger:
        columns = {
            (table.name, column.name, bool(column.nullable))
            for table in metadata.tables.values()
            for column in table.columns
        }
        assert columns <= list_columns(ledger)


@pytest.mark.parametrize("release", RELEASES)
def test_the_upgrade_of_a_ledger_keeps_all_rows(ledger_url: str, release: str) -> None:
    write_ledger_of_release(ledger_url, release)
    write_rows_of_release(ledger_url)
    rows_before = read_all_rows(ledger_url)
    assert len(rows_before["entry"]) == len(ROWS_BY_TABLE["entry"])
    with open_ledger(ledger_url):
        pass
    rows_after = read_all_rows(ledger_url)
    (version_row,) = (row for row in rows_before["meta"] if row["name"] == "schema_version")
    version_row["value"] = str(SCHEMA_VERSION)
    (dropped_entry,) = (row for row in rows_before["entry"] if row["status"] == 0)
    dropped_entry |= {"state": State.DROPPED, "status": None}
    for table, rows in rows_before.items():
        columns = rows[0] if rows else ()
        assert [{name: row[name] for name in columns} for row in rows_after[table]] == rows, table


@ON_SQLITE
def test_a_failed_upgrade_changes_nothing(ledger_url: str) -> None:
    write_ledger_of_release(ledger_url, RELEASES[0])
    write_rows_of_release(ledger_url)
    with begin_transaction(ledger_url) as connection:
        # The upgrade copies the entries, and then creates an index `opt_outs`. This table makes the creation fail.
        connection.exec_driver_sql("CREATE TABLE opt_outs (job TEXT, identity TEXT)")
    rows_before = read_all_rows(ledger_url)
    check_opening_fails(open_ledger(ledger_url), LedgerError, "opt_outs")
    assert read_all_rows(ledger_url) == rows_before


@pytest.mark.parametrize("release", RELEASES)
def test_a_view_that_a_user_added_works_after_the_upgrade(ledger_url: str, release: str) -> None:
    write_ledger_of_release(ledger_url, release)
    write_rows_of_release(ledger_url)
    with begin_transaction(ledger_url) as connection:
        connection.exec_driver_sql("CREATE VIEW dropped AS SELECT * FROM entry WHERE state = 6")
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        assert len(connection.exec_driver_sql("SELECT identity FROM dropped").all()) == 1


@pytest.mark.parametrize("release", RELEASES)
def test_an_upgraded_table_of_entries_equals_a_new_table(ledger_url: str, release: str) -> None:
    """An older ledger keeps its constraints. So a new state fails here until the upgrade replaces the constraints."""
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        description_of_new_table = describe_entry_table(connection)
    with begin_transaction(ledger_url) as connection:
        metadata.drop_all(connection)
    write_ledger_of_release(ledger_url, release)
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        assert describe_entry_table(connection) == description_of_new_table


def describe_entry_table(connection: Connection) -> list[str]:
    """Return a line for each column, key, constraint and index of the table of entries."""
    inspector = inspect(connection)
    table_parts = [
        *inspector.get_columns("entry"),
        *inspector.get_check_constraints("entry"),
        *inspector.get_foreign_keys("entry"),
        *inspector.get_indexes("entry"),
        inspector.get_pk_constraint("entry"),
    ]
    return sorted(json.dumps(part, default=str, sort_keys=True) for part in table_parts)


def test_the_rows_of_a_release_have_a_value_in_each_column() -> None:
    for table in metadata.tables.values():
        columns_with_value = {name for row in ROWS_BY_TABLE[table.name] for name in row}
        assert columns_with_value == set(table.columns.keys()), table.name


def test_a_run_upgrades_a_ledger_of_version_0_2(ledger_url: str) -> None:
    write_ledger_of_release(ledger_url, "0.2.0")
    check_opening_fails(open_planned_ledger(ledger_url, "account"), ConfigurationError, "run an import or a sync")
    with open_ledger(ledger_url) as ledger:
        begin_run(ledger)
        base = add_base(ledger)
        bring_to_state(ledger, base, State.CONFIRMED)
        with ledger.transaction():
            ledger.record_opt_outs(base, "crm", [IDENTITY])
    with open_ledger(ledger_url) as ledger, ledger.transaction():
        assert ledger.find_opt_outs(base, "crm") == [IDENTITY]
        assert find_problems(ledger, "account", "crm") == set()
    with open_planned_ledger(ledger_url, "account") as planned_ledger:
        assert planned_ledger.find_opt_outs(base, "crm") == [IDENTITY]


def test_a_change_of_the_tables_needs_a_new_schema_version() -> None:
    """An older ledger keeps its columns and constraints, and would refuse entries in the middle of a run. So each
    change of a column or constraint must raise SCHEMA_VERSION or EMAILS_VERSION, and needs an upgrade."""
    descriptions = [describe_tables(tables) for tables in (metadata, emails_metadata)]
    checksums = [crc32("\n".join(description).encode()) for description in descriptions]
    assert (SCHEMA_VERSION, EMAILS_VERSION, checksums) == (5, 1, [3833533533, 778840308]), descriptions


def test_each_name_that_a_ledger_stores_fits_its_column() -> None:
    """SQLite stores a text of any length. PostgreSQL refuses a text that is longer than its column."""
    names_by_column: dict[tuple[str, str], Iterable[str]] = {
        ("problem", "kind"): ProblemKind,
        ("receipt", "kind"): ReceiptKind,
        ("run", "status"): get_args(Status),
    }
    for (table_name, column_name), names in names_by_column.items():
        column_type = metadata.tables[table_name].columns[column_name].type
        assert isinstance(column_type, String)
        assert column_type.length is not None
        assert [name for name in names if len(name) > column_type.length] == [], column_name


def describe_tables(tables: MetaData) -> list[str]:
    """Return a line for each column and each constraint, in a fixed order."""
    columns = [
        f"{table.name}.{column.name} {column.type} {'' if column.nullable else 'not null'}"
        for table in tables.tables.values()
        for column in table.columns
    ]
    constraints = [
        f"{table.name} {constraint.name}: "
        f"{constraint.sqltext if isinstance(constraint, CheckConstraint) else ', '.join(constraint.columns.keys())}"
        for table in tables.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint | ColumnCollectionConstraint)
    ]
    return sorted(columns + constraints)


@contextmanager
def record_statements(ledger: Ledger) -> Iterator[list[tuple[str, Any]]]:
    """Yield a list of the statements that run inside the `with` block, each with its values."""
    statements: list[tuple[str, Any]] = []

    def record_statement(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        statements.append((statement, parameters))

    engine = ledger.connection.engine
    event.listen(engine, "before_cursor_execute", record_statement)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", record_statement)


def add_confirmed_entries(ledger: Ledger) -> Base:
    """Return a base with many CONFIRMED entries."""
    base = add_base(ledger)
    with ledger.transaction():
        ledger.record_listed_subscribers(
            base, "email", [(index.to_bytes(16, "big"), index) for index in range(1, ENTRY_COUNT)]
        )
    return base


def check_query_plan(connection: Connection, statement: str, parameters: Any, index_name: str) -> None:
    """Check that the database uses this index for the statement, and does not read the whole table of entries."""
    explain_sql = "EXPLAIN QUERY PLAN " if connection.dialect.name == "sqlite" else "EXPLAIN "
    plan_text = "\n".join(str(row) for row in connection.exec_driver_sql(explain_sql + statement, parameters))
    assert index_name in plan_text, plan_text
    assert "SCAN entry" not in plan_text, plan_text
    assert "Seq Scan on entry" not in plan_text, plan_text


def test_the_queries_for_unfinished_entries_use_the_index_of_unfinished_entries(ledger: Ledger) -> None:
    base = add_confirmed_entries(ledger)
    bring_to_state(ledger, base, State.UNKNOWN)
    with ledger.transaction() as connection:
        connection.exec_driver_sql("ANALYZE")
        with record_statements(ledger) as statements:
            ledger.mark_sending_entries_unknown()
            assert [entry.identity for entry in ledger.find_unfinished_entries(base, State.UNKNOWN)] == [IDENTITY]
            assert count_unsettled_entries(connection) == {"account": 1}
        assert len(statements) == 3
        for statement, parameters in statements:
            check_query_plan(connection, statement, parameters, "unfinished_entries")


def test_the_query_for_shown_entries_uses_the_index_of_shown_entries(ledger: Ledger) -> None:
    base, shown_identity = add_confirmed_entries(ledger), (ENTRY_COUNT - 1).to_bytes(16, "big")
    with ledger.transaction() as connection:
        ledger.record_shown_identities(base, [shown_identity])
        connection.exec_driver_sql("ANALYZE")
        with record_statements(ledger) as statements:
            assert [entry.identity for entry in ledger.find_shown_entries(base, b"", 4)] == [shown_identity]
        for statement, parameters in statements:
            check_query_plan(connection, statement, parameters, "shown_entries")
