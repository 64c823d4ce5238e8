"""The formats of an exported file: Parquet, CSV, JSON Lines and Excel. Each class writes rows, and reads files of
earlier exports.

Parquet and Excel files have the run in their metadata. A CSV or JSON Lines file of an export has the columns `id` and
`_invalid`.
"""

import codecs
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, assert_never

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from connector.arrow import INVALID_COLUMN
from connector.errors import ConfigurationError
from connector.sheet_file import Cell, CellError, SheetFile, read_properties
from connector.texts import FORMULA_PATTERN
from connector.warehouse.columns import flatten_table, format_lists_as_json, join_lists, join_tags
from connector.warehouse.database import ColumnKind
from connector.warehouse.destination import FileOptions
from connector.warehouse.runs import ID, ExportRun
from connector.warehouse.statements import read_kinds

_COLUMNS_OF_EVERY_EXPORT = {ID, INVALID_COLUMN}
"""Columns that every export has. A file with these columns counts as a file of an earlier export."""

_COLUMN_NAME_PATTERN = re.compile(r"\w+")
_DELIMITER_AFTER_ID_PATTERN = re.compile(rb'id"?([,;|\t])')  # the delimiter after the name of the first column

_MAX_FIRST_LINE_BYTES = 1 << 20  # much longer than a header, and than the JSON of a subscriber


class ParquetFormat:
    """Parquet compressed by zstd. The files have half the size of files compressed by snappy, at the same speed."""

    _METADATA_KEYS = (b"connector_run", b"certificate")
    """The keys of two JSON values: the run (run_id, job, exported_at), and the certificate as in a report."""

    _ROW_GROUP_ROWS = 65_536
    """A row group is written when it has at least this number of rows: about 25 MB of subscribers. Readers work best
    with row groups of this size."""

    _COLUMNS_WITHOUT_DICTIONARY = frozenset({"id", "email", "client_user_id", "phone"})
    """Columns whose values seldom repeat. These columns get no dictionary, because a dictionary would cost time and
    space."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, options: FileOptions) -> None:
        import pyarrow.parquet as pq  # imported here, because the import takes 20 ms and 9 MB

        # In Parquet, the path of a list column is the path of the list's elements.
        dictionary_columns = [
            f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
            for field in schema
            if field.name not in self._COLUMNS_WITHOUT_DICTIONARY
        ]
        self._writer = pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=dictionary_columns)
        self._unwritten_tables: list[pa.Table] = []
        self._unwritten_row_count = 0

    def write(self, table: pa.Table) -> None:
        self._unwritten_tables.append(table)
        self._unwritten_row_count += table.num_rows
        if self._unwritten_row_count >= self._ROW_GROUP_ROWS:
            self._write_row_group()

    def close(self, run: ExportRun | None) -> None:
        try:
            self._write_row_group()
            if run is not None:
                run_values = {"run_id": run.run_id, "job": run.job, "exported_at": run.exported_at.isoformat()}
                metadata_values = (json.dumps(run_values).encode(), json.dumps(run.certificate.as_report()).encode())
                self._writer.add_key_value_metadata(dict(zip(self._METADATA_KEYS, metadata_values, strict=True)))
        finally:
            self._writer.close()

    def discard(self) -> None:
        self._writer.close()  # Arrow's writers hold the file until they are closed

    def _write_row_group(self) -> None:
        tables, self._unwritten_tables = self._unwritten_tables, []
        row_count, self._unwritten_row_count = self._unwritten_row_count, 0
        if row_count:
            self._writer.write_table(pa.concat_tables(tables), row_group_size=row_count)

    @classmethod
    def is_of_export(cls, file: BinaryIO) -> bool:
        return cls._METADATA_KEYS[0] in (_read_footer(file).metadata or {})

    @classmethod
    def count_rows(cls, file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        footer = _read_footer(file)
        certificate = json.loads(footer.metadata[cls._METADATA_KEYS[1]])
        is_same_query = certificate["filters"].get("asked", {}) == dict(filters)
        return int(footer.num_rows) if certificate["verdict"] == "complete" and is_same_query else None


def _read_footer(file: BinaryIO) -> Any:
    import pyarrow.parquet as pq

    return pq.read_metadata(file)


class CsvFormat:
    """CSV in UTF-8 with one header line. Texts are in quotes, and null is an empty cell without quotes.

    Tags are JSON arrays, dates and times are in ISO 8601, and booleans are `true` and `false`.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema, options: FileOptions) -> None:
        self._options = options
        self._format_lists = join_lists if options.is_for_excel else format_lists_as_json
        if options.is_for_excel:
            file.write(codecs.BOM_UTF8)
        flat_schema = flatten_table(pa.Table.from_batches([], schema), format_lists=self._format_lists).schema
        arrow_options = arrow_csv.WriteOptions(  # with `needed`, Arrow quotes every text
            include_header=True, quoting_style="needed", delimiter=options.delimiter
        )
        self._writer = arrow_csv.CSVWriter(file, flat_schema, write_options=arrow_options)

    def write(self, table: pa.Table) -> None:
        flat_table = flatten_table(table, format_lists=self._format_lists)
        self._writer.write_table(_escape_formulas(flat_table) if self._options.has_escaped_formulas else flat_table)

    def close(self, run: ExportRun | None) -> None:
        self._writer.close()

    def discard(self) -> None:
        self._writer.close()  # Arrow's writers hold the file until they are closed

    @staticmethod
    def is_of_export(file: BinaryIO) -> bool:
        return (
            set(_COLUMN_NAME_PATTERN.findall(file.readline(_MAX_FIRST_LINE_BYTES).decode())) >= _COLUMNS_OF_EVERY_EXPORT
        )

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        convert_options = arrow_csv.ConvertOptions(include_columns=[ID], column_types={ID: pa.string()})
        read_options = arrow_csv.ReadOptions(use_threads=False)
        delimiter_match = _DELIMITER_AFTER_ID_PATTERN.search(file.readline(_MAX_FIRST_LINE_BYTES))
        file.seek(0)
        delimiter = delimiter_match[1].decode() if delimiter_match is not None else ","
        parse_options = arrow_csv.ParseOptions(newlines_in_values=True, delimiter=delimiter)
        with arrow_csv.open_csv(
            file, read_options=read_options, parse_options=parse_options, convert_options=convert_options
        ) as reader:
            return sum(int(batch.num_rows) for batch in reader)


def _escape_formulas(table: pa.Table) -> pa.Table:
    columns = []
    for column in table.columns:
        if pa.types.is_string(column.type):
            formula_mask = pc.fill_null(pc.match_substring_regex(column, FORMULA_PATTERN), False)
            column = pc.if_else(formula_mask, pc.binary_join_element_wise("'", column, ""), column)
        columns.append(column)
    return pa.table(columns, names=table.column_names)


class JsonLinesFormat:
    """JSON Lines: one JSON object in each line. An object has every column, even if its value is null. Dates and times
    are in ISO 8601. An export without rows is an empty file.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema, options: FileOptions) -> None:
        self._file = file

    def write(self, table: pa.Table) -> None:
        rows = flatten_table(table, format_lists=None).to_pylist()
        self._file.write(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))

    def close(self, run: ExportRun | None) -> None:
        """Do nothing, because nothing follows the last line."""

    def discard(self) -> None:
        """Do nothing, because the caller closes the file."""

    @staticmethod
    def is_of_export(file: BinaryIO) -> bool:
        line = file.readline(_MAX_FIRST_LINE_BYTES)
        first_object = json.loads(line or b"{}")
        return not line or (isinstance(first_object, dict) and set(first_object) >= _COLUMNS_OF_EVERY_EXPORT)

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


class ExcelFormat:
    """An .xlsx workbook. Texts stay texts, even if they look like numbers or formulas. Tags are `a|b`, dates are dates,
    and times are in UTC. The digits after the milliseconds of a time are cut off. An empty text and null are both an
    empty cell.

    Custom properties of the workbook describe the run. A property has at most 255 characters, so the filters are
    stored as a digest.
    """

    def __init__(self, file: BinaryIO, schema: pa.Schema, options: FileOptions) -> None:
        self._sheet = SheetFile(file, schema.names)

    def write(self, table: pa.Table) -> None:
        kinds = read_kinds(table.schema).values()
        columns = [_list_cells(column, kind) for column, kind in zip(table.columns, kinds, strict=True)]
        for subscriber_id, cells in zip(table[ID].to_pylist(), zip(*columns, strict=True), strict=True):
            try:
                self._sheet.write_row(cells)
            except CellError as error:
                raise ConfigurationError(
                    f"The subscriber with the id {subscriber_id} cannot be written to a workbook: {error}. The old "
                    "file is unchanged. Export to CSV, Parquet or a database, or leave the column out by --columns."
                ) from None

    def close(self, run: ExportRun | None) -> None:
        if run is None:
            raise ValueError("a workbook needs a run")  # `parse_receipts` refuses receipts in workbooks
        self._sheet.close({
            "connector_run": run.run_id,
            "connector_exported_at": run.exported_at.isoformat(),
            "connector_verdict": str(run.certificate.verdict),
            "connector_filters": _compute_filters_digest(run.filters),
            "connector_rows": str(run.row_count),
        })  # fmt: skip

    def discard(self) -> None:
        self._sheet.discard()

    @staticmethod
    def is_of_export(file: BinaryIO) -> bool:
        return "connector_run" in read_properties(file)

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        properties = read_properties(file)
        filters_digest, verdict = properties["connector_filters"], properties["connector_verdict"]
        is_same_query = verdict == "complete" and filters_digest == _compute_filters_digest(filters)
        return int(properties["connector_rows"]) if is_same_query else None


def _compute_filters_digest(filters: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(dict(filters), sort_keys=True).encode()).hexdigest()


def _list_cells(column: pa.ChunkedArray, kind: ColumnKind) -> list[Cell]:
    match kind:
        case ColumnKind.TAGS:
            return [join_tags(tags) for tags in column.to_pylist()]
        case ColumnKind.TIME:
            milliseconds = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()).to_pylist()
            return [
                None if millisecond is None else datetime.fromtimestamp(millisecond / 1000, UTC)
                for millisecond in milliseconds
            ]
        case ColumnKind.TEXT | ColumnKind.NAME | ColumnKind.WHOLE_NUMBER | ColumnKind.FLAG | ColumnKind.DATE:
            cells: list[Cell] = column.to_pylist()
            return cells
    assert_never(kind)
