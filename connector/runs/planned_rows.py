"""The rows of a plan as a CSV file. Each row has a line with the outcome that the row would have, and the reason.

The lines are in a temporary file until the plan ends. Then the CSV file is written.
"""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from connector.atomic_file import create_private_file
from connector.errors import ConfigurationError, RunAborted
from connector.fields import normalise_identity
from connector.outcomes import Outcome
from connector.rows import CloseableResource, Row
from connector.runs.row_files import OPT_OUT_DIFFERENCE, RowFindings
from connector.spool import SpooledValues
from connector.subscribers.preparation import PreparedChunk
from connector.tally import ChangedRow, OptOut, Problem, RowRecorder
from connector.texts import escape_formula

PLANNED_ROW_COLUMNS = (
    "_row",
    "_file",
    "_outcome",
    "_field",
    "_code",
    "_message",
    "identity",
    "fields",
    "service",
    "source",
)
"""Columns of the CSV file. For a changed row, `fields` are the fields that differ. `service` and `source` are JSON
objects with the values of these fields in the service and in the source. For a row that would be created, `source` has
all values that would be sent."""

_SOURCE_INDEX = PLANNED_ROW_COLUMNS.index("source")

_RowKey = tuple[str, int]  # the file and the number of a row


class PlannedRows(CloseableResource, RowRecorder):
    """The recorder of a plan's rows. `close` writes the rows to a file at `path` (None: no file).

    The memory holds the lines of one chunk, and the identities of rows that have no outcome.
    """

    rejects_path: str | None = None  # a plan writes no rejects file
    drift_path: str | None = None  # a plan writes no drift file

    def __init__(self, path: Path | None, identity_field: str, findings: RowFindings | None = None) -> None:
        self._path, self._identity_field = path, identity_field
        self.findings = findings or RowFindings()
        self._identities: dict[_RowKey, str] = {}  # text of the identity, for valid rows without an outcome
        self._cells_by_row_key: dict[_RowKey, list[object]] = {}
        self._spooled_lines = SpooledValues()
        self._line_count = 0  # number of lines in the temporary file
        self.failure: str | None = None

    @property
    def needs_all_rows(self) -> bool:
        """Whether all rows are written to a file."""
        return self._path is not None

    def write_opt_out(self, opt_out: OptOut) -> None:
        """Count an opt-out."""
        self.findings.problems.add_opt_out(opt_out)

    def begin_chunk(self, prepared_chunk: PreparedChunk) -> None:
        """Write the lines of the previous chunk in the order of the rows, and begin the lines of this chunk."""
        if self._path is None:
            return
        self._write_lines()
        chunk = prepared_chunk.chunk
        identities = prepared_chunk.valid_chunk.subscribers[self._identity_field]
        row_keys = [(chunk.name, row_number) for row_number in chunk.row_numbers[identities.index].tolist()]
        self._identities |= dict(zip(row_keys, identities.tolist(), strict=True))

    def write_row_numbers(self, outcome: Outcome, file: str, row_numbers: Sequence[int]) -> None:
        """Add rows that would have this outcome. No person needs to look at these rows."""
        for row_number in row_numbers:
            self._add_line((file, row_number), [outcome, "", "", ""])

    def write_created_row(self, row: Row, sent_values: Mapping[str, object]) -> None:
        """Complete the line of a row that would be created: add the values that the create would send."""
        source_values = {name: value for name, value in sent_values.items() if value is not None}
        self._cells_by_row_key[row.file, row.number][_SOURCE_INDEX] = _format_values(source_values)

    def write_change(self, change: ChangedRow) -> None:
        """Add a changed row, with the fields that differ if the row was compared."""
        self.findings.count_change(change)
        if self._path is None:
            return
        message = "an earlier run reported the difference" if change.is_reported_before else change.reason
        service_values = {name: value for name, value, _ in change.fields}
        source_values = {name: value for name, _, value in change.fields}
        code = "not_compared" if change.reason else "opted_out" if OPT_OUT_DIFFERENCE in change.fields else ""
        cells: list[object] = [Outcome.CHANGED, "", code, message]
        field_names_text, row_key = "; ".join(service_values), (change.row.file, change.row.number)
        self._add_line(row_key, cells, field_names_text, _format_values(service_values), _format_values(source_values))

    def write_problem(self, problem: Problem) -> None:
        """Add a row that a person must see."""
        self.findings.count_problem(problem)
        if self._path is not None:
            cells: list[object] = [problem.outcome, problem.field, problem.code, problem.message]
            self._add_line((problem.row.file, problem.row.number), cells)

    def list_messages(self) -> Sequence[str]:
        """Return no messages. The messages would be about the drift file, and a plan writes no drift file."""
        return ()

    def restart(self) -> None:
        """Do nothing, because a plan reads its rows once."""

    def _add_line(
        self,
        row_key: _RowKey,
        cells: list[object],
        field_names_text: str = "",
        service_values_text: str = "",
        source_values_text: str = "",
    ) -> None:
        file, row_number = row_key
        if row_key in self._cells_by_row_key:  # a duplicate that differs from the used row is reported twice
            identity = str(self._cells_by_row_key[row_key][PLANNED_ROW_COLUMNS.index("identity")])
        else:
            identity = self._identities.pop(row_key, "")
            identity = normalise_identity(self._identity_field, identity) if identity else ""
        self._cells_by_row_key[row_key] = [
            row_number,
            file,
            *cells,
            identity,
            field_names_text,
            service_values_text,
            source_values_text,
        ]

    def _write_lines(self) -> None:
        cells_by_row_key, self._cells_by_row_key = self._cells_by_row_key, {}
        try:
            self._spooled_lines.add(cells_by_row_key[row_key] for row_key in sorted(cells_by_row_key))
            self._line_count += len(cells_by_row_key)
        except RunAborted as error:
            self.failure = self.failure or str(error)

    def close(self) -> None:
        """Write the file. A second call does nothing."""
        path, self._path = self._path, None
        if path is None:
            return
        for file, row_number in list(self._identities):
            self.write_row_numbers(Outcome.UNSENT, file, [row_number])
        self._write_lines()
        try:
            with io.TextIOWrapper(create_private_file(path), "utf-8", "backslashreplace", newline="") as csv_file:
                writer = csv.writer(csv_file)
                writer.writerow(PLANNED_ROW_COLUMNS)
                for index in range(self._line_count):
                    writer.writerow([escape_formula(str(cell)) for cell in self._spooled_lines.read(index)])
        except (OSError, RunAborted) as failure:
            reason = failure.strerror if isinstance(failure, OSError) else failure
            self.failure = self.failure or f"--rows {path} cannot be written: {reason}"
        finally:
            self._spooled_lines.close()


def _format_values(values: Mapping[str, object]) -> str:
    return orjson.dumps(values, default=str).decode() if values else ""


def check_rows_path(path: Path | None, report_path: Path | None) -> None:
    """Raise ConfigurationError if the path exists, if its folder does not exist, or if the report has the same path."""
    if path is None:
        return
    if os.path.lexists(path) or not path.absolute().parent.is_dir():
        raise ConfigurationError(f"--rows {path}: name a new file, in a folder that exists")
    if report_path is not None and report_path.absolute() == path.absolute():
        raise ConfigurationError(f"--rows {path}: the report has the same path; name another file")
