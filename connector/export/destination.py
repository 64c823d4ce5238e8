"""Where an export goes, told from a file's suffix or a URL; it refuses to open anything."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote

from connector.errors import ConfigurationError


class Format(StrEnum):
    """What can be written."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON_LINES = "jsonl"
    DUCKDB = "duckdb"
    SQLITE = "sqlite"


_BY_SUFFIX = {".parquet": Format.PARQUET, ".csv": Format.CSV, ".jsonl": Format.JSON_LINES}
_BY_SCHEME = {"duckdb": Format.DUCKDB, "sqlite": Format.SQLITE}
_SUPPORTED = (
    "a file ending in .parquet, .csv or .jsonl, or a database as duckdb:///warehouse.duckdb or sqlite:///warehouse.db "
    "(four slashes for an absolute path)"
)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://(.*)", re.DOTALL)
_CREDENTIALS = re.compile(r"(?<=://).*@", re.DOTALL)  # greedy: a password may hold a slash or an @ of its own


@dataclass(frozen=True, slots=True)
class Destination:
    """A file, or a table of a database file; `table` and `schema` mean nothing to a file."""

    format: Format
    path: Path
    table: str = "subscribers"
    schema: str | None = None

    @property
    def is_database(self) -> bool:
        """Whether the export is one table among others."""
        return self.format in (Format.DUCKDB, Format.SQLITE)

    def __str__(self) -> str:
        if not self.is_database:
            return str(self.path)
        return f"{self.format}:///{_escape(self.path)} (table {'.'.join(filter(None, (self.schema, self.table)))})"


def parse_destination(text: str, *, table: str = "subscribers", schema: str | None = None) -> Destination:
    """Where `text` points; `table` and `schema` name the table in a database.

    Raises ConfigurationError, without any password of a URL, for what cannot be written: an unknown suffix or scheme,
    a database without a path, an empty name, a schema in SQLite, a place that is a directory or in none.
    """
    url = _URL.fullmatch(text)
    form = _BY_SCHEME.get(url[1].lower()) if url else _BY_SUFFIX.get(Path(text).suffix.lower())
    if form is None:
        raise ConfigurationError(f"Cannot export to {mask_credentials(text)!r}. Give {_SUPPORTED}.")
    path = Path(_read_database_path(text, url[2])) if url else Path(text)
    if form in _BY_SCHEME.values():
        _check_names(form, table, schema)
    _check_place(path)
    return Destination(form, path, table, schema)


def mask_credentials(text: str) -> str:
    """A URL without its user and password, fit to show."""
    return _CREDENTIALS.sub("***@", text.split("?", 1)[0] if "://" in text else text)


def _read_database_path(text: str, rest: str) -> str:
    """The path of a database URL, its escapes read: `%20` is a blank, and a folder's own `%` is written `%25`."""
    path = unquote(rest.removeprefix("/"))
    if not rest.startswith("/") or path in ("", ":memory:") or "?" in rest:
        raise ConfigurationError(f"{mask_credentials(text)!r} names no database file that stays. Give {_SUPPORTED}.")
    return path


def _escape(path: Path) -> str:
    """The path as a URL has it, so that what is shown can be given again."""
    return str(path).replace("%", "%25").replace("?", "%3F")


def _check_names(form: Format, table: str, schema: str | None) -> None:
    for what, name in (("table", table), ("schema", schema)):
        if name is not None and (not name.strip() or not name.isprintable()):
            raise ConfigurationError(f"The {what} {name!r} is no name: give one that can be read.")
    if form is Format.SQLITE and schema is not None:
        raise ConfigurationError("SQLite has no schemas: leave `schema` out, or export to DuckDB.")
    if form is Format.SQLITE and table.lower().startswith("sqlite_"):
        raise ConfigurationError(f"SQLite keeps names like {table!r} for itself: choose another table.")


def _check_place(path: Path) -> None:
    if "\0" in str(path):
        raise ConfigurationError(f"{str(path)!r} holds a NUL, which no path may: take it out.")
    if path.is_dir():
        raise ConfigurationError(f"{path} is a directory: name a file in it.")
    if not path.parent.is_dir():
        raise ConfigurationError(f"The directory {path.parent} does not exist: create it, or export elsewhere.")
