"""Rows as CSV that reads back as it was: every text in quotes, null as nothing at all.

UTF-8, commas, one header line; tags as a JSON array, dates and times ISO 8601, booleans true and false. A reader gets
the same values back if it takes an unquoted empty cell as null and a quoted one as the empty text.
"""

from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as arrow_csv

from connector.export.writers.plain import flatten_schema, flatten_table

_OPTIONS = arrow_csv.WriteOptions(include_header=True, quoting_style="needed")  # texts always "need" them in Arrow


class CsvRows:
    """Writes tables as CSV."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._writer = arrow_csv.CSVWriter(file, flatten_schema(schema), write_options=_OPTIONS)

    def write(self, table: pa.Table) -> None:
        """Write these rows."""
        self._writer.write_table(flatten_table(table))

    def close(self) -> None:
        """CSV has no end of its own."""
        self._writer.close()


def open_csv_rows(file: BinaryIO, schema: pa.Schema) -> CsvRows:
    """CSV with a header line, also when no row follows."""
    return CsvRows(file, schema)
