"""Rows as Parquet: row groups large enough to compress, small enough to hold in memory."""

from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

_ROW_GROUP = 65_536
"""Rows held back until they make a row group: about 25 MB of subscribers, and readers want groups of this size."""

_ALL_DIFFER = {"id", "email", "client_user_id", "phone"}
"""Columns that are written as they are: a dictionary of such values takes time, and room."""


class ParquetRows:
    """Writes tables as Parquet."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._schema = schema
        recurring = [_find_leaf(field) for field in schema if field.name not in _ALL_DIFFER]
        self._writer = pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=recurring)
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        """Write a row group as soon as there are rows for one."""
        self._waiting.append(table)
        self._rows += table.num_rows
        if self._rows >= _ROW_GROUP:
            self._flush()

    def close(self) -> None:
        """Write the last row group and the footer."""
        try:
            self._flush()
        finally:
            self._writer.close()

    def _flush(self) -> None:
        waiting, rows, self._waiting, self._rows = self._waiting, self._rows, [], 0
        if rows:
            self._writer.write_table(pa.concat_tables(waiting), row_group_size=rows)


def _find_leaf(field: pa.Field) -> str:
    """The path of what Parquet keeps of a column: of a list, its elements."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name


def open_parquet_rows(file: BinaryIO, schema: pa.Schema) -> ParquetRows:
    """Parquet with the schema's own types; zstd, which halves the size of snappy's files at the same speed here."""
    return ParquetRows(file, schema)


def count_parquet_rows(path: Path) -> int | None:
    """As the footer says; None where it has none."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return None
