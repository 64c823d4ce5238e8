"""Ledgers of older versions, as their own version wrote them, and what is to be seen of them."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from connector.plan.field_digests import MappedFields

SAMPLES = Path(__file__).parent / "samples"
SOURCE = b"s" * 16
FIELDS = MappedFields((("first_name", "a"),))
PERSON = [bytes([number]) * 16 for number in range(11)]  # the sample's people, from 1 on
ALWAYS = (  # the columns of an entry in every version
    "base_key, identity, identity_field, state, how, subscriber_id, fingerprint, body, status, message, attempts, "
    "run_key"
)


class BrokenError(Exception):
    """Something else goes wrong in the middle of a migration."""


def build_old(folder: Path, sample: str) -> Path:
    path = folder / "ledger.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((SAMPLES / sample).read_text())
    return path


def read_rows(path: Path, columns: str = "", table: str = "entry") -> list[tuple[Any, ...]]:
    columns = columns or (ALWAYS if table == "entry" else "*")
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()


@contextmanager
def heard(listen: Callable[[str], None]) -> Iterator[None]:
    """Have `listen` told of each statement, right after the database has carried it out."""

    def hear(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        listen(statement)

    event.listen(Engine, "after_cursor_execute", hear)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", hear)
