"""Rows as CSV that reads back as it was: every text in quotes, null as nothing at all.

UTF-8, commas, one header line; tags as a JSON array, dates and times ISO 8601, booleans true and false. A reader gets
the same values back if it takes an unquoted empty cell as null and a quoted one as the empty text.
"""

from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as arrow_csv

from connector.export.writers.formulas import guard_formulas
from connector.export.writers.plain import flatten_schema, flatten_table

_OPTIONS = arrow_csv.WriteOptions(include_header=True, quoting_style="needed")  # texts always "need" them in Arrow


_COUNT = arrow_csv.ConvertOptions(include_columns=["_exported_at"], column_types={"_exported_at": pa.string()})
"""One short column is enough to count by."""


class CsvRows:
    """Writes tables as CSV."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, *, is_guarded: bool = False) -> None:
        self._is_guarded = is_guarded
        self._writer = arrow_csv.CSVWriter(file, flatten_schema(schema), write_options=_OPTIONS)

    def write(self, table: pa.Table) -> None:
        """Write these rows."""
        flat = flatten_table(table)
        self._writer.write_table(guard_formulas(flat) if self._is_guarded else flat)

    def close(self) -> None:
        """CSV has no end of its own."""
        self._writer.close()


def count_csv_rows(path: Path) -> int | None:
    """The records below the header, whatever lines their texts have; None where it is no CSV with a header."""
    read = arrow_csv.ReadOptions(use_threads=False)
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    try:
        with arrow_csv.open_csv(path, read_options=read, parse_options=parse, convert_options=_COUNT) as reader:
            return sum(int(batch.num_rows) for batch in reader)
    except (pa.ArrowException, OSError):
        return None


def open_csv_rows(file: BinaryIO, schema: pa.Schema) -> CsvRows:
    """CSV with a header line, also when no row follows."""
    return CsvRows(file, schema)


def open_guarded_csv_rows(file: BinaryIO, schema: pa.Schema) -> CsvRows:
    """The same, for people who open it in a spreadsheet."""
    return CsvRows(file, schema, is_guarded=True)
