"""Exports that are killed at one of their statements. A killed export leaves either all old rows or all new rows. The
next export succeeds and leaves no temporary table or file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from connector.warehouse.destination import Destination, Format
from tests.export.forked_exports import RunExport, open_killable_exports
from tests.export.readers import TARGET_NAME_BY_FORMAT
from tests.export.test_modes import build_person, publish_people
from tests.export.warehouses import MERGING_FORMATS, connect, open_destination, run_sql

KILL_COUNT = int(os.environ.get("CONNECTOR_TEST_KILLS", "5"))
KILL_INTERVAL = 1 if KILL_COUNT >= 50 else 4
"""Exports are killed at every fourth kill point, and the first kill point differs between the tests. With a KILL_COUNT
of 50 or more, exports are killed at every kill point."""
OLD_PEOPLE: list[list[Any]] = [[1, "Ann"], [2, "Ann"], [3, "Ann"]]
NEW_PEOPLE: list[list[Any]] = [[2, "Bo"], [3, "Ann"], [4, "Ann"]]

RowTuples = list[tuple[Any, ...]]

# The rows before and after the export, by mode. A row has its id, its name, and 1 if it is marked as deleted.
EXPECTED_ROWS_BY_MODE: dict[str, tuple[RowTuples, RowTuples]] = {
    "replace": ([(1, "Ann", 0), (2, "Ann", 0), (3, "Ann", 0)], [(2, "Bo", 0), (3, "Ann", 0), (4, "Ann", 0)]),
    "append": (
        [(1, "Ann", 0), (2, "Ann", 0), (3, "Ann", 0)],
        [(1, "Ann", 0), (2, "Ann", 0), (2, "Bo", 0), (3, "Ann", 0), (3, "Ann", 0), (4, "Ann", 0)],
    ),
    "upsert": (
        [(1, "Ann", 0), (2, "Ann", 0), (3, "Ann", 0)],
        [(1, "Ann", 1), (2, "Bo", 0), (3, "Ann", 0), (4, "Ann", 0)],
    ),
    "history": (
        [(1, "Ann", 0), (2, "Ann", 0), (3, "Ann", 0)],
        [(1, "Ann", 1), (2, "Ann", 1), (2, "Bo", 0), (3, "Ann", 0), (4, "Ann", 0)],
    ),
}
IS_DELETED_SQL_BY_MODE = {"upsert": "deleted_at is not null", "history": "valid_to is not null"}


@pytest.fixture(scope="module")
def kill_export() -> Iterator[RunExport]:
    with open_killable_exports() as run:
        yield run


def build_target_text(table: Destination) -> str:
    """Return the argument of `parse_destination` for this table."""
    if table.url is not None:
        return table.url.render_as_string(hide_password=False)
    return TARGET_NAME_BY_FORMAT[table.format].format(table.path.parent)


def build_task(table: Destination, people: list[list[Any]], run_number: int) -> dict[str, Any]:
    options = {"mode": str(table.mode), "schema": table.schema}
    return {"url": build_target_text(table), "options": options, "people": people, "run_number": run_number}


def read_rows(table: Destination) -> RowTuples:
    is_deleted_sql = IS_DELETED_SQL_BY_MODE.get(str(table.mode), "1 = 0")
    rows = run_sql(table, f"select id, first_name, case when {is_deleted_sql} then 1 else 0 end from {{}}subscribers")
    return sorted(tuple(row) for row in rows)


def has_table(table: Destination) -> bool:
    if table.url is None and not table.path.exists():
        return False
    if table.format is Format.DUCKDB:
        return bool(run_sql(table, "select 1 from duckdb_tables() where table_name = 'subscribers'"))
    with connect(table) as connection:
        return bool(sa.inspect(connection).has_table("subscribers", schema=table.schema))


def list_leftovers(table: Destination) -> list[str]:
    """Return the files and temporary tables that killed exports have left."""
    if table.url is None:
        return [file.name for file in table.path.parent.iterdir() if file != table.path]
    if table.format is Format.MYSQL:
        table_names = [name for (name,) in run_sql(table, "show tables")]
        return [name for name in table_names if name.startswith("_connector_") and name != "_connector_runs"]
    return []


FORMATS_AND_MODES = [(database_format, "history") for database_format in MERGING_FORMATS] + [
    (Format.SQL, "append"),
    (Format.SQLITE, "replace"),
]
FORMATS_AND_MODES += [(Format.SQLITE, "append"), (Format.SQLITE, "upsert")]
"""The formats and modes of the killed exports. Every database is tested, because databases commit in different
ways. SQLite is tested in every mode, because the modes run different statements."""


@pytest.mark.parametrize(("database_format", "mode"), FORMATS_AND_MODES)
def test_a_killed_export_leaves_all_old_rows_or_all_new_rows(
    database_format: Format, mode: str, kill_export: RunExport, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    rows_before, rows_after = EXPECTED_ROWS_BY_MODE[mode]
    table = open_destination(request, tmp_path, database_format, mode=mode)
    publish_people(table, [build_person(*row) for row in OLD_PEOPLE], 1)
    export_number, seen_rows, is_killed, statement_number = 1, set(), False, 0
    for statement_number in range(1 + len(database_format + mode) % KILL_INTERVAL, 60, KILL_INTERVAL):
        export_number += 1
        is_killed = kill_export(**build_task(table, NEW_PEOPLE, export_number), statement_number=statement_number)
        rows = read_rows(table)
        assert rows in (rows_before, rows_after), (statement_number, rows)
        seen_rows.add(tuple(rows))
        if not is_killed or rows == rows_after:
            break
    assert statement_number > KILL_INTERVAL, "no export was killed"
    assert read_rows(table) == rows_after
    assert seen_rows == {tuple(rows_before), tuple(rows_after)}
    assert list_leftovers(table) == []


@pytest.mark.parametrize("database_format", [Format.SQLITE, Format.MYSQL])
def test_a_killed_first_export_writes_all_of_its_rows_or_none_of_its_rows(
    database_format: Format, kill_export: RunExport, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """If the rollback of the database also removes the new table, the table does not exist afterwards."""
    table, statement_number = open_destination(request, tmp_path, database_format, mode="history"), 0
    for statement_number in range(1 + len(database_format) % KILL_INTERVAL, 60, KILL_INTERVAL):
        is_killed = kill_export(**build_task(table, OLD_PEOPLE, statement_number), statement_number=statement_number)
        if has_table(table):
            may_be_empty = database_format is Format.MYSQL
            assert read_rows(table) == EXPECTED_ROWS_BY_MODE["history"][0] or (may_be_empty and read_rows(table) == [])
        if not is_killed:
            break
    assert statement_number > 3
    assert read_rows(table) == EXPECTED_ROWS_BY_MODE["history"][0]
    assert list_leftovers(table) == []
