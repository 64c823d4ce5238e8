"""The rejects file and the drift file of a load, and the causes of the load's problems for the report.

The rejects file has the rows that a person must check, with the unchanged cells of the source. The drift file has the
values of the source that the service does not have (architecture 8). The causes have only masked examples.
"""

import csv
import io
import logging
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from connector.atomic_file import PartialFile, create_private_file
from connector.errors import ConnectorError
from connector.load.candidates import extract_row
from connector.outcomes import Fault, Outcome
from connector.rows import Chunk, CloseableResource, MalformedRow, OmittedZip, Row, format_cell
from connector.runs.problems import ProblemLog
from connector.runs.rejects import ADDED_COLUMNS, select_source_columns
from connector.service.answers import build_refusal_kind
from connector.sheet_file import CellError, SheetFile
from connector.subscribers.preparation import Difference, PreparedChunk
from connector.tally import ChangedRow, OptOut, Problem, RowRecorder
from connector.texts import ESCAPED_FORMULA_PATTERN, choose_form, count, escape_formula

DRIFT_COLUMNS = {
    "identity": "Email or client_user_id: the source's value, or the service's value if the run has not read the row.",
    "field": "The field that differs; empty if the row could not be compared.",
    "service": "The value in the service, if the row was compared.",
    "source": "The value in the source, as it would be sent.",
    "_row": "The row's number in the source; empty for an opt-out whose row the run has not read.",
    "_file": "The name of the source.",
    "_outcome": "The outcome of the row.",
    "_code": "`changed`: the values differ; `not_compared`: the values could not be compared with the service, and a "
    "message of the report gives the reason; `opted_out`: the row says inactive, and the service shows the subscriber "
    "as active; `zip_omitted`: the subscriber was created without the zip code, because the zip code is not a plain "
    "number.",
    "_run_id": "The id of the run.",
    "_at": "Time when the line was written.",
}


OPT_OUT_DIFFERENCE = ("is_active", True, False)
"""The changed field of an opt-out: the name of the field, the value in the service, and the value in the source."""

logger = logging.getLogger(__name__)


_MAX_EXAMPLES = 3  # examples of each cause
_MAX_CAUSES = 30  # separate causes in a report, because the service may use a different message for each refusal
_MAX_CELL_LENGTH = 60
_LINE_PREFIX_PATTERN = re.compile(r"^line \d+: ")
_QUOTED_TEXT_PATTERN = re.compile(r"([\"']).*\1")


@dataclass(slots=True)
class RowFindings:
    """The causes of a run's problems with masked examples, and the number of changed rows for each field.

    `columns_by_field` has the columns of the source for each field. `problems` distinguishes new problems
    from problems that earlier runs reported.
    """

    columns_by_field: Mapping[str, Sequence[str]] = field(default_factory=dict)
    problems: ProblemLog = field(default_factory=ProblemLog)
    changed_fields: Counter[str] = field(default_factory=Counter)
    _cause_by_key: dict[tuple[str, str, str, str], dict[str, Any]] = field(default_factory=dict)

    def count_problem(self, problem: Problem) -> None:
        """Count the row of the problem under each of its causes. Each fault of the row has a cause."""
        self.problems.add_problem(problem)
        fields, codes, messages = (text.split("; ") for text in (problem.field, problem.code, problem.message))
        if not len(fields) == len(codes) == len(messages):
            fields, codes, messages = [problem.field], [problem.code], [problem.message]
        for name, code, message in zip(fields, codes, messages, strict=True):
            if problem.http_status is not None:
                message = build_refusal_kind(problem.http_status, problem.message)
            elif not name or not problem.row.number:
                # This message may quote a cell, so its quoted texts are masked.
                message = _QUOTED_TEXT_PATTERN.sub("'…'", _LINE_PREFIX_PATTERN.sub("", problem.message))
            cause_key = str(problem.outcome), name, code, message
            if cause_key not in self._cause_by_key and len(self._cause_by_key) >= _MAX_CAUSES:
                cause_key = str(problem.outcome), "", "", "further causes"
            cause_key_names = ("outcome", "field", "code", "message")
            cause = self._cause_by_key.setdefault(
                cause_key, dict(zip(cause_key_names, cause_key, strict=True)) | {"rows": 0, "examples": []}
            )
            cause["rows"] += 1
            if len(cause["examples"]) < _MAX_EXAMPLES:
                row = problem.row
                cells = dict(zip(row.columns, row.cells, strict=True)) if row.cells else {}
                field_cells = [cells.get(column) or "" for column in self.columns_by_field.get(name, ())]
                value = " | ".join(map(mask_cell, field_cells if problem.raw_record is None else [problem.raw_record]))
                cause["examples"].append({"row": row.number, "file": row.file, "value": value})

    def count_change(self, change: ChangedRow) -> None:
        """Count a changed row for each field that differs."""
        self.changed_fields.update(name for name, _, _ in change.fields)

    @property
    def causes(self) -> list[dict[str, Any]]:
        """The causes, the most frequent first. The keys are outcome, field, code, message, rows and examples (with the
        keys row, file and value)."""
        return sorted(self._cause_by_key.values(), key=lambda cause: -cause["rows"])

    def restart(self) -> None:
        """Reset the counts, because all rows are read again."""
        self.changed_fields.clear()
        self._cause_by_key.clear()
        self.problems.forget_problems()


def mask_cell(cell: str) -> str:
    """Return a cell in which all characters of words are masked except the first.

    The cell `ann lee@x,org` gives `a•• l••@x,o••`. Combining marks belong to words, because many scripts write vowels
    as marks.
    """
    text = "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in cell[:_MAX_CELL_LENGTH]
    )
    word_mask = [character == "_" or unicodedata.category(character)[0] in "LMN" for character in text]
    follows_word_mask = [False, *word_mask]
    masked_characters = [
        "•" if is_in_word and follows_word else character
        for character, is_in_word, follows_word in zip(text, word_mask, follows_word_mask, strict=False)
    ]
    return "".join(masked_characters) + ("…" if len(cell) > _MAX_CELL_LENGTH else "")


class RowFile(CloseableResource):
    """A CSV file of rows. The file is created when its first line is written.

    If the file cannot be written, `failure` is set to a message, and the run ends at the next chunk. The message
    contains `name` (the kind of the file) and `content_description` (the rows that are lost).
    """

    def __init__(self, path: Path, header: Sequence[str], name: str, content_description: str) -> None:
        self._path, self._header, self._name, self._content_description = path, header, name, content_description
        self._file: Any = None
        self._writer: Any = None
        self.line_count = 0
        self.failure: str | None = None

    @property
    def path(self) -> str | None:
        """The file's path, or None if no line was written."""
        return str(self._path) if self.line_count else None

    def write_line(self, cells: Sequence[object]) -> None:
        """Add one line."""
        try:
            if self._writer is None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = io.TextIOWrapper(create_private_file(self._path), "utf-8", "backslashreplace", newline="")
                self._writer = csv.writer(self._file)
                self._writer.writerow(self._header)
            self._writer.writerow([escape_formula(cell) if isinstance(cell, str) else cell for cell in cells])
            self.line_count += 1
        except OSError as error:
            self._record_failure(error)

    def restart(self) -> None:
        """Delete the file, because all rows are read again."""
        if self._file is not None:
            self.close()
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                self.failure = self.failure or f"the {self._name} {self._path} cannot be replaced: {error.strerror}"
        self._file = self._writer = None
        self.line_count = 0

    def close(self) -> None:
        """Close the file."""
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self._record_failure(error)

    def _record_failure(self, error: OSError) -> None:
        self.failure = self.failure or (
            f"the {self._name} {self._path} cannot be written to its end ({error.strerror}), and lacks some "
            f"of {self._content_description}. Make room on the disk, or change the permissions, and run again"
        )


class RejectsFile(RowFile):
    """The rejects file of a run, with a line for each problem. `findings` counts the problems.

    If `workbook_path` is set, `close` writes the lines to an .xlsx workbook at this path and deletes the CSV file. The
    CSV file stays if the run is killed, or if a workbook cannot contain the lines.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        run_id: str,
        now: Callable[[], datetime],
        findings: RowFindings | None = None,
        *,
        workbook_path: Path | None = None,
    ) -> None:
        """`columns` are the columns of the source."""
        self._workbook_path = workbook_path
        self.findings = findings or RowFindings()
        self._columns, self._run_id, self._now = select_source_columns(columns), run_id, now
        header = [*self._columns, *ADDED_COLUMNS]
        super().__init__(path, header, "rejects file", "the rows that need attention")

    def write_problem(self, problem: Problem) -> None:
        """Add one row."""
        self.findings.count_problem(problem)
        row, written_at = problem.row, self._now().isoformat(timespec="seconds")
        cells = dict(zip(row.columns, row.cells, strict=True)) if row.cells else {}
        self.write_line([
            *(cells.get(name) for name in self._columns),
            *(row.number, row.file, problem.outcome, problem.field, problem.code, problem.message),
            *(problem.http_status, problem.attempt_count, self._run_id, written_at, problem.raw_record),
        ])  # fmt: skip

    def close(self) -> None:
        """Close the file. If a workbook is required, convert the file. A second call does nothing."""
        super().close()
        workbook_path, self._workbook_path = self._workbook_path, None
        if workbook_path is not None and self.line_count and self.failure is None:
            self._convert_to_workbook(workbook_path)

    def _convert_to_workbook(self, workbook_path: Path) -> None:
        try:
            with PartialFile(workbook_path) as partial_file, self._path.open(encoding="utf-8", newline="") as file:
                lines = csv.reader(file)
                sheet_file = SheetFile(partial_file.file, next(lines))
                try:
                    for line in lines:
                        sheet_file.write_row([re.sub(ESCAPED_FORMULA_PATTERN, r"\1", cell) for cell in line])
                    sheet_file.close({})
                finally:
                    sheet_file.discard()
                partial_file.publish(must_be_new=True)
            self._path.unlink()
        except (CellError, csv.Error, OSError, ConnectorError) as error:
            logger.warning(
                "the rejects file %s stays a CSV file, because no workbook was written: %s", self._path, error
            )
            return
        self._path = workbook_path

    def restart(self) -> None:
        """Delete the file and reset the findings, because all rows are read again."""
        super().restart()
        self.findings.restart()


def build_malformed_problem(row: MalformedRow, file: str) -> Problem:
    """Return the problem of a record that could not be read as a row."""
    prefix = f"line {row.line}: " if row.line is not None else ""
    return Problem(
        Row(row.number, file, (), ()), Outcome.INVALID, "", row.code, prefix + row.message, raw_record=row.raw_record
    )


def build_invalid_problems(chunk: Chunk, faults: Sequence[Fault]) -> list[Problem]:
    """Return a problem for each invalid row of a chunk, with all faults of the row."""
    faults_by_position: dict[int, list[Fault]] = defaultdict(list)
    for fault in faults:
        faults_by_position[fault.position].append(fault)
    return [
        Problem(
            extract_row(chunk, position),
            Outcome.INVALID,
            "; ".join(fault.field for fault in row_faults),
            "; ".join(fault.code for fault in row_faults),
            "; ".join(fault.message for fault in row_faults),
        )
        for position, row_faults in sorted(faults_by_position.items())
    ]


def build_problem_of_unused_row(chunk: Chunk, difference: Difference, identity_field: str) -> Problem:
    """Return the problem of a row that is not used because of another row with the same identity. The other row is
    either an invalid row that may say inactive, or the used row, which has different values."""
    fields_text = f"This row differs in {', '.join(difference.fields)}"
    code = "overruled" if difference.is_overruled_by_inactive_row else "differs"
    if not difference.fields:
        message = (
            f"another row with the same {identity_field} is invalid and does not clearly say active, so this row "
            "is not used"
        )
    elif difference.is_overruled_by_inactive_row:
        message = f"another row with the same {identity_field} says inactive, and is used instead. {fields_text}"
    else:
        message = f"another row with the same {identity_field} is used instead. {fields_text}"
    return Problem(extract_row(chunk, difference.position), Outcome.DUPLICATE, identity_field, code, message)


class LoadFiles(CloseableResource, RowRecorder):
    """The files of one load in the state folder. Each file is created when its first line is written.

    The drift file has a line for each different field, each row that could not be compared, and each zip code that was
    not sent. Changed rows that an earlier run has reported are only counted. Opt-outs are written in each run.
    """

    def __init__(
        self,
        state_dir: Path,
        columns: Sequence[str],
        run_id: str,
        now: Callable[[], datetime],
        findings: RowFindings,
        *,
        is_workbook: bool,
    ) -> None:
        """`columns` are the columns of the source. If `is_workbook`, the source is a workbook, and the rejects file is
        also a workbook."""
        self.findings = findings
        self._run_id, self._now = run_id, now
        rejects_file_path = state_dir / "rejects" / f"{run_id}.csv"
        workbook_path = rejects_file_path.with_suffix(".xlsx") if is_workbook else None
        drift_file_path = state_dir / "drift" / f"{run_id}.csv"
        self._rejects = RejectsFile(rejects_file_path, columns, run_id, now, self.findings, workbook_path=workbook_path)
        self._drift = RowFile(drift_file_path, tuple(DRIFT_COLUMNS), "drift file", "the differences from the service")
        self._known_change_count = 0  # number of changed rows that an earlier run has reported
        self._uncompared_counts = Counter[str]()  # number of rows that were not compared, by reason

    @property
    def failure(self) -> str | None:
        """The reason why a file could not be written, or None."""
        return self._rejects.failure or self._drift.failure

    @property
    def rejects_path(self) -> str | None:
        """The path of the rejects file, or None if no line was written."""
        return self._rejects.path

    @property
    def drift_path(self) -> str | None:
        """The path of the drift file, or None if no line was written."""
        return self._drift.path

    def begin_chunk(self, prepared_chunk: PreparedChunk) -> None:
        """Do nothing, because each row is written when its outcome is known."""

    def write_problem(self, problem: Problem) -> None:
        """Add a row to the rejects file."""
        self._rejects.write_problem(problem)

    def write_change(self, change: ChangedRow) -> None:
        """Add a changed row to the drift file."""
        self._known_change_count += change.is_reported_before
        self.findings.count_change(change)
        for difference in change.fields:
            if difference != OPT_OUT_DIFFERENCE:  # `write_opt_out` writes the opt-out
                self._write_drift(change.row, change.identity, difference, Outcome.CHANGED, "changed")
        if change.reason:
            self._uncompared_counts[change.reason] += 1
            self._write_drift(change.row, change.identity, ("", None, None), Outcome.CHANGED, "not_compared")

    def write_omitted_zip_code(self, omitted_zip: OmittedZip) -> None:
        """Add an omitted zip code to the drift file."""
        difference = ("address_zip", None, omitted_zip.zip_code)
        self._write_drift(omitted_zip.row, omitted_zip.identity, difference, Outcome.CREATED, "zip_omitted")

    def write_opt_out(self, opt_out: OptOut) -> None:
        """Add an opt-out to the drift file."""
        self.findings.problems.add_opt_out(opt_out)
        difference = ("is_active", None, False) if opt_out.reason else OPT_OUT_DIFFERENCE
        self._write_drift(opt_out.row, opt_out.identity, difference, opt_out.outcome, "opted_out")

    def _write_drift(
        self, row: Row | None, identity: str, difference: tuple[str, object, object], outcome: Outcome | None, code: str
    ) -> None:
        field_name, service_value, source_value = difference
        written_at = self._now().isoformat(timespec="seconds")
        cells = [identity, field_name, format_cell(service_value), format_cell(source_value)]
        row_number, file = ("", "") if row is None else (row.number, row.file)
        self._drift.write_line([*cells, row_number, file, outcome or "", code, self._run_id, written_at])

    def list_messages(self) -> Iterator[str]:
        """Yield messages about changed rows."""
        if self._known_change_count:
            verb = choose_form(self._known_change_count, "is", "are")
            rows_text = count(self._known_change_count, "changed row")
            yield (
                f"{rows_text} {verb} in the drift file of an earlier run, and {verb} compared again 7 days after the "
                "earlier run, or with --full"
            )
        for reason, row_count in sorted(self._uncompared_counts.items()):
            rows_text = count(row_count, "changed row")
            yield (
                f"{rows_text} could not be compared with the service: {reason}. The drift file has "
                f"{choose_form(row_count, 'this row', 'these rows')} with an empty `field`"
            )

    def restart(self) -> None:
        """Delete both files, because all rows are read again."""
        self._rejects.restart()
        self._drift.restart()
        self._known_change_count = 0
        self._uncompared_counts.clear()

    def close(self) -> None:
        """Close both files."""
        self._rejects.close()
        self._drift.close()
