"""Helpers that write a CSV file for a test, and that read the whole file."""

from pathlib import Path

from connector.rows import Chunk, Source
from connector.sources import csv
from connector.sources.inputs import open_input


def open_csv(
    path: Path | str, *, delimiter: str = "auto", encoding: str = "auto", chunk_bytes: int | None = None
) -> Source:
    content = open_input(path)
    try:
        return csv.open_csv(content, delimiter=delimiter, encoding=encoding, chunk_bytes=chunk_bytes)
    except BaseException:
        content.close()
        raise


def write_file(folder: Path, content: bytes | str) -> Path:
    path = folder / "people.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def read_chunks(
    path: Path, *, delimiter: str = "auto", encoding: str = "auto", chunk_bytes: int | None = None
) -> list[Chunk]:
    with open_csv(path, delimiter=delimiter, encoding=encoding, chunk_bytes=chunk_bytes) as source:
        return list(source.read_chunks())


def read_rows(path: Path, *, delimiter: str = "auto", encoding: str = "auto") -> list[list[str]]:
    chunks = read_chunks(path, delimiter=delimiter, encoding=encoding)
    return [row for chunk in chunks for row in chunk.frame.to_numpy().tolist()]
