"""The rows of a plan as a CSV, one line each: what would become of it, and why.

Lines wait in a temporary file, and become the file that was asked for once the plan has ended.
"""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from connector.atomic_file import create_private
from connector.errors import ConfigurationError, RunAborted
from connector.fields import normalise_identity
from connector.formulas import guard_formula
from connector.kept_values import KeptValues
from connector.load.session import Change, Problem, Tally
from connector.outcomes import Outcome
from connector.row_files import OPTED_OUT, RowFindings
from connector.rows import Closing, Row
from connector.subscribers.preparation import PreparedChunk

COLUMNS = ("_row", "_file", "_outcome", "_field", "_code", "_message", "identity", "fields", "service", "source")
"""`fields` are those of a changed row that differ, `service` what the service has of them, and `source` what the source
says: both JSON objects, by field. Of a row that would be created, `source` has all values as they would be sent."""

MOST_REPORTED = 100_000  # lines that a report may hold; more are for a file

_SOURCE = COLUMNS.index("source")

_RowKey = tuple[str, int]  # a row's file and number


class PlannedRows(Closing):
    """Hears of the rows of a plan: for the file at `path` (None: no file), and `is_reported` for the report itself.

    Holds the lines of one chunk, and the identities of rows without an outcome until the plan's end.
    """

    rejects_path: str | None = None  # a plan writes neither
    drift_path: str | None = None

    def __init__(
        self, path: Path | None, identity: str, findings: RowFindings | None = None, *, is_reported: bool = False
    ) -> None:
        self._path, self._identity, self._is_reported = path, identity, is_reported
        self._is_wanted = path is not None or is_reported
        self.findings = findings or RowFindings()
        self._names: dict[_RowKey, str] = {}  # of valid rows that have no outcome yet
        self._lines: dict[_RowKey, list[object]] = {}
        self._values = KeptValues()
        self._written = 0
        self.lines: list[dict[str, object]] | None = None  # for the report, once the plan has ended
        self.failure: str | None = None

    def build_tally(self) -> Tally:
        """Return the sums of the plan; the rows, too, if they are to be reported."""
        if not self._is_wanted:
            return Tally(self.write, self.findings.note_change)
        return Tally(self.write, self.write_change, on_rows=self.write_numbers, on_created=self.write_created)

    def begin_chunk(self, prepared: PreparedChunk) -> None:
        """Begin with the rows of this chunk; those of the one before are written, in their order."""
        if not self._is_wanted:
            return
        self._write_lines()
        chunk = prepared.chunk
        names = prepared.valid.subscribers[self._identity]
        numbers = chunk.numbers[names.index].tolist()
        self._names |= {(chunk.name, number): name for number, name in zip(numbers, names.tolist(), strict=True)}

    def write_numbers(self, outcome: Outcome, file: str, numbers: Sequence[int]) -> None:
        """Add rows that would end so and need no correction."""
        for number in numbers:
            self._add((file, number), [outcome, "", "", ""])

    def write_created(self, row: Row, sent: Mapping[str, object]) -> None:
        """Give the line of a row that would be created what would be sent."""
        values = {name: value for name, value in sent.items() if value is not None}
        self._lines[row.file, row.number][_SOURCE] = _write_values(values)

    def write_change(self, change: Change) -> None:
        """A row that has changed, and in which fields, where it was compared."""
        self.findings.note_change(change)
        message = "as an earlier run reported" if change.is_known else change.reason
        was = {name: value for name, value, _ in change.fields}
        now = {name: value for name, _, value in change.fields}
        code = "not_compared" if change.reason else "opted_out" if OPTED_OUT in change.fields else ""
        cells: list[object] = [Outcome.CHANGED, "", code, message]
        self._add((change.row.file, change.row.number), cells, "; ".join(was), _write_values(was), _write_values(now))

    def write(self, problem: Problem) -> None:
        """A row that a person must see."""
        self.findings.note_problem(problem)
        if self._is_wanted:
            cells: list[object] = [problem.outcome, problem.field, problem.code, problem.message]
            self._add((problem.row.file, problem.row.number), cells)

    def remark(self) -> Iterator[str]:
        """Yield what a person should know of the lines."""
        if self._is_reported and self._path is None and self._written + len(self._lines) > MOST_REPORTED:
            yield f"the report holds no more than {MOST_REPORTED:,} rows: write them to a file by --rows FILE.csv"

    def restart(self) -> None:
        """Nothing: a plan reads its rows once."""

    def _add(self, key: _RowKey, cells: list[object], fields: str = "", service: str = "", source: str = "") -> None:
        file, number = key
        if key in self._lines:  # a duplicate that differs is reported twice
            name = str(self._lines[key][COLUMNS.index("identity")])
        else:
            name = self._names.pop(key, "")
            name = normalise_identity(self._identity, name) if name else ""
        self._lines[key] = [number, file, *cells, name, fields, service, source]

    def _write_lines(self) -> None:
        lines, self._lines = self._lines, {}
        try:
            self._values.add(lines[key] for key in sorted(lines))
            self._written += len(lines)
        except RunAborted as error:
            self.failure = self.failure or str(error)

    def close(self) -> None:
        """Write the file, and keep the lines for the report: the plan has ended. May be called more than once."""
        if not self._is_wanted:
            return
        self._is_wanted = False
        for file, number in list(self._names):
            self.write_numbers(Outcome.UNSENT, file, [number])
        self._write_lines()
        try:
            if self._path is not None:
                with io.TextIOWrapper(create_private(self._path), "utf-8", "backslashreplace", newline="") as target:
                    writer = csv.writer(target)
                    writer.writerow(COLUMNS)
                    for index in range(self._written):
                        writer.writerow([guard_formula(str(cell)) for cell in self._values.read(index)])
            if self._is_reported and self._written <= MOST_REPORTED:
                self.lines = [_build_object(self._values.read(index)) for index in range(self._written)]
        except (OSError, RunAborted) as failure:
            target_name = "the rows of the plan" if self._path is None else f"--rows {self._path}"
            reason = failure.strerror if isinstance(failure, OSError) else failure
            self.failure = self.failure or f"{target_name} cannot be written: {reason}"
        finally:
            self._values.close()


def _write_values(values: Mapping[str, object]) -> str:
    return orjson.dumps(values, default=str).decode() if values else ""


def _build_object(line: Sequence[Any]) -> dict[str, object]:
    """Return a line as the report has it: `fields` as a list, `service` and `source` as objects."""
    cells = dict(zip(COLUMNS, line, strict=True))
    fields = cells["fields"].split("; ") if cells["fields"] else []
    values = {name: orjson.loads(cells[name] or b"{}") for name in ("service", "source")}
    return {**cells, "fields": fields, **values}


def check_rows_path(path: Path | None, report: Path | None) -> None:
    """Raise ConfigurationError if the rows cannot be written there: a file that is there is never replaced."""
    if path is None:
        return
    if os.path.lexists(path) or not path.absolute().parent.is_dir():
        raise ConfigurationError(f"--rows {path}: name a new file, in a folder that exists")
    if report is not None and report.absolute() == path.absolute():
        raise ConfigurationError(f"--rows {path}: that is the report's file, too; name another")
