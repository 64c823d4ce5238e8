"""The files of a load, and the findings in its rows, for a report that may be passed on.

The rejects file has the rows to look at, with the source's own columns as they came. The drift file has the values
that the source has and the service does not have (architecture 8).
"""

import csv
import io
import logging
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from connector.atomic_file import PartialFile, create_private
from connector.errors import ConnectorError
from connector.formulas import GUARDED, guard_formula
from connector.load.candidates import take_row
from connector.load.session import Change, OptOut, Problem, Tally
from connector.outcomes import Fault, Outcome
from connector.plurals import agree, count
from connector.rows import Chunk, Closing, MalformedRow, Omission, Row, Source, write_cell
from connector.service.answers import refusal_kind
from connector.sheet_file import CellError, SheetFile
from connector.subscribers.preparation import PreparedChunk

ADDED_COLUMNS = (
    "_row", "_file", "_outcome", "_field", "_code", "_message", "_http_status", "_attempts", "_run_id", "_at", "_raw",
)  # fmt: skip

COLUMNS = {
    "identity": "Email or client_user_id, as the source has it; of a row that the run has not read, as the service has "
    "it.",
    "field": "The field that differs; empty where the row could not be compared.",
    "service": "What the service has, where the row was compared.",
    "source": "What the source says now, as it would be sent.",
    "_row": "The row's number in the source, from 1; empty for an opt-out whose row the run has not read.",
    "_file": "The source.",
    "_outcome": "What became of the row.",
    "_code": "changed; not_compared: its values could not be compared with the service, as a message of the report "
    "says; opted_out: the row says inactive, and the service shows the subscriber as active; or zip_omitted: created "
    "without its zip, which is no number.",
    "_run_id": "The run.",
    "_at": "When the line was written.",
}


OPTED_OUT = ("is_active", True, False)
"""The field of a changed row that is an opt-out: its name, the service's value and the source's."""

logger = logging.getLogger(__name__)

_WORKBOOK_SUFFIXES = (".xlsx", ".xlsm", ".xls")

_EXAMPLES = 3  # of each cause
_MOST_CAUSES = 30  # a service that words each refusal differently would have one for each row
_LONGEST = 60  # characters of a cell
_LINE = re.compile(r"^line \d+: ")
_QUOTED = re.compile(r"([\"']).*\1")


@dataclass(slots=True)
class RowFindings:
    """Causes of rows that a person must see, with masked examples, and the number of changed rows by field.

    `columns` are a field's columns in the source.
    """

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    changed_fields: Counter[str] = field(default_factory=Counter)
    _causes: dict[tuple[str, str, str, str], dict[str, Any]] = field(default_factory=dict)

    def note_problem(self, problem: Problem) -> None:
        """Count a row by each of its causes."""
        fields, codes, messages = (text.split("; ") for text in (problem.field, problem.code, problem.message))
        if not len(fields) == len(codes) == len(messages):
            fields, codes, messages = [problem.field], [problem.code], [problem.message]
        for name, code, message in zip(fields, codes, messages, strict=True):
            if not name and problem.http_status is not None:
                message = refusal_kind(problem.http_status, problem.message)
            elif not name:
                message = _QUOTED.sub("'…'", _LINE.sub("", problem.message))
            key = str(problem.outcome), name, code, message
            if key not in self._causes and len(self._causes) >= _MOST_CAUSES:
                key = str(problem.outcome), "", "", "other causes, each of few rows"
            names = ("outcome", "field", "code", "message")
            cause = self._causes.setdefault(key, dict(zip(names, key, strict=True)) | {"rows": 0, "examples": []})
            cause["rows"] += 1
            if len(cause["examples"]) < _EXAMPLES:
                row = problem.row
                cells = dict(zip(row.columns, row.cells, strict=True)) if row.cells else {}
                shown = [cells.get(column) or "" for column in self.columns.get(name, ())]
                value = " | ".join(map(mask_cell, shown if problem.raw is None else [problem.raw]))
                cause["examples"].append({"row": row.number, "file": row.file, "value": value})

    def note_change(self, change: Change) -> None:
        """Count a changed row by the fields that differ."""
        self.changed_fields.update(name for name, _, _ in change.fields)

    @property
    def causes(self) -> list[dict[str, Any]]:
        """The causes, the most frequent first: `outcome field code message rows examples {row file value}`."""
        return sorted(self._causes.values(), key=lambda cause: -cause["rows"])

    def restart(self) -> None:
        """Forget the rows, which are read again."""
        self.changed_fields.clear()
        self._causes.clear()


def mask_cell(cell: str) -> str:
    """Return a cell that shows the first character of each word, and each sign that is not of a word.

    `ann lee@x,org` becomes `a•• l••@x,o••`. Marks are of words, because many scripts write vowels as marks.
    """
    shown = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in cell[:_LONGEST])
    is_of_word = [sign == "_" or unicodedata.category(sign)[0] in "LMN" for sign in shown]
    follows_word = [False, *is_of_word]
    masked = [
        "•" if is_of and is_after else sign
        for sign, is_of, is_after in zip(shown, is_of_word, follows_word, strict=False)
    ]
    return "".join(masked) + ("…" if len(cell) > _LONGEST else "")


class RowFile(Closing):
    """A CSV file of rows, created with its first line.

    If the file cannot be written, `failure` says so and ends the run at the next chunk. The message calls the file
    `name`, and the rows that are lost `content`.
    """

    def __init__(self, path: Path, header: Sequence[str], name: str, content: str) -> None:
        self._path, self._header, self._name, self._content = path, header, name, content
        self._file: Any = None
        self._writer: Any = None
        self.written = 0
        self.failure: str | None = None

    @property
    def path(self) -> str | None:
        """The file's path, or None if no line was written."""
        return str(self._path) if self.written else None

    def write_line(self, cells: Sequence[object]) -> None:
        """Add one line."""
        try:
            if self._writer is None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = io.TextIOWrapper(create_private(self._path), "utf-8", "backslashreplace", newline="")
                self._writer = csv.writer(self._file)
                self._writer.writerow(self._header)
            self._writer.writerow([guard_formula(cell) if isinstance(cell, str) else cell for cell in cells])
            self.written += 1
        except OSError as error:
            self._fail(error)

    def restart(self) -> None:
        """Remove the file: all rows are read again."""
        if self._file is not None:
            self.close()
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                self.failure = self.failure or f"the {self._name} {self._path} cannot be replaced: {error.strerror}"
        self._file = self._writer = None
        self.written = 0

    def close(self) -> None:
        """Close the file, whose lines are all written."""
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.failure = self.failure or (
            f"the {self._name} {self._path} cannot be written to its end ({error.strerror}), so not all "
            f"of {self._content} could be kept: make room or access, and run again"
        )


def is_workbook_name(name: str) -> bool:
    """Return whether a file or a source with this name is a workbook."""
    return name.lower().endswith(_WORKBOOK_SUFFIXES)


class RejectsFile(RowFile):
    """The rejects file of a run: a line for each problem, which `findings` records, too.

    With `workbook`, the lines become an .xlsx workbook at that path when the file is closed, and the CSV is removed.
    The CSV stays if the run is killed, or if a workbook cannot hold the lines.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        run_id: str,
        now: Callable[[], datetime],
        findings: RowFindings | None = None,
        *,
        workbook: Path | None = None,
    ) -> None:
        """`columns` are the source's."""
        self._workbook = workbook
        self.findings = findings or RowFindings()
        self._columns, self._run_id, self._now = own_columns(columns), run_id, now
        header = [*self._columns, *ADDED_COLUMNS]
        super().__init__(path, header, "rejects file", "rows that a person should see")

    def write(self, problem: Problem) -> None:
        """Add one row."""
        self.findings.note_problem(problem)
        row, at = problem.row, self._now().isoformat(timespec="seconds")
        cells = dict(zip(row.columns, row.cells, strict=True)) if row.cells else {}
        self.write_line([
            *(cells.get(name) for name in self._columns),
            *(row.number, row.file, problem.outcome, problem.field, problem.code, problem.message),
            *(problem.http_status, problem.attempts, self._run_id, at, problem.raw),
        ])  # fmt: skip

    def close(self) -> None:
        """Close the file, whose lines are all written; may be called more than once."""
        super().close()
        workbook, self._workbook = self._workbook, None
        if workbook is not None and self.written and self.failure is None:
            self._convert(workbook)

    def _convert(self, workbook: Path) -> None:
        """Replace the CSV by a workbook with the same lines."""
        try:
            with PartialFile(workbook) as partial, self._path.open(encoding="utf-8", newline="") as file:
                lines = csv.reader(file)
                sheet = SheetFile(partial.file, next(lines))
                try:
                    for line in lines:
                        sheet.write_row([re.sub(GUARDED, r"\1", cell) for cell in line])
                    sheet.close({})
                finally:
                    sheet.discard()
                partial.put_in_free_place()
            self._path.unlink()
        except (CellError, csv.Error, OSError, ConnectorError) as error:
            logger.warning("the rejects file stays a CSV: %s: %s", self._path, error)
            return
        self._path = workbook

    def restart(self) -> None:
        """Remove the file, and forget the findings: all rows are read again."""
        super().restart()
        self.findings.restart()


class CorrectedRejects(Closing):
    """A rejects file as a source: the cells of a CSV unguarded, and a record that is still not a row as malformed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._is_guarded = not is_workbook_name(source.name)
        self.name, self.columns = source.name, source.columns

    def chunks(self, used: Collection[str] | None = None) -> Iterator[Chunk]:
        """See `Source`."""
        for chunk in self._source.chunks(used):
            frame = chunk.frame.replace(GUARDED, r"\1", regex=True) if self._is_guarded else chunk.frame
            own = list(own_columns([str(name) for name in frame.columns]))
            is_uncorrected = ((frame[own] == "").all(axis=1) & (frame["_raw"] != "")).to_numpy()
            uncorrected = frame[is_uncorrected]
            message = "is not corrected yet: write the cells of {!r} into their columns"
            malformed = [
                MalformedRow(int(number), None, raw, code or "ragged", message.format(raw))
                for number, raw, code in zip(
                    chunk.numbers[is_uncorrected], uncorrected["_raw"], uncorrected["_code"], strict=True
                )
            ]
            yield replace(
                chunk,
                frame=frame[~is_uncorrected].reset_index(drop=True),
                numbers=chunk.numbers[~is_uncorrected],
                malformed=tuple(sorted([*chunk.malformed, *malformed], key=lambda row: row.number)),
            )

    def close(self) -> None:
        """Release the file; may be called more than once."""
        self._source.close()


def read_corrections(source: Source) -> Source:
    """Return the source itself, or its corrections if it is a rejects file."""
    return CorrectedRejects(source) if is_rejects(source.columns) else source


def is_rejects(columns: Sequence[str]) -> bool:
    """Return whether these are the columns of a rejects file."""
    return set(ADDED_COLUMNS) <= set(columns)


def own_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the source's own columns: of a rejects file those of the source that it came from."""
    if not is_rejects(columns):
        return tuple(columns)
    return tuple(name for name in columns if name not in ADDED_COLUMNS)


def build_malformed(row: MalformedRow, file: str) -> Problem:
    """Return a record that could not be read as a row."""
    where = f"line {row.line}: " if row.line is not None else ""
    return Problem(Row(row.number, file, (), ()), Outcome.INVALID, "", row.code, where + row.message, raw=row.raw)


def build_invalid(chunk: Chunk, faults: Sequence[Fault]) -> list[Problem]:
    """Return the invalid rows of a chunk, each with all that is wrong with it in one line."""
    by_position: dict[int, list[Fault]] = defaultdict(list)
    for fault in faults:
        by_position[fault.position].append(fault)
    return [
        Problem(
            take_row(chunk, position),
            Outcome.INVALID,
            "; ".join(fault.field for fault in of_row),
            "; ".join(fault.code for fault in of_row),
            "; ".join(fault.message for fault in of_row),
        )
        for position, of_row in sorted(by_position.items())
    ]


class LoadFiles(Closing):
    """The files of one load in the state folder, each there once it has a line.

    The drift file has a line for each field that differs, for each row that could not be compared, and for each zip
    that was left out of a create. Rows that an earlier run has reported in its own file are counted, and not written.
    Each run writes all opt-outs.
    """

    lines: list[dict[str, object]] | None = None

    def __init__(
        self,
        state_dir: Path,
        columns: Sequence[str],
        run_id: str,
        now: Callable[[], datetime],
        findings: RowFindings | None = None,
        *,
        is_workbook: bool = False,
    ) -> None:
        """`columns` are the source's. If the source `is_workbook`, the rejects file becomes one."""
        self.findings = findings or RowFindings()
        self._run_id, self._now = run_id, now
        rejects = state_dir / "rejects" / f"{run_id}.csv"
        workbook = rejects.with_suffix(".xlsx") if is_workbook else None
        drift = state_dir / "drift" / f"{run_id}.csv"
        self._rejects = RejectsFile(rejects, columns, run_id, now, self.findings, workbook=workbook)
        self._drift = RowFile(drift, tuple(COLUMNS), "drift file", "what the service does not have")
        self._known = 0  # changed rows that an earlier run has reported
        self._not_compared = Counter[str]()  # rows, by the reason

    @property
    def failure(self) -> str | None:
        """Why one of them could not be written."""
        return self._rejects.failure or self._drift.failure

    @property
    def rejects_path(self) -> str | None:
        """The rejects file, or None if no row was written."""
        return self._rejects.path

    @property
    def drift_path(self) -> str | None:
        """The drift file, or None if no line was written."""
        return self._drift.path

    def build_tally(self) -> Tally:
        """Return the sums of the run; rows that need a person, and changed ones, are written as they come."""
        return Tally(self.write, self.write_change, self._write_omission, self._write_opt_out)

    def begin_chunk(self, prepared: PreparedChunk) -> None:
        """Nothing: rows are written as they come."""

    def write(self, problem: Problem) -> None:
        """Add a row to the rejects file."""
        self._rejects.write(problem)

    def write_change(self, change: Change) -> None:
        """Add a row that has changed to the drift file."""
        self._known += change.is_known
        self.findings.note_change(change)
        for name, was, now in change.fields:
            if (name, was, now) != OPTED_OUT:  # has a line of its own
                self._write(change.row, change.identity, name, was, now, Outcome.CHANGED, "changed")
        if change.reason:
            self._not_compared[change.reason] += 1
            self._write(change.row, change.identity, "", None, None, Outcome.CHANGED, "not_compared")

    def _write_omission(self, omission: Omission) -> None:
        self._write(omission.row, omission.identity, "address_zip", None, omission.zip, Outcome.CREATED, "zip_omitted")

    def _write_opt_out(self, opt_out: OptOut) -> None:
        service = None if opt_out.reason else True
        self._write(opt_out.row, opt_out.identity, "is_active", service, False, opt_out.outcome, "opted_out")

    def _write(
        self,
        row: Row | None,
        identity: str,
        name: str,
        service: object,
        source: object,
        outcome: Outcome | None,
        code: str,
    ) -> None:
        at = self._now().isoformat(timespec="seconds")
        cells = [identity, name, write_cell(service), write_cell(source)]
        place = ("", "") if row is None else (row.number, row.file)
        self._drift.write_line([*cells, *place, outcome or "", code, self._run_id, at])

    def remark(self) -> Iterator[str]:
        """Yield messages on rows that have changed."""
        if self._known:
            says, are = agree(self._known, "says", "say"), agree(self._known, "it is", "they are")
            yield (
                f"{count(self._known, 'changed row')} {says} what an earlier run reported in its drift file; {are} "
                "compared again 7 days after that, or with --full"
            )
        for reason, number in sorted(self._not_compared.items()):
            rows = f"{count(number, 'changed row')} {agree(number, 'is', 'are')}"
            yield f"{rows} in the drift file without a field, since not compared: {reason}"

    def restart(self) -> None:
        """Throw both files away."""
        self._rejects.restart()
        self._drift.restart()
        self._known = 0
        self._not_compared.clear()

    def close(self) -> None:
        """Close both files: all lines are written."""
        self._rejects.close()
        self._drift.close()
