"""Rows as JSON Lines: one object a line with every column, null included; dates and times ISO 8601."""

from pathlib import Path
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


def count_json_rows(path: Path) -> int | None:
    """The lines of the file; None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return None
