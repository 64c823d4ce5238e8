"""Rows as JSON Lines: one object a line with every column, null included; dates and times ISO 8601."""

from typing import BinaryIO

import orjson
import pyarrow as pa


class JsonRows:
    """Writes tables as JSON Lines."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, table: pa.Table) -> None:
        """Write these rows."""
        lines = [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in table.to_pylist()]
        self._file.write(b"".join(lines))

    def close(self) -> None:
        """JSON Lines have no end of their own."""


def open_json_rows(file: BinaryIO, schema: pa.Schema) -> JsonRows:
    """JSON Lines; no rows make an empty file. Each line names its columns itself, so the schema is not needed."""
    return JsonRows(file)
