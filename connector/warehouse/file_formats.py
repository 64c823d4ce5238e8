"""The formats of an exported file: Parquet, CSV and JSON Lines. Each class writes rows, and reads an earlier export.

Parquet keeps the run and the certificate in its metadata. CSV and JSON Lines show an export by the columns `_run_id`
and `_exported_at`.
"""

import csv
import json
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from connector.formulas import FORMULA
from connector.warehouse.columns import flatten_table
from connector.warehouse.runs import EXPORTED_AT, OF_RUN, ExportRun

_UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)
"""The errors of reading a damaged file."""

_LONGEST_HEAD = 1 << 20  # bytes of the first line, which has a header or one subscriber


class ParquetFormat:
    """Parquet with zstd, which halves the size of snappy's files at the same speed."""

    _METADATA_KEYS = (b"connector_run", b"certificate")
    """Both are JSON: the run (run_id, job, exported_at), and the certificate as in a report."""

    _ROW_GROUP = 65_536
    """Rows of a row group, about 25 MB of subscribers: readers work best with groups of this size."""

    _ALL_DIFFER = frozenset({"id", "email", "client_user_id", "phone"})
    """Columns without a dictionary, which costs time and room where the values differ."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq  # 20 ms and 9 MB that other formats do not need

        # The path of a list column in Parquet is that of its elements.
        recurring = [
            f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
            for field in schema
            if field.name not in self._ALL_DIFFER
        ]
        self._writer = pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=recurring)
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._rows += table.num_rows
        if self._rows >= self._ROW_GROUP:
            self._flush()

    def close(self, run: ExportRun | None) -> None:
        try:
            self._flush()
            if run is not None:
                described = {"run_id": run.run_id, "job": run.job, "exported_at": run.exported_at.isoformat()}
                values = (json.dumps(described).encode(), json.dumps(run.certificate.as_report()).encode())
                self._writer.add_key_value_metadata(dict(zip(self._METADATA_KEYS, values, strict=True)))
        finally:
            self._writer.close()

    def _flush(self) -> None:
        waiting, rows, self._waiting, self._rows = self._waiting, self._rows, [], 0
        if rows:
            self._writer.write_table(pa.concat_tables(waiting), row_group_size=rows)

    @classmethod
    def is_ours(cls, file: BinaryIO) -> bool:
        try:
            return cls._METADATA_KEYS[0] in (_read_footer(file).metadata or {})
        except _UNREADABLE:
            return False

    @classmethod
    def count_rows(cls, file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        try:
            footer = _read_footer(file)
            certificate = json.loads(footer.metadata[cls._METADATA_KEYS[1]])
            is_same = certificate["verdict"] == "complete" and certificate["filters"].get("asked", {}) == dict(filters)
            return int(footer.num_rows) if is_same else None
        except (*_UNREADABLE, ValueError, LookupError):
            return None


def _read_footer(file: BinaryIO) -> Any:
    import pyarrow.parquet as pq

    return pq.read_metadata(file)


class CsvFormat:
    """CSV in UTF-8 with commas and one header line: a text is in quotes, and null is an unquoted empty cell.

    Tags are JSON arrays, dates and times ISO 8601, booleans true and false.
    """

    _OPTIONS = arrow_csv.WriteOptions(include_header=True, quoting_style="needed")  # Arrow quotes every text with it

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        flat = flatten_table(pa.Table.from_batches([], schema)).schema
        self._writer = arrow_csv.CSVWriter(file, flat, write_options=self._OPTIONS)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(flatten_table(table))

    def close(self, run: ExportRun | None) -> None:
        self._writer.close()

    @staticmethod
    def is_ours(file: BinaryIO) -> bool:
        try:
            return set(OF_RUN) <= set(next(csv.reader([file.readline(_LONGEST_HEAD).decode()]), []))
        except _UNREADABLE:
            return False

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        convert = arrow_csv.ConvertOptions(include_columns=[EXPORTED_AT], column_types={EXPORTED_AT: pa.string()})
        read = arrow_csv.ReadOptions(use_threads=False)
        parse = arrow_csv.ParseOptions(newlines_in_values=True)
        try:
            with arrow_csv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert) as reader:
                return sum(int(batch.num_rows) for batch in reader)
        except _UNREADABLE:
            return None


class GuardedCsvFormat(CsvFormat):
    """CSV with an apostrophe before every text that a spreadsheet would run."""

    def write(self, table: pa.Table) -> None:
        columns = []
        for column in table.columns:
            if pa.types.is_string(column.type):
                is_formula = pc.fill_null(pc.match_substring_regex(column, FORMULA), False)
                column = pc.if_else(is_formula, pc.binary_join_element_wise("'", column, ""), column)
            columns.append(column)
        super().write(pa.table(columns, names=table.column_names))


class JsonLinesFormat:
    """One JSON object in a line with every column, null included; dates and times are ISO 8601. An export without rows
    is an empty file."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file

    def write(self, table: pa.Table) -> None:
        rows = flatten_table(table, is_list_kept=True).to_pylist()
        self._file.write(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))

    def close(self, run: ExportRun | None) -> None:
        """Do nothing: the format has no end."""

    @staticmethod
    def is_ours(file: BinaryIO) -> bool:
        try:
            line = file.readline(_LONGEST_HEAD)
            first = json.loads(line or b"{}")
        except (*_UNREADABLE, ValueError, RecursionError):
            return False
        return not line or (isinstance(first, dict) and set(OF_RUN) <= set(first))

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        try:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        except _UNREADABLE:
            return None
