"""Exports that are killed at each of their statements: the table is as before or as after the export. The next export
succeeds and leaves no temporary tables and files."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from connector.warehouse.destination import Destination, Format
from tests.export.nursery import Export, open_nursery
from tests.export.readers import NAMES
from tests.export.test_modes import person, publish
from tests.export.warehouses import DATABASES, MERGING, connect, open_destination, run_sql

KILLS = int(os.environ.get("CONNECTOR_TEST_KILLS", "5"))
STEP = 1 if KILLS >= 50 else 4
"""Every fourth statement, from another start in each test. A campaign kills at every statement."""
BEFORE: list[list[Any]] = [[1, "Ann"], [2, "Ann"], [3, "Ann"]]
AFTER: list[list[Any]] = [[2, "Bo"], [3, "Ann"], [4, "Ann"]]

Shape = list[tuple[Any, ...]]

SHAPES: dict[str, tuple[Shape, Shape]] = {  # id, name, whether it is over; before and after
    "replace": (
        [(1, "Ann", 0), (2, "Ann", 0), (3, "Ann", 0)],
        [(2, "Bo", 0), (3, "Ann", 0), (4, "Ann", 0)],
    ),
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
OVER = {"upsert": "deleted_at is not null", "history": "valid_to is not null"}


@pytest.fixture(scope="module")
def export() -> Iterator[Export]:
    with open_nursery() as run:
        yield run


def url_of(table: Destination) -> str:
    """What to give to `parse_destination` for it."""
    if table.url is not None:
        return table.url.render_as_string(hide_password=False)
    return NAMES[table.format].format(table.path.parent)


def task_of(table: Destination, people: list[list[Any]], number: int) -> dict[str, Any]:
    options = {"mode": str(table.mode), "schema": table.schema}
    return {"url": url_of(table), "options": options, "people": people, "number": number}


def look(table: Destination) -> Shape:
    over = OVER.get(str(table.mode), "1 = 0")
    rows = run_sql(table, f"select id, first_name, case when {over} then 1 else 0 end from {{}}subscribers")
    return sorted(tuple(row) for row in rows)


def has_table(table: Destination) -> bool:
    if table.url is None and not table.path.exists():
        return False
    if table.format is Format.DUCKDB:
        return bool(run_sql(table, "select 1 from duckdb_tables() where table_name = 'subscribers'"))
    with connect(table) as connection:
        return bool(sa.inspect(connection).has_table("subscribers", schema=table.schema))


def list_leftovers(table: Destination) -> list[str]:
    """Whatever a killed export may leave: files beside a file, tables of the connector's own."""
    if table.url is None:
        return [file.name for file in table.path.parent.iterdir() if file != table.path]
    if table.format is Format.MYSQL:
        names = [name for (name,) in run_sql(table, "show tables")]
        return [name for name in names if name.startswith("_connector_") and name != "_connector_runs"]
    return []


CELLS = [(form, "history") for form in MERGING] + [(Format.SQL, "append"), (Format.SQLITE, "replace")]
CELLS += [(Format.SQLITE, "append"), (Format.SQLITE, "upsert")]
"""Every database in one mode, and SQLite in every mode: databases commit in their own way, modes add statements."""


@pytest.mark.parametrize(("form", "mode"), CELLS)
def test_a_table_of_a_killed_export_is_as_before_or_as_after(
    form: Format, mode: str, export: Export, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    before, after = SHAPES[mode]
    table = open_destination(request, tmp_path, form, mode=mode)
    publish(table, [person(*row) for row in BEFORE], 1)
    number, seen, is_killed, statement = 1, set(), False, 0
    for statement in range(1 + len(form + mode) % STEP, 60, STEP):
        number += 1
        is_killed = export(**task_of(table, AFTER, number), statement=statement)
        shape = look(table)
        assert shape in (before, after), (statement, shape)
        seen.add(tuple(shape))
        if not is_killed or shape == after:
            break
    assert statement > STEP, "the kills came at statements"
    assert look(table) == after
    assert seen == {tuple(before), tuple(after)}
    assert list_leftovers(table) == []


@pytest.mark.parametrize("form", DATABASES)
def test_a_killed_first_export_has_written_no_row_or_every_row(
    form: Format, export: Export, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Where a rollback removes tables, too, there is no table."""
    mode = "replace" if form is Format.SQL else "history"
    table, statement = open_destination(request, tmp_path, form, mode=mode), 0
    for statement in range(1 + len(form) % STEP, 60, STEP):
        is_killed = export(**task_of(table, BEFORE, statement), statement=statement)
        if has_table(table):
            may_be_empty = form in (Format.MYSQL, Format.SQL)
            assert look(table) == SHAPES[mode][0] or (may_be_empty and look(table) == [])
        if not is_killed:
            break
    assert statement > 3
    assert look(table) == SHAPES[mode][0]
    assert list_leftovers(table) == []
