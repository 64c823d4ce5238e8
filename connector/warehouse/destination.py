"""The destination of an export, parsed from a file name or a URL. Parsing opens nothing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, assert_never
from urllib.parse import unquote

from connector.atomic_file import TargetKind, read_target_kind
from connector.choices import format_choices
from connector.errors import ConfigurationError
from connector.fields import FIELD_NAMES
from connector.stores import is_store_url, parse_store_url
from connector.texts import is_unicode
from connector.warehouse.runs import WriteMode

if TYPE_CHECKING:
    from connector.databases import DatabaseUrl


DEFAULT_MAX_SHRINK = 0.5
"""The default share of subscribers that the list may lose between two exports. If the list lost half of its
subscribers, the cause is most often a wrong token or filter."""


class Format(StrEnum):
    """The kinds of destinations."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON_LINES = "jsonl"
    EXCEL = "excel"
    SQLITE = "sqlite"
    DUCKDB = "duckdb"
    POSTGRESQL = "postgresql"
    MYSQL = "mysql"
    SQL = "sql"  # any other database with an SQLAlchemy dialect
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class FormatTraits:
    """The properties of a format.

    - `modes`: the modes in which an export can write the format.
    - `suffix`: the suffix of the files, or "" if the destination is a table.
    - `is_compressed`: the format itself compresses its files, so gzip is not needed.
    - `can_hold_receipts`: a run can write its receipts in the format.
    """

    modes: tuple[WriteMode, ...]
    suffix: str
    is_compressed: bool
    can_hold_receipts: bool = True


def find_format_traits(destination_format: Format) -> FormatTraits:
    """Return the properties of a format."""
    match destination_format:
        case Format.PARQUET:
            return FormatTraits((WriteMode.REPLACE,), ".parquet", is_compressed=True)
        case Format.CSV:
            return FormatTraits((WriteMode.REPLACE,), ".csv", is_compressed=False)
        case Format.JSON_LINES:
            return FormatTraits((WriteMode.REPLACE,), ".jsonl", is_compressed=False)
        case Format.EXCEL:
            return FormatTraits((WriteMode.REPLACE,), ".xlsx", is_compressed=True, can_hold_receipts=False)
        case Format.SQL:
            modes: tuple[WriteMode, ...] = (WriteMode.REPLACE, WriteMode.APPEND)
        case Format.DELTA:  # without the mode `history`, because each Delta table keeps its earlier versions
            modes = (WriteMode.REPLACE, WriteMode.APPEND, WriteMode.UPSERT)
        case Format.SQLITE | Format.DUCKDB | Format.POSTGRESQL | Format.MYSQL:
            modes = tuple(WriteMode)
        case _:
            assert_never(destination_format)
    return FormatTraits(modes, "", is_compressed=False)


_FORMAT_BY_SUFFIX = {
    find_format_traits(file_format).suffix: file_format
    for file_format in Format
    if find_format_traits(file_format).suffix
}
_GZIP_SUFFIX = ".gz"


STANDARD_OUTPUT = "-"
_DEFAULT_TABLE = "subscribers"
_FORMAT_BY_SCHEME = {"duckdb": Format.DUCKDB, "sqlite": Format.SQLITE, "sqlite+pysqlite": Format.SQLITE}
_FORMAT_BY_DRIVER = {
    "postgresql+psycopg": Format.POSTGRESQL,
    "mysql+pymysql": Format.MYSQL,
    "mariadb+pymysql": Format.MYSQL,
}
_UNSUPPORTED_WAREHOUSE_BY_SCHEME = {
    "snowflake": "Snowflake",
    "bigquery": "BigQuery",
    "redshift": "Redshift",
    "mssql": "SQL Server",
    "sqlserver": "SQL Server",
    "databricks": "Databricks",
}
_DESTINATIONS_MESSAGE = (
    f"a file (for receipts, a folder) ending in {', '.join(_FORMAT_BY_SUFFIX)}, .csv.gz or .jsonl.gz; a file with "
    "another ending and --format (in a job: `format`), but not for receipts; an object in a store with one of the "
    "endings above (s3://bucket/x.parquet); - (standard output); a database, as postgresql://user@host/database, "
    "mysql://user@host/database, duckdb:///warehouse.duckdb or sqlite:///warehouse.db (four slashes for an absolute "
    "path); the URL of another database whose SQLAlchemy dialect is installed; or a Delta table, as delta://folder or "
    "delta://s3://bucket/folder"
)
_URL_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://(.*)", re.DOTALL)
_CREDENTIALS_PATTERN = re.compile(r"(?<=://).*@", re.DOTALL)
"""The credentials of a URL, up to the last @, because a password may contain a slash or an @."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options of a CSV file. Files of other formats have no options.

    - `is_for_excel`: the file begins with a byte order mark, so that Excel recognises UTF-8. Tags have the form `a|b`.
    - `has_escaped_formulas`: an apostrophe precedes each text that a spreadsheet would run as a formula.
    """

    delimiter: str = ","
    is_for_excel: bool = False
    has_escaped_formulas: bool = False


@dataclass(frozen=True, slots=True)
class Destination:
    """A file, an object in a store, a table of a database, or a Delta table.

    - `path`: the file, the database file, the name of a server's database, the folder of a Delta table, or the bucket
      and key of an object.
    - `url`: the URL of a server. `object_url`: the URL of an object, or of a Delta table in a store.
    - `table`, `schema` and `mode` are for databases. `partition_by` has the columns that divide a Delta table into
      folders.
    - `columns`: the fields to write, with the id. If `columns` is None, all fields are written.
    - `has_run_columns`: the file has the columns `_run_id` and `_exported_at`.
    - `overwrite`: overwrite a table or file that the connector did not create.
    - `is_group_readable`: the group of the file may read the file.
    """

    format: Format
    path: Path
    table: str = _DEFAULT_TABLE
    schema: str | None = None
    mode: WriteMode = WriteMode.REPLACE
    url: "DatabaseUrl | None" = field(default=None, repr=False)
    columns: tuple[str, ...] | None = None
    overwrite: bool = False
    is_group_readable: bool = False
    object_url: str | None = None
    file_options: FileOptions = FileOptions()
    has_run_columns: bool = True
    partition_by: tuple[str, ...] = ()

    @property
    def is_database(self) -> bool:
        """Whether the destination is a table of a database, or a Delta table."""
        return not find_format_traits(self.format).suffix

    @property
    def is_standard_output(self) -> bool:
        """Whether the destination is the standard output of this process."""
        return str(self.path) == STANDARD_OUTPUT

    @property
    def is_packed(self) -> bool:
        """Whether the file is compressed by gzip."""
        return self.path.suffix.lower() == _GZIP_SUFFIX

    def join(self, name: str) -> "Destination":
        """Return the destination of the file `name` in the folder `path`."""
        object_url = None if self.object_url is None else f"{self.object_url}/{name}"
        return replace(self, path=self.path / name, object_url=object_url)

    def __str__(self) -> str:
        if self.format is Format.DELTA:
            return f"delta://{self.object_url or self.path}"
        if self.object_url is not None:
            return self.object_url
        if not self.is_database:
            return "standard output" if self.is_standard_output else str(self.path)
        # a URL that the user can copy
        shown_url = f"{self.format}:///{str(self.path).replace('%', '%25').replace('?', '%3F')}"
        if self.url is not None:
            # Imported here, because the module imports SQLAlchemy, which an export to a file does not need.
            from connector.databases import format_url

            shown_url = format_url(self.url)
        return f"{shown_url} (table {'.'.join(filter(None, (self.schema, self.table)))})"


def parse_destination(
    text: str,
    *,
    table: str = _DEFAULT_TABLE,
    schema: str | None = None,
    mode: str = "replace",
    guard_formulas: bool = False,
    columns: Sequence[str] | None = None,
    overwrite: bool = False,
    group_readable: bool = False,
    file_format: str | None = None,
    csv_dialect: str = "standard",
    delimiter: str | None = None,
    run_columns: bool = True,
    partition_by: Sequence[str] = (),
) -> Destination:
    """Return the destination of a file name or a URL. `file_format` (csv, jsonl, parquet, excel) is for a file whose
    suffix does not show the format. `csv_dialect` is one of CSV_DIALECTS, and `delimiter` one of CSV_DELIMITERS.
    The other options have the meaning of the fields of Destination.

    Raises ConfigurationError for a destination that cannot be written: its suffix is unknown, its driver or folder is
    missing, or it does not support one of the options. The message shows no password of a URL.
    """
    url_match = _URL_PATTERN.fullmatch(text)
    scheme = url_match[1].lower() if url_match else ""
    if (warehouse := _UNSUPPORTED_WAREHOUSE_BY_SCHEME.get(scheme.partition("+")[0])) is not None:
        raise ConfigurationError(
            f"{warehouse} is not written directly: write a Parquet file or object, and load it into the warehouse; "
            "docs/how-to/warehouses.md has the statements."
        )
    url = object_url = None
    if is_store_url(text):
        object_url = parse_store_url(text)
        destination_format, path = _find_file_format(text, file_format), Path(object_url.partition("://")[2])
    elif url_match is None:
        destination_format, path = _find_file_format(text, file_format), Path(text)
    elif scheme in _FORMAT_BY_SCHEME:
        destination_format, path = _FORMAT_BY_SCHEME[scheme], Path(_read_database_path(text, url_match[2]))
    elif scheme == Format.DELTA:
        destination_format, object_url, path = Format.DELTA, *_parse_delta(url_match[2])
    else:
        url = _parse_server(text)
        destination_format = _FORMAT_BY_DRIVER.get(url.drivername, Format.SQL)
        path = Path(url.database or url.host or "database")
    file_options = FileOptions(
        "\t" if delimiter == "tab" else delimiter or ",",
        is_for_excel=csv_dialect == "excel",
        has_escaped_formulas=guard_formulas,
    )
    destination = Destination(
        destination_format, path, table, schema, WriteMode(mode), url, check_columns(columns), overwrite,
        group_readable, object_url, file_options, run_columns, check_partition(partition_by),
    )  # fmt: skip
    if url is None and object_url is None and str(path).startswith("~/"):
        raise ConfigurationError(
            f"{path} begins with ~, which only a shell or a job file replaces by your home folder: write the full path."
        )
    if destination.is_database:
        _check_names(destination_format, table, schema)
    if (
        url is None
        and object_url is None
        and not destination.is_standard_output
        and destination_format is not Format.DELTA
    ):
        _check_file_path(path)
        if destination.is_database and not is_unicode(str(path.absolute())):
            raise ConfigurationError(
                f"The path {path.absolute()} is not in UTF-8, which a database file needs: name another destination."
            )
        if destination_format is Format.DUCKDB and "?" in str(path.absolute()):
            raise ConfigurationError(
                f"{path.absolute()} has a '?', after which DuckDB reads options: choose a path without a '?'."
            )
    _refuse_useless_options(destination, file_format, has_delimiter=delimiter is not None)
    return destination


RECEIPTS_TABLE = "subscriber_receipts"
"""The default name of a table of receipts."""


def parse_receipts(text: str, *, table: str = RECEIPTS_TABLE, schema: str | None = None) -> Destination:
    """Return the destination of receipts: a table, or a folder that has one file for each run. The suffix of the folder
    decides the format of the files. Raises ConfigurationError."""
    is_url, path = _URL_PATTERN.fullmatch(text) is not None, Path(text)
    is_database_url = is_url and not is_store_url(text) and not text.lower().startswith(f"{Format.DELTA}://")
    if table == RECEIPTS_TABLE and not is_database_url:
        table = _DEFAULT_TABLE
    try:
        if is_url:
            destination = parse_destination(text, table=table, schema=schema)
        else:
            destination = Destination(_find_file_format(text, None), path, table, schema)
            _refuse_useless_options(destination, None, has_delimiter=False)
    except ConfigurationError as error:
        raise ConfigurationError(f"Receipts cannot be written. {error}") from None
    if destination.is_standard_output or not find_format_traits(destination.format).can_hold_receipts:
        suffixes = [
            suffix
            for suffix, file_format in _FORMAT_BY_SUFFIX.items()
            if find_format_traits(file_format).can_hold_receipts
        ]
        raise ConfigurationError(
            f"Receipts cannot be written to {destination}. Name a table, or a folder ending in "
            f"{format_choices(suffixes)}."
        )
    if not is_url and path.exists() and not path.is_dir():
        raise ConfigurationError(f"{path} is a file. Receipts need a folder, because each run writes a new file.")
    if not is_url and not path.absolute().parent.is_dir():
        raise ConfigurationError(f"The directory {path.parent} does not exist: create it, or name another destination.")
    return destination


def _parse_delta(location: str) -> tuple[str | None, Path]:
    """Return the URL (None for a folder) and the path of a Delta table. Raises ConfigurationError, for example if the
    package deltalake is missing.
    """
    if find_spec("deltalake") is None:
        raise ConfigurationError(
            "A Delta table needs the package deltalake: run pip install 'subscriber-connector[delta]'."
        )
    if not location:
        raise ConfigurationError("delta:// needs a folder: write delta://folder or delta://s3://bucket/folder.")
    if "://" in location:
        object_url = parse_store_url(location)
        return object_url, Path(object_url.partition("://")[2])
    return None, Path(location)


def check_partition(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that divide a Delta table. Raises ConfigurationError for a column that cannot divide a
    table."""
    wrong_names = [name for name in names if name not in FIELD_NAMES or name in ("id", "tags")]
    if wrong_names:
        raise ConfigurationError(
            f"A table cannot be partitioned by {', '.join(map(repr, wrong_names))}. Choose a field with few values, "
            "such as base_id, is_active or address_country."
        )
    return tuple(names)


def _find_file_format(text: str, format_option: str | None) -> Format:
    """Return the format of a file. `format_option` is used if the suffix shows no format. Raises ConfigurationError."""
    path = Path(text)
    is_packed = path.suffix.lower() == _GZIP_SUFFIX
    file_format = _FORMAT_BY_SUFFIX.get((Path(path.stem) if is_packed else path).suffix.lower())
    if text == STANDARD_OUTPUT and format_option is None:
        file_format = Format.CSV
    elif file_format is None and format_option is not None:
        file_format = Format(format_option)
    if file_format is None or (is_packed and find_format_traits(file_format).is_compressed):
        suffix = path.suffix  # the whole text is not shown, because the text may be a mistyped URL with a password
        may_have_password = not is_store_url(text) and any(character in text for character in "@:=")
        is_plain_suffix = suffix[1:].isalnum() and len(suffix) < 9 and not may_have_password
        shown_text = (
            f"a file ending in {suffix!r}" if is_plain_suffix else "this text, which is neither a file's name nor a URL"
        )
        raise ConfigurationError(f"Cannot write to {shown_text}. Name {_DESTINATIONS_MESSAGE}.")
    if format_option is not None and file_format != format_option:
        raise ConfigurationError(
            f"{text} is written as {file_format}: leave out the format {format_option}, or name another destination."
        )
    return file_format


def check_columns(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return these fields and the id in the order of FIELDS. Return None if `names` is None, which means all fields.
    Raises ConfigurationError for an unknown field and for an empty list."""
    if isinstance(names, str):  # a text is also a sequence of texts
        raise ConfigurationError(f"`columns` must be a list of fields: write [{names!r}].")
    unknown_names = [name for name in names or () if name not in FIELD_NAMES]
    if unknown_names or (names is not None and not names):
        problem = f"no field is named {', '.join(map(repr, unknown_names))}" if unknown_names else "no column is chosen"
        raise ConfigurationError(f"columns: {problem}. Choose from {', '.join(FIELD_NAMES)}.")
    return None if names is None else tuple(name for name in FIELD_NAMES if name in {"id", *names})


def _parse_server(text: str) -> "DatabaseUrl":
    """Return the URL of a database server. Raises ConfigurationError, for example for a missing driver."""
    from connector.databases import build_engine, format_url, parse_url

    url = parse_url(text, "the destination")
    backend, _, driver = url.drivername.partition("+")
    if backend in ("mysql", "mariadb") and driver != "pymysql":
        raise ConfigurationError(
            f"Cannot write to {format_url(url)} by {driver}: the connector writes to {backend} only by PyMySQL. "
            f"Write {backend}:// in place of {url.drivername}://."
        )
    try:
        build_engine(url)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"Cannot write to this database: {error}. Other destinations: {_DESTINATIONS_MESSAGE}."
        ) from None
    return url


def _read_database_path(text: str, url_tail: str) -> str:
    """Return the path of a database URL after decoding: `%20` is a blank, and `%25` a percent sign."""
    path = unquote(url_tail.removeprefix("/"))
    shown_url = _CREDENTIALS_PATTERN.sub("***@", text.split("?", 1)[0])
    if "?" in url_tail:
        raise ConfigurationError(
            f"The URL {shown_url!r} continues with '?' and options, which a database file does not support: leave the "
            "options out. If '?' belongs to the file's name, write %3F."
        )
    if not url_tail.startswith("/") or path in ("", ":memory:"):
        raise ConfigurationError(
            f"{shown_url!r} does not contain the path of a database file. Use {_DESTINATIONS_MESSAGE}."
        )
    return path


def _check_names(destination_format: Format, table: str, schema: str | None) -> None:
    reserved_prefixes = ("_connector_", "sqlite_") if destination_format is Format.SQLITE else ("_connector_",)
    for name_kind, name in (("table", table), ("schema", schema)):
        if name is not None and (not name.strip() or not name.isprintable() or ":" in name):
            raise ConfigurationError(
                f"The {name_kind} cannot be called {name!r}: choose a readable name without a colon."
            )
        if name is not None and name.lower().startswith(reserved_prefixes):
            raise ConfigurationError(f"Names like {name!r} are reserved: choose another {name_kind}.")
    if destination_format is Format.SQLITE and schema is not None:
        raise ConfigurationError("SQLite has no schemas: leave `schema` out, or use DuckDB.")


def _refuse_useless_options(destination: Destination, file_format: str | None, *, has_delimiter: bool) -> None:
    is_table, is_csv = destination.is_database, destination.format is Format.CSV
    is_delta, is_standard_output = destination.format is Format.DELTA, destination.is_standard_output
    ignores_table_name = is_delta or not is_table
    has_file_permissions = destination.object_url is None and not is_standard_output and (is_delta or not is_table)
    is_refused_by_key = {
        "guard_formulas": destination.file_options.has_escaped_formulas and not is_csv,
        "csv_dialect": destination.file_options.is_for_excel and not is_csv,
        "delimiter": has_delimiter and not is_csv,
        "run_columns": is_table and not destination.has_run_columns,
        "format": is_table and file_format is not None,
        "group_readable": destination.is_group_readable and not has_file_permissions,
        "overwrite": destination.overwrite and is_standard_output,
        "partition_by": bool(destination.partition_by) and not is_delta,
        "table": ignores_table_name and destination.table != _DEFAULT_TABLE,
        "schema": ignores_table_name and destination.schema is not None,
    }
    for key, is_refused in is_refused_by_key.items():
        if is_refused:
            option = "--no-run-columns" if key == "run_columns" else f"--{key.replace('_', '-')}"
            raise ConfigurationError(
                f"{destination} does not support {option} (in a job: `{key}`). Leave this option out."
            )
    modes = find_format_traits(destination.format).modes
    if destination.mode not in modes:
        raise ConfigurationError(
            f"{destination} does not support --mode {destination.mode} (in a job: `mode`). "
            f"Possible: {', '.join(modes)}."
        )
    missing_columns = [name for name in destination.partition_by if name not in (destination.columns or FIELD_NAMES)]
    if missing_columns:
        raise ConfigurationError(
            f"To partition the table by {', '.join(missing_columns)}, add {', '.join(missing_columns)} to the columns."
        )


def _check_file_path(path: Path) -> None:
    try:
        target_kind = read_target_kind(path)
    except (OSError, ValueError) as error:
        # The cause may be a link to itself, a name that is too long, or a NUL in the name.
        raise ConfigurationError(f"{str(path)!r} cannot be written ({error}): name another destination.") from None
    if target_kind is TargetKind.FOLDER:
        raise ConfigurationError(f"{path} is a directory: name a file in it.")
    if not path.parent.is_dir():
        raise ConfigurationError(f"The directory {path.parent} does not exist: create it, or name another destination.")
