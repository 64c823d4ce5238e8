"""An export to one file: Parquet, CSV or JSON Lines, plain or gzip, on the disk or to standard output.

A file is replaced only if an export made it: Parquet says so in its metadata, which also carry the run and the
certificate; CSV and JSON Lines by their columns `_run_id` and `_exported_at`.
"""

import csv
import gzip
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from connector.atomic_file import FORMULA, GROUP_READABLE, OWNER_ONLY, PartialFile, TargetKind, read_target_kind
from connector.driver_words import say_safely
from connector.errors import ConfigurationError, RunAborted
from connector.warehouse.columns import flatten_schema, flatten_table
from connector.warehouse.runs import EXPORTED_AT, OF_RUN, ExportRun, ExportStart, RowChanges

METADATA_KEYS = (b"connector_run", b"certificate")
"""Of a Parquet file, both JSON: the run (run_id, job, exported_at), and its certificate as in a report."""

STANDARD_OUTPUT = "-"

_ROW_GROUP = 65_536
"""Rows held back until they make a row group: about 25 MB of subscribers, and readers want groups of this size."""

_ALL_DIFFER = frozenset({"id", "email", "client_user_id", "phone"})
"""Columns that Parquet writes as they are: a dictionary of such values takes time, and room."""

_LONGEST_HEAD = 1 << 20  # bytes of the first line of a file; ours have a few hundred, or one subscriber
_UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error)


class FileFormat(Protocol):
    """Writes tables in one format; the class itself reads what an earlier export wrote."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None: ...

    def write(self, table: pa.Table) -> None:
        """Write these rows."""

    def close(self, run: ExportRun | None) -> None:
        """Write what the format needs at its end, and of the run what it can carry; the file itself stays open."""

    @staticmethod
    def is_ours(path: Path) -> bool:
        """Return whether an export made this file, which is not empty."""

    @staticmethod
    def count_rows(path: Path, filters: Mapping[str, object]) -> int | None:
        """Return the rows of a file that an export made, if it was filtered so as far as the format tells; None where
        it is damaged."""


class ParquetFormat:
    """Parquet with the schema's own types; zstd, which halves the size of snappy's files at the same speed here."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq  # 20 ms and 9 MB that an export to another format need not spend

        recurring = [_find_leaf(field) for field in schema if field.name not in _ALL_DIFFER]
        self._writer = pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=recurring)
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        """Write a row group as soon as there are rows for one."""
        self._waiting.append(table)
        self._rows += table.num_rows
        if self._rows >= _ROW_GROUP:
            self._flush()

    def close(self, run: ExportRun | None) -> None:
        """Write the last row group and the footer."""
        try:
            self._flush()
            if run is not None:
                self._writer.add_key_value_metadata(_build_metadata(run))
        finally:
            self._writer.close()

    def _flush(self) -> None:
        waiting, rows, self._waiting, self._rows = self._waiting, self._rows, [], 0
        if rows:
            self._writer.write_table(pa.concat_tables(waiting), row_group_size=rows)

    @staticmethod
    def is_ours(path: Path) -> bool:
        """Return whether its metadata name a run."""
        try:
            return METADATA_KEYS[0] in (_read_footer(path).metadata or {})
        except _UNREADABLE:
            return False

    @staticmethod
    def count_rows(path: Path, filters: Mapping[str, object]) -> int | None:
        """Return the number of rows that the footer says."""
        try:
            footer = _read_footer(path)
            certificate = json.loads(footer.metadata[METADATA_KEYS[1]])
            is_such = certificate["verdict"] == "complete" and certificate["filters"].get("asked", {}) == dict(filters)
            return int(footer.num_rows) if is_such else None
        except (*_UNREADABLE, ValueError, LookupError):
            return None


def _read_footer(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_metadata(path)


class CsvFormat:
    """CSV that reads back as it was: every text in quotes, null as nothing at all.

    UTF-8, commas, one header line; tags as a JSON array, dates and times ISO 8601, booleans true and false. A reader
    gets the same values back if it takes an unquoted empty cell as null and a quoted one as the empty text. With
    `is_guarded` a cell that a spreadsheet would run stands behind an apostrophe.
    """

    _OPTIONS = arrow_csv.WriteOptions(include_header=True, quoting_style="needed")  # texts always "need" them in Arrow

    def __init__(self, file: BinaryIO, schema: pa.Schema, *, is_guarded: bool = False) -> None:
        self._is_guarded = is_guarded
        self._writer = arrow_csv.CSVWriter(file, flatten_schema(schema), write_options=self._OPTIONS)

    def write(self, table: pa.Table) -> None:
        """Write these rows."""
        flat = flatten_table(table)
        self._writer.write_table(guard_formulas(flat) if self._is_guarded else flat)

    def close(self, run: ExportRun | None) -> None:
        """CSV has no end of its own, and no place for the run's certificate."""
        self._writer.close()

    @staticmethod
    def is_ours(path: Path) -> bool:
        """Return whether its header has the columns of a run."""
        try:
            return set(OF_RUN) <= set(next(csv.reader([_read_first_line(path).decode()]), []))
        except _UNREADABLE:
            return False

    @staticmethod
    def count_rows(path: Path, filters: Mapping[str, object]) -> int | None:
        """Return the records below the header, whatever lines their texts have."""
        # One short column is enough to count by.
        convert = arrow_csv.ConvertOptions(include_columns=[EXPORTED_AT], column_types={EXPORTED_AT: pa.string()})
        read = arrow_csv.ReadOptions(use_threads=False)
        parse = arrow_csv.ParseOptions(newlines_in_values=True)
        try:
            with (
                open_unpacked(path) as file,
                arrow_csv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert) as reader,
            ):
                return sum(int(batch.num_rows) for batch in reader)
        except _UNREADABLE:
            return None


class JsonLinesFormat:
    """One object a line with every column, null included; dates and times ISO 8601. No rows make an empty file."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file

    def write(self, table: pa.Table) -> None:
        """Write these rows."""
        rows = flatten_table(table, is_list_kept=True).to_pylist()
        self._file.write(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))

    def close(self, run: ExportRun | None) -> None:
        """JSON Lines have no end of their own, and no place for the run's certificate."""

    @staticmethod
    def is_ours(path: Path) -> bool:
        """Return whether its first object has the columns of a run."""
        try:
            first = json.loads(_read_first_line(path))
        except (*_UNREADABLE, ValueError, RecursionError):
            return False
        return isinstance(first, dict) and set(OF_RUN) <= set(first)

    @staticmethod
    def count_rows(path: Path, filters: Mapping[str, object]) -> int | None:
        """Return the lines of the file."""
        try:
            with open_unpacked(path) as file:
                return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        except _UNREADABLE:
            return None


class FileWriter:
    """A Writer of one file, or of standard output where `path` is `-`.

    Raises ConfigurationError when rows are first staged for a file that no export made, unless `is_adopting`: such a
    file is left as it is. The file is its owner's only (0600), or its group's too (0640), also where the one that it
    replaces was readable by all.
    """

    def __init__(
        self,
        path: Path,
        form: type[FileFormat],
        schema: pa.Schema,
        *,
        is_adopting: bool = False,
        is_group_readable: bool = False,
        is_guarded: bool = False,
    ) -> None:
        self._path, self._form, self._schema = path, form, schema
        self._is_adopting = is_adopting
        self._is_standard_output = str(path) == STANDARD_OUTPUT
        self._mode = GROUP_READABLE if is_group_readable else OWNER_ONLY
        self._open_rows: Callable[[BinaryIO, pa.Schema], FileFormat] = (
            partial(CsvFormat, is_guarded=True) if is_guarded else form
        )
        self._partial: PartialFile | None = None
        self._file: BinaryIO | None = None
        self._packed: gzip.GzipFile | None = None
        self._rows: FileFormat | None = None

    def prepare(self, beginning: ExportStart) -> None:
        """Do nothing: making the partial file shows what is missing."""

    @property
    def is_committing(self) -> bool:
        """A file takes its place in one step."""
        return False

    def interrupt(self) -> None:
        """Standard output may wait for its reader, and nothing ends that."""

    @property
    def has_target(self) -> bool:
        """Whether there is a file that is not empty."""
        return not self._is_standard_output and read_target_kind(self._path) is not TargetKind.FREE

    def start(self) -> None:
        """Begin a new partial file."""
        self.discard()
        if self._is_standard_output:
            if sys.stdout is None:
                raise RunAborted("Standard output is closed: name a file, or run again with an open one.")
            self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by discard()
        else:
            reason = self._find_objection()
            if reason:
                raise ConfigurationError(reason)
            self._partial = PartialFile(self._path, mode=self._mode)
            self._file = self._partial.file
        if self._path.suffix.lower() == ".gz":
            self._packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=self._file, mtime=0)
        with self._described():
            self._rows = self._open_rows(cast(BinaryIO, self._packed or self._file), self._schema)

    def add(self, table: pa.Table) -> None:
        """Write rows to the partial file."""
        if self._rows is None:
            raise ValueError("start() comes before add()")
        with self._described():
            self._rows.write(table)

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """Return the rows of the file that an export left there; only Parquet says what it was filtered by."""
        is_there = self.has_target and self._form.is_ours(self._path)
        return self._form.count_rows(self._path, filters) if is_there else None

    def publish(self, run: ExportRun) -> RowChanges:
        """Finish the partial file and let it take the target's place, which must be free if the run is incomplete."""
        if self._rows is None or self._file is None:
            raise ValueError("start() comes before publish()")
        with self._described():
            rows, self._rows = self._rows, None
            rows.close(run)
            if self._packed is not None:
                self._packed.close()
            if self._partial is not None:
                self._put_in_place(self._partial, is_complete=run.certificate.is_complete)
        if self._is_standard_output:
            _copy_to_standard_output(self._file)
        self.discard()
        return RowChanges(inserted=run.rows)

    def discard(self) -> None:
        """Remove the partial file, if there is one."""
        rows, packed, file, part = self._rows, self._packed, self._file, self._partial
        self._rows = self._packed = self._file = self._partial = None
        if rows is not None:
            with suppress(OSError, ValueError, pa.ArrowException):  # what could not be finished is thrown away
                rows.close(None)  # Arrow's writers keep hold of the file until they are closed
        if packed is not None:
            with suppress(OSError, ValueError):
                packed.close()
        if part is not None:
            part.discard()
        elif file is not None:
            file.close()

    def _put_in_place(self, part: PartialFile, *, is_complete: bool) -> None:
        if self._find_objection():  # another program's file came while the list was read
            raise RunAborted(f"{self._path} was made by another program meanwhile and was left as it is.")
        is_empty = self._path.exists() and read_target_kind(self._path) is TargetKind.FREE
        if is_complete or is_empty:
            part.put_in_place()
        else:
            part.put_in_free_place()

    def _find_objection(self) -> str:
        """Return why the target may not be written; "" if it may."""
        kind = read_target_kind(self._path)
        if kind is TargetKind.FREE:
            return ""
        if kind is not TargetKind.FILE:
            return f"{self._path} is {kind.value}, no file: an export can go to a file, or to - (standard output)."
        if self._is_adopting or self._form.is_ours(self._path) or self._is_packed_empty():
            return ""
        return (
            f"{self._path} was not written by an export, and was left as it is: export to another file, or replace "
            "this one with --overwrite (in a job: overwrite: true)."
        )

    def _is_packed_empty(self) -> bool:
        """Return whether it is an export of no rows as JSON Lines, packed."""
        try:
            return self._path.suffix.lower() == ".gz" and not _read_first_line(self._path)
        except _UNREADABLE:
            return False

    @contextmanager
    def _described(self) -> Iterator[None]:
        """Turn a failure to write into RunAborted, which says what the target is like."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise RunAborted(
                f"Could not write {self._path}: {say_safely(error)}. What was there is as it was; run it again."
            ) from error


def open_unpacked(path: Path) -> BinaryIO:
    """Open the file for reading, as what it holds if it ends in .gz."""
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")


def guard_formulas(table: pa.Table) -> pa.Table:
    """Return the table with an apostrophe before every text that a spreadsheet would run; all else stays as it is."""
    columns = [_guard(column) if pa.types.is_string(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _guard(column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_formula = pc.fill_null(pc.match_substring_regex(column, FORMULA), False)
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", column, ""), column)


def _build_metadata(run: ExportRun) -> dict[bytes, bytes]:
    said = {"run_id": run.run_id, "job": run.job, "exported_at": run.exported_at.isoformat()}
    values = (json.dumps(said), json.dumps(run.certificate.as_report()))
    return dict(zip(METADATA_KEYS, (value.encode() for value in values), strict=True))


def _find_leaf(field: pa.Field) -> str:
    """The path of what Parquet keeps of a column: of a list, its elements."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name


def _read_first_line(path: Path) -> bytes:
    with open_unpacked(path) as file:
        return file.readline(_LONGEST_HEAD)


def _copy_to_standard_output(file: BinaryIO) -> None:
    """By its descriptor: a buffer of Python's would fail once more when the process ends."""
    sys.stdout.flush()
    file.seek(0)
    try:
        while part := memoryview(file.read(1 << 20)):
            while part:
                part = part[os.write(sys.stdout.fileno(), part) :]
    except OSError as error:
        raise RunAborted(
            f"Standard output took only a part of the export ({error.strerror}): do not use it, and run again."
        ) from error
