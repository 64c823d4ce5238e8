"""The points at which a writer of a destination can be killed. The writer calls a callback at each point."""

import os
import sys
from collections.abc import Callable
from typing import Any

from connector.warehouse.database import Interruption, Statement
from connector.warehouse.duckdb import DuckdbDatabase
from connector.warehouse.servers import MysqlDatabase, PostgresDatabase, SqlalchemyDatabase
from connector.warehouse.sqlite import SqliteDatabase

DISK_CHANGE_EVENTS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.chmod")
"""The names of the audit events that Python raises before changes of the disk."""


def call_at_statements(callback: Callable[[], None]) -> None:
    """Call `callback` before each statement that changes a database, before and after rows are loaded, and before each
    commit."""
    for database_class in (PostgresDatabase, MysqlDatabase, SqlalchemyDatabase, SqliteDatabase, DuckdbDatabase):
        _patch_database(database_class, callback)


def _patch_database(database_class: type[Any], callback: Callable[[], None]) -> None:
    original_run, original_load, original_commit = database_class.run, database_class.load, database_class.commit

    def run_with_callback(self: Any, statement: Statement) -> int:
        callback()
        row_count: int = original_run(self, statement)
        return row_count

    def load_with_callback(self: Any, *arguments: Any) -> int:
        callback()
        row_count: int = original_load(self, *arguments)
        callback()
        return row_count

    def commit_with_callback(self: Any, interruption: Interruption) -> None:
        callback()
        original_commit(self, interruption)

    database_class.run, database_class.load, database_class.commit = (
        run_with_callback,
        load_with_callback,
        commit_with_callback,
    )


def call_at_disk_changes(callback: Callable[[], None]) -> None:
    """Call `callback` before each operation of Python that changes the disk."""

    def handle_event(event: str, arguments: tuple[Any, ...]) -> None:
        is_opened_for_writing = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if is_opened_for_writing or event in DISK_CHANGE_EVENTS:
            callback()

    sys.addaudithook(handle_event)
