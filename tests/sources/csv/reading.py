"""Helpers that write a CSV file for a test, and that read the whole file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector.rows import Chunk, MalformedRow, Source
from connector.sources import csv
from connector.sources.inputs import open_input


@dataclass(frozen=True)
class FileContents:
    """The columns and the chunks of a file that was read to its end."""

    columns: tuple[str, ...]
    chunks: list[Chunk]

    @property
    def rows(self) -> list[list[str]]:
        return [row for chunk in self.chunks for row in chunk.frame.to_numpy().tolist()]

    @property
    def row_numbers(self) -> list[int]:
        return [number for chunk in self.chunks for number in chunk.row_numbers.tolist()]

    @property
    def malformed_rows(self) -> list[MalformedRow]:
        return [row for chunk in self.chunks for row in chunk.malformed_rows]

    @property
    def messages(self) -> list[str]:
        return [message for chunk in self.chunks for message in chunk.messages]


def open_csv(path: Path, **options: Any) -> Source:
    content = open_input(path)
    try:
        return csv.CsvSource(content, **options)
    except BaseException:
        content.close()
        raise


def write_file(folder: Path, content: bytes | str) -> Path:
    path = folder / "people.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def read_file(path: Path, **options: Any) -> FileContents:
    with open_csv(path, **options) as source:
        return FileContents(source.columns, list(source.read_chunks()))
