"""Parquet files of an export: what writes them, and what their footers say of the run that did."""

import csv
import json
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import pyarrow as pa

from connector.warehouse.runs import ExportRun

_METADATA_KEYS = (b"connector_run", b"certificate")
"""Of a Parquet file, both JSON: the run (run_id, job, exported_at), and its certificate as in a report."""

_ROW_GROUP = 65_536
"""Rows held back until they make a row group: about 25 MB of subscribers, and readers want groups of this size."""

_ALL_DIFFER = frozenset({"id", "email", "client_user_id", "phone"})
"""Columns that Parquet writes as they are: a dictionary of such values takes time, and room."""

UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)
"""What reading a damaged file raises, of whatever format."""


class ParquetFormat:
    """Parquet with the schema's own types; zstd, which halves the size of snappy's files at the same speed here."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq  # 20 ms and 9 MB that an export to another format need not spend

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

    def close(self, run: ExportRun | None) -> None:
        """Write the last row group and the footer."""
        try:
            self._flush()
            if run is not None:
                self._writer.add_key_value_metadata(_build_metadata(run))
        finally:
            self._writer.close()

    def _flush(self) -> None:
        """Write the rows that wait as a row group."""
        waiting, rows, self._waiting, self._rows = self._waiting, self._rows, [], 0
        if rows:
            self._writer.write_table(pa.concat_tables(waiting), row_group_size=rows)

    @staticmethod
    def is_ours(file: BinaryIO) -> bool:
        """Return whether its metadata name a run."""
        try:
            return _METADATA_KEYS[0] in (_read_footer(file).metadata or {})
        except UNREADABLE:
            return False

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        """Return the number of rows that the footer says."""
        try:
            footer = _read_footer(file)
            certificate = json.loads(footer.metadata[_METADATA_KEYS[1]])
            is_such = certificate["verdict"] == "complete" and certificate["filters"].get("asked", {}) == dict(filters)
            return int(footer.num_rows) if is_such else None
        except (*UNREADABLE, ValueError, LookupError):
            return None


def _read_footer(file: BinaryIO) -> Any:
    import pyarrow.parquet as pq

    return pq.read_metadata(file)


def _build_metadata(run: ExportRun) -> dict[bytes, bytes]:
    said = {"run_id": run.run_id, "job": run.job, "exported_at": run.exported_at.isoformat()}
    values = (json.dumps(said), json.dumps(run.certificate.as_report()))
    return dict(zip(_METADATA_KEYS, (value.encode() for value in values), strict=True))


def _find_leaf(field: pa.Field) -> str:
    """The path of what Parquet keeps of a column: of a list, its elements."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
