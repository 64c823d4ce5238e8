"""An export to one file: Parquet, CSV or JSON Lines, plain or gzip, on the disk, in a store or to standard output.

A file is replaced only if an export made it: Parquet says so in its metadata, which also carry the run and the
certificate; CSV and JSON Lines by their columns `_run_id` and `_exported_at`.
"""

import csv
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO, Protocol, TypeVar, cast

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from connector.atomic_file import FORMULA
from connector.driver_words import say_safely
from connector.errors import ConfigurationError, RunAborted
from connector.stores import StoreError
from connector.warehouse.columns import flatten_schema, flatten_table
from connector.warehouse.file_targets import FileTarget
from connector.warehouse.parquet import UNREADABLE
from connector.warehouse.runs import EXPORTED_AT, OF_RUN, ExportRun, ExportStart, RowChanges

_STANDARD_OUTPUT = "-"

T = TypeVar("T")

_LONGEST_HEAD = 1 << 20  # bytes of the first line of a file; ours have a few hundred, or one subscriber


class FileFormat(Protocol):
    """Writes tables in one format; the class itself reads what an earlier export wrote."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None: ...

    def write(self, table: pa.Table) -> None:
        """Write these rows."""

    def close(self, run: ExportRun | None) -> None:
        """Write what the format needs at its end, and of the run what it can carry; the file itself stays open."""

    @staticmethod
    def is_ours(file: BinaryIO) -> bool:
        """Return whether an export made this file, which is unpacked and not empty."""

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        """Return the rows of a file that an export made, if it was filtered so as far as the format tells; None where
        it is damaged."""


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
    def is_ours(file: BinaryIO) -> bool:
        """Return whether its header has the columns of a run."""
        try:
            return set(OF_RUN) <= set(next(csv.reader([file.readline(_LONGEST_HEAD).decode()]), []))
        except UNREADABLE:
            return False

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        """Return the records below the header, whatever lines their texts have."""
        # One short column is enough to count by.
        convert = arrow_csv.ConvertOptions(include_columns=[EXPORTED_AT], column_types={EXPORTED_AT: pa.string()})
        read = arrow_csv.ReadOptions(use_threads=False)
        parse = arrow_csv.ParseOptions(newlines_in_values=True)
        try:
            with arrow_csv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert) as reader:
                return sum(int(batch.num_rows) for batch in reader)
        except UNREADABLE:
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
    def is_ours(file: BinaryIO) -> bool:
        """Return whether its first object has the columns of a run."""
        try:
            first = json.loads(file.readline(_LONGEST_HEAD))
        except (*UNREADABLE, ValueError, RecursionError):
            return False
        return isinstance(first, dict) and set(OF_RUN) <= set(first)

    @staticmethod
    def count_rows(file: BinaryIO, filters: Mapping[str, object]) -> int | None:
        """Return the lines of the file."""
        try:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        except UNREADABLE:
            return None


class FileWriter:
    """A Writer of one file at `target`, packed by gzip or not; of standard output where there is no target.

    Raises ConfigurationError when rows are first staged for a file that no export made, unless `is_adopting`: such a
    file is left as it is.
    """

    def __init__(
        self,
        target: FileTarget | None,
        form: type[FileFormat],
        schema: pa.Schema,
        *,
        is_packed: bool = False,
        is_adopting: bool = False,
        is_guarded: bool = False,
    ) -> None:
        self._target, self._form, self._schema = target, form, schema
        self._is_packed, self._is_adopting = is_packed, is_adopting
        self._open_rows: Callable[[BinaryIO, pa.Schema], FileFormat] = (
            partial(CsvFormat, is_guarded=True) if is_guarded else form
        )
        self._file: BinaryIO | None = None
        self._packed: gzip.GzipFile | None = None
        self._rows: FileFormat | None = None
        self._is_committing = False

    def prepare(self, beginning: ExportStart) -> None:
        """See whether a store may be written; on a disk, making the partial file shows what is missing."""
        if self._target is not None:
            self._target.prepare()

    @property
    def is_committing(self) -> bool:
        """Whether the new file is about to take its place, which may still happen."""
        return self._is_committing

    def interrupt(self) -> None:
        """Standard output may wait for its reader, and nothing ends that."""

    @property
    def has_target(self) -> bool:
        """Whether there is a file that is not empty."""
        return self._target is not None and not self._target.is_free

    def start(self) -> None:
        """Begin a new file."""
        self.discard()
        if self._target is None:
            if sys.stdout is None:
                raise RunAborted("Standard output is closed: name a file, or run again with an open one.")
            self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed by discard()
        else:
            self._target.refuse_kind()
            if not self._may_be_replaced(self._target):
                raise ConfigurationError(
                    f"{self._target} was not written by an export, and was left as it is: export to another file, or "
                    "replace this one with --overwrite (in a job: overwrite: true)."
                )
            self._file = self._target.open_new()
        if self._is_packed:
            self._packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=self._file, mtime=0)
        with self._described():
            self._rows = self._open_rows(cast(BinaryIO, self._packed or self._file), self._schema)

    def add(self, table: pa.Table) -> None:
        """Write rows to the new file."""
        if self._rows is None:
            raise ValueError("start() comes before add()")
        with self._described():
            self._rows.write(table)

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """Return the rows of the file that an export left there; only Parquet says what it was filtered by."""
        if self._target is None or self._target.is_free:
            return None
        is_ours = self._read_present(self._target, self._form.is_ours)
        count = partial(self._form.count_rows, filters=filters)
        return self._read_present(self._target, count) if is_ours else None

    def publish(self, run: ExportRun) -> RowChanges:
        """Finish the new file and let it take the target's place, which must be free if the run is incomplete."""
        if self._rows is None or self._file is None:
            raise ValueError("start() comes before publish()")
        with self._described():
            rows, self._rows = self._rows, None
            rows.close(run)
            if self._packed is not None:
                self._packed.close()
            if self._target is not None:
                if not self._may_be_replaced(self._target):  # it came while the list was read
                    raise RunAborted(f"{self._target} was made by another program meanwhile and was left as it is.")
                self._is_committing = True
                self._target.put_in_place(is_new=not run.certificate.is_complete)
        if self._target is None:
            _copy_to_standard_output(self._file)
        self.discard()
        return RowChanges(inserted=run.rows)

    def discard(self) -> None:
        """Remove the new file, if there is one."""
        rows, packed, file = self._rows, self._packed, self._file
        self._rows = self._packed = self._file = None
        if rows is not None:
            with suppress(OSError, ValueError, pa.ArrowException):  # what could not be finished is thrown away
                rows.close(None)  # Arrow's writers keep hold of the file until they are closed
        if packed is not None:
            with suppress(OSError, ValueError):
                packed.close()
        if self._target is not None:
            self._target.discard()
        elif file is not None:
            file.close()

    def _may_be_replaced(self, target: FileTarget) -> bool:
        """Return whether the target is free, an export's, adopted, or an export of no rows as JSON Lines, packed."""
        if target.is_free or self._is_adopting or self._read_present(target, self._form.is_ours):
            return True
        return self._is_packed and self._read_present(target, _is_empty)

    def _read_present(self, target: FileTarget, read: Callable[[BinaryIO], T]) -> T:
        """Return what is read of the file that is there, unpacked."""
        with target.open_present() as file:
            return read(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if self._is_packed else file)

    @contextmanager
    def _described(self) -> Iterator[None]:
        """Turn a failure to write into RunAborted, which says what the target is like."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise RunAborted(
                f"Could not write {self._target or _STANDARD_OUTPUT}: {say_safely(error)}. "
                f"{_say_state(error)}; run it again."
            ) from error


def _say_state(error: BaseException) -> str:
    """Say what the target is like after a failure: a store may have taken an object and its answer was lost."""
    if isinstance(error, StoreError) and error.is_passing:
        return "What was there is as it was, or the whole export has taken its place"
    return "What was there is as it was"


def _is_empty(file: BinaryIO) -> bool:
    try:
        return not file.readline(_LONGEST_HEAD)
    except UNREADABLE:
        return False


def guard_formulas(table: pa.Table) -> pa.Table:
    """Return the table with an apostrophe before every text that a spreadsheet would run; all else stays as it is."""
    columns = [_guard(column) if pa.types.is_string(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _guard(column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_formula = pc.fill_null(pc.match_substring_regex(column, FORMULA), False)
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", column, ""), column)


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
