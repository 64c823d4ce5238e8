# ruff: noqa: S608 - the statements are made of names and constants of this module
"""A temporary DuckDB database in which a source, the ledger and the list are joined by base and identity.

DuckDB uses at most 256 MB of memory. It writes all other data to a temporary folder that only the owner can read. The
folder is removed at the end.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connector.driver_errors import describe_error
from connector.errors import RunAborted
from connector.fields import FIELD_BY_NAME
from connector.rows import CloseableResource
from connector.service.wire import read_base, read_field
from connector.spool import describe_full_disk, encode_values
from connector.states import State
from connector.subscribers.identity import Digests, digest_identity, split_digests

Integers = npt.NDArray[np.int64]

ListedBase = tuple[int | None, str | None]
"""The id and the name of a base as the list has them. If the id is not an integer, it is None. If the name is not a
string, it is None."""

_DUCKDB_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "256MB", "threads": 1, "preserve_insertion_order": False, "autoinstall_known_extensions": False,
}  # fmt: skip
"""By default DuckDB uses 80 % of the machine's memory, and may load code from the network. With one thread, version 2.0
joins ten million subscribers within 128 MB; version 1.4 cannot join a million within 256 MB (both measured)."""

_ROWS_PER_INSERT = 20_000  # number of subscribers in one INSERT, because even an INSERT of one row takes a millisecond
_ROWS_PER_FETCH = 10_000  # number of differences that the code fetches at once

_ARROW_TYPES = {
    "INTEGER": pa.int32(), "TINYINT": pa.int8(), "BIGINT": pa.int64(), "BLOB": pa.binary(), "VARCHAR": pa.string()
}  # fmt: skip

_TABLE_COLUMNS = {
    "listed": {"listed_base_index": "INTEGER", "digest": "BLOB", "id": "BIGINT", "name": "BLOB", "content": "BLOB"},
    "source": {
        "base_number": "INTEGER", "digest": "BLOB", "position": "BIGINT", "row_number": "BIGINT", "name": "VARCHAR",
        "content": "BLOB",
    },
    "entry": {
        "digest": "BLOB", "state": "TINYINT", "subscriber_id": "BIGINT", "status": "INTEGER", "message": "VARCHAR",
        "base_number": "INTEGER",
    },
    "numbered_base": {"listed_base_index": "INTEGER", "base_number": "INTEGER"},
}  # fmt: skip
"""The columns of the tables. `base_number` is the number of a compared base, from 0. `numbered_base` has this number
for each listed base that is compared. `listed.digest` is NULL for a subscriber without an identity. `source.position`
counts the compared rows from 0, and is NULL for a row that is not compared. `content` has the compared fields as
`encode_values` encodes them."""

_JOIN_STATEMENTS = (
    """
    CREATE TABLE people AS SELECT base_number, digest, min(id) AS id, count(*) AS times
    FROM listed JOIN numbered_base USING (listed_base_index)
    GROUP BY base_number, digest, CASE WHEN digest IS NULL THEN id END
    """,
    """
    CREATE TABLE present AS SELECT base_number, digest, min(position) AS position FROM source
    GROUP BY base_number, digest
    """,
    """
    CREATE TABLE joined AS SELECT base_number, digest, id, times, position, state, subscriber_id, status,
        message, present.base_number IS NOT NULL AS is_in_source
    FROM people FULL JOIN present USING (base_number, digest) FULL JOIN entry USING (base_number, digest)
    """,
    f"""
    CREATE TABLE vanished AS SELECT base_number, digest, subscriber_id, position FROM joined
    WHERE state = {int(State.CONFIRMED)} AND id IS NULL
        AND NOT EXISTS (SELECT 1 FROM listed WHERE listed.id = joined.subscriber_id)
    """,
)
"""The statements that join the list, the source and the ledger. `people` has each listed subscriber once, with the
smallest of its ids."""


class Comparison(CloseableResource):
    """The join of the list, a source and the ledger. It is a context manager, and a sink for `read_list`.

    Add the source by `add_rows` and the ledger by `add_entries`. Then make the tables `joined` and `vanished` by
    `join_tables`, and read them by `fetch_rows`. `identity_field` is the field that identifies a subscriber,
    and `field_names` are the fields that are compared. Every method raises RunAborted if DuckDB fails.
    """

    def __init__(self, identity_field: str, field_names: Sequence[str]) -> None:
        self._identity_field, self._field_names = FIELD_BY_NAME[identity_field], tuple(field_names)
        self._row_count = 0
        with _translate_errors():
            self._folder = tempfile.TemporaryDirectory(prefix="connector-")
            self._database = duckdb.connect(config={**_DUCKDB_SETTINGS, "temp_directory": self._folder.name})
        for table, columns in _TABLE_COLUMNS.items():
            self._execute_statement(f"CREATE TABLE {table} ({', '.join(map(' '.join, columns.items()))})")
        self.start_sweep(0)

    def close(self) -> None:
        """Remove the database and its folder. A second call does nothing."""
        self._database.close()
        self._folder.cleanup()

    # Methods that receive the list

    def start_sweep(self, sweep_number: int) -> None:
        """Forget the listed subscribers, because a new reading of the list shows all of them again."""
        self._pending_rows: list[tuple[object, ...]] = []
        self._bases: dict[ListedBase, int] = {}
        self._execute_statement("DELETE FROM listed")

    def receive_rows(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Add a page of listed subscribers."""
        for wire_object in wire_objects:
            base_index = self._bases.setdefault(read_base(wire_object), len(self._bases))
            identity_text = wire_object.get(self._identity_field.path[0])
            if not isinstance(identity_text, str) or not identity_text.strip():
                self._pending_rows.append((base_index, None, wire_object["Id"], None, None))
                continue
            digest = digest_identity(self._identity_field.name, identity_text)
            content = encode_values([_read_value(wire_object, field) for field in self._field_names])
            self._pending_rows.append(
                (base_index, digest, wire_object["Id"], identity_text.encode(errors="surrogatepass"), content)
            )
        if len(self._pending_rows) >= _ROWS_PER_INSERT:
            self._insert_pending_rows()

    @property
    def bases(self) -> Sequence[ListedBase]:
        """The bases of the listed subscribers."""
        return list(self._bases)

    def _insert_pending_rows(self) -> None:
        self._insert_rows("listed", self._pending_rows)
        self._pending_rows = []

    # Methods that add the source and the ledger

    def add_rows(
        self,
        base_numbers: Integers,
        identities: Digests,
        row_numbers: Integers,
        identity_texts: Sequence[str],
        contents: Iterable[bytes],
    ) -> None:
        """Add rows that are compared: number of the compared base, identity (S16), row number, text of the identity,
        and the values as `encode_values` encodes them. If a subscriber has several rows, the first row is compared."""
        positions = range(self._row_count, self._row_count + len(row_numbers))
        self._row_count += len(row_numbers)
        columns = (base_numbers, split_digests(identities), positions, row_numbers, identity_texts, list(contents))
        self._insert_columns("source", dict(zip(_TABLE_COLUMNS["source"], columns, strict=True)))

    def add_present_identities(self, base_numbers: Integers, identities: Digests) -> None:
        """Add invalid and suppressed rows of the source. These rows are not compared, but the source counts as having
        their subscribers."""
        self._insert_columns("source", {"base_number": base_numbers, "digest": split_digests(identities)})

    def add_entries(
        self, base_number: int, entries: Iterable[tuple[bytes, int, int | None, int | None, str | None]]
    ) -> None:
        """Add entries of a compared base, as `list_entries` returns them."""
        self._insert_rows("entry", [(*entry, base_number) for entry in entries])

    # Methods that join the tables

    def assign_bases(self, listed_base_numbers: Sequence[tuple[int, int]]) -> None:
        """Record the number of the compared base for each listed base. The pair (2, 0) means that `bases[2]` belongs to
        the compared base with the number 0."""
        self._insert_pending_rows()
        self._execute_statement("DELETE FROM numbered_base")
        self._insert_rows("numbered_base", listed_base_numbers)

    def join_tables(self) -> None:
        """Make the tables `joined` and `vanished`. `joined` has a row for each compared base and identity.
        `vanished` has the confirmed entries whose identity and id are both missing from the list."""
        for statement in _JOIN_STATEMENTS:
            self._execute_statement(statement)

    def fetch_rows(self, statement: str) -> Iterator[Any]:
        """Yield the rows of a query. The caller must read all rows before it runs another statement."""
        with _translate_errors():
            self._database.execute(statement)
            while rows := self._database.fetchmany(_ROWS_PER_FETCH):
                yield from rows

    # Methods that call DuckDB

    def _execute_statement(self, statement: str) -> None:
        with _translate_errors():
            self._database.execute(statement)

    def _insert_rows(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        if rows:
            self._insert_columns(table, dict(zip(_TABLE_COLUMNS[table], zip(*rows, strict=True), strict=True)))

    def _insert_columns(self, table_name: str, columns: Mapping[str, Any]) -> None:
        sql_types = _TABLE_COLUMNS[table_name]
        batch = pa.table({name: pa.array(values, _ARROW_TYPES[sql_types[name]]) for name, values in columns.items()})
        with _translate_errors():
            self._database.register("batch", batch)
            self._database.execute(f"INSERT INTO {table_name} ({', '.join(columns)}) SELECT * FROM batch")
            self._database.unregister("batch")


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunAborted(describe_full_disk("the compared subscribers", error)) from None
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        raise RunAborted(
            f"source, ledger and list cannot be compared in {tempfile.gettempdir()}: {describe_error(error)}. Make "
            "room in this folder, or set TMPDIR to another folder, and run again. "
            f"DuckDB {duckdb.__version__} is installed: for a million subscribers, install version 2 or later"
        ) from None


def _read_value(wire_object: dict[str, Any], field: str) -> object:
    """Return a listed value. Return None for an empty text, because the values of rows have None for an empty cell."""
    listed_value = read_field(wire_object, field)
    return None if listed_value == "" else listed_value
