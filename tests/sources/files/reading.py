"""Helpers that write a file for a test, and that read the whole file."""

from pathlib import Path
from typing import Any

import pandas as pd

from connector.rows import Chunk, MalformedRow
from connector.sources.files import open_file


def write_file(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_chunks(path: Path, **options: Any) -> list[Chunk]:
    with open_file(path, **options) as source:
        return list(source.read_chunks())


def read_frame(path: Path, **options: Any) -> pd.DataFrame:
    return pd.concat([chunk.frame for chunk in read_chunks(path, **options)], ignore_index=True)


def read_rows(path: Path, **options: Any) -> list[list[str]]:
    rows: list[list[str]] = read_frame(path, **options).to_numpy().tolist()
    return rows


def read_malformed(path: Path, **options: Any) -> list[MalformedRow]:
    return [row for chunk in read_chunks(path, **options) for row in chunk.malformed_rows]
