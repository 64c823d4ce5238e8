"""The formats of an exported file: Parquet, CSV, JSON Lines and Excel. Each class writes rows, and reads an earlier
export.

Parquet and Excel keep the run in their metadata. CSV and JSON Lines show an export by the columns `id` and `_invalid`.
"""

import codecs
import csv
import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from connector.errors import ConfigurationError
from connector.sheet_file import Cell, CellError, SheetFile, read_properties
from connector.texts import FORMULA
from connector.warehouse.columns import flatten_table, join_lists, join_tags, write_lists_as_json
from connector.warehouse.runs import ID, INVALID, ExportRun

_UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)
"""The errors of reading a damaged file."""

_IS_OURS = {ID, INVALID}
"""The columns of every export, by which a file of an earlier export is known."""

_NAME = re.compile(r"\w+")
_DELIMITER = re.compile(rb'id"?([,;|\t])')  # behind the first column, the id

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


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a CSV is written. `is_for_excel`: with a byte order mark, by which Excel knows UTF-8, and tags as `a|b`.
    `is_guarded`: with an apostrophe before every text that a spreadsheet would run."""

    delimiter: str = ","
    is_for_excel: bool = False
    is_guarded: bool = False


_PLAIN_CSV = CsvOptions()


class CsvFormat:
    """CSV in UTF-8 with one header line: a text is in quotes, and null is an unquoted empty cell.

    Tags are JSON arrays, dates and times ISO 8601, booleans true and false.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema, options: CsvOptions = _PLAIN_CSV) -> None:
        self._options = options
        self._write_lists = join_lists if options.is_for_excel else write_lists_as_json
        if options.is_for_excel:
            file.write(codecs.BOM_UTF8)
        flat = flatten_table(pa.Table.from_batches([], schema), write_lists=self._write_lists).schema
        arrow_options = arrow_csv.WriteOptions(  # Arrow quotes every text with `needed`
            include_header=True, quoting_style="needed", delimiter=options.delimiter
        )
        self._writer = arrow_csv.CSVWriter(file, flat, write_options=arrow_options)

    def write(self, table: pa.Table) -> None:
        flat = flatten_table(table, write_lists=self._write_lists)
        self._writer.write_table(_guard_texts(flat) if self._options.is_guarded else flat)

    def close(self, run: ExportRun | None) -> None:
        self._writer.close()

    @staticmethod
    def is_ours(file: BinaryIO) -> bool:
        try:
            return set(_NAME.findall(file.readline(_LONGEST_HEAD).decode())) >= _IS_OURS
        except _UNREADABLE:
            return False

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        convert = arrow_csv.ConvertOptions(include_columns=[ID], column_types={ID: pa.string()})
        read = arrow_csv.ReadOptions(use_threads=False)
        try:
            found = _DELIMITER.search(file.readline(_LONGEST_HEAD))
            file.seek(0)
            delimiter = found[1].decode() if found is not None else ","
            parse = arrow_csv.ParseOptions(newlines_in_values=True, delimiter=delimiter)
            with arrow_csv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert) as reader:
                return sum(int(batch.num_rows) for batch in reader)
        except _UNREADABLE:
            return None


def _guard_texts(table: pa.Table) -> pa.Table:
    columns = []
    for column in table.columns:
        if pa.types.is_string(column.type):
            is_formula = pc.fill_null(pc.match_substring_regex(column, FORMULA), False)
            column = pc.if_else(is_formula, pc.binary_join_element_wise("'", column, ""), column)
        columns.append(column)
    return pa.table(columns, names=table.column_names)


class JsonLinesFormat:
    """One JSON object in a line with every column, null included; dates and times are ISO 8601. An export without rows
    is an empty file."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file

    def write(self, table: pa.Table) -> None:
        rows = flatten_table(table, write_lists=None).to_pylist()
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
        return not line or (isinstance(first, dict) and set(first) >= _IS_OURS)

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        try:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        except _UNREADABLE:
            return None


class ExcelFormat:
    """An .xlsx workbook: texts as texts, also digits and formulas; tags as `a|b`; dates as dates; times in UTC to the
    millisecond. An empty text and null are both an empty cell.

    Its custom properties, which hold at most 255 characters each, say which run made it.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._sheet = SheetFile(file, schema.names)

    def write(self, table: pa.Table) -> None:
        columns = [_list_cells(column) for column in table.columns]
        for subscriber_id, cells in zip(table[ID].to_pylist(), zip(*columns, strict=True), strict=True):
            try:
                self._sheet.write_row(cells)
            except CellError as error:
                raise ConfigurationError(
                    f"The subscriber with the id {subscriber_id} cannot be written to a workbook: {error}. What was "
                    "there is as it was. Export to CSV, Parquet or a database, or leave the column out by --columns."
                ) from None

    def close(self, run: ExportRun | None) -> None:
        if run is None:
            self._sheet.discard()
            return
        self._sheet.close({
            "connector_run": run.run_id,
            "connector_exported_at": run.exported_at.isoformat(),
            "connector_verdict": str(run.certificate.verdict),
            "connector_filters": _digest_filters(run.asked),
            "connector_rows": str(run.rows),
        })  # fmt: skip

    @staticmethod
    def is_ours(file: BinaryIO) -> bool:
        try:
            return "connector_run" in read_properties(file)
        except (*_UNREADABLE, *_NO_WORKBOOK):
            return False

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        try:
            properties = read_properties(file)
            asked, verdict = properties["connector_filters"], properties["connector_verdict"]
            is_same = verdict == "complete" and asked == _digest_filters(filters)
            return int(properties["connector_rows"]) if is_same else None
        except (*_UNREADABLE, *_NO_WORKBOOK):
            return None


_NO_WORKBOOK = (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, NotImplementedError, SyntaxError)
"""The errors of reading the properties of another file: a ParseError of XML is a SyntaxError."""


def _digest_filters(filters: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(dict(filters), sort_keys=True).encode()).hexdigest()


def _list_cells(column: pa.ChunkedArray) -> list[Cell]:
    if pa.types.is_list(column.type):
        return [join_tags(tags) for tags in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        milliseconds = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()).to_pylist()
        return [
            None if millisecond is None else datetime.fromtimestamp(millisecond / 1000, UTC)
            for millisecond in milliseconds
        ]
    cells: list[Cell] = column.to_pylist()
    return cells
