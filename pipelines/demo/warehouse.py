"""Questions to the demo's DuckDB file."""

from pathlib import Path
from typing import Any

import duckdb


def count_by_country(path: Path, most: int) -> list[tuple[str | None, int]]:
    """The countries with the most subscribers."""
    query = (
        "select address_country, count(*) as number from subscribers "
        "group by all order by number desc, address_country limit ?"
    )
    return [(country, number) for country, number in _ask(path, query, [most])]


def read_subscribers(path: Path, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """These columns of every row, by id."""
    return _ask(path, f"select {', '.join(columns)} from subscribers order by id", [])  # noqa: S608 - our own columns


def _ask(path: Path, query: str, values: list[Any]) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path), read_only=True) as database:
        return database.execute(query, values).fetchall()
