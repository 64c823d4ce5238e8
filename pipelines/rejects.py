"""The rejects file: rows that a person must look at, with the source's own columns as they came."""

import csv
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from connector.extract import Chunk, MalformedRow
from connector.load import Problem, Row
from connector.load.candidates import take_row
from connector.outcomes import Fault, Outcome

ADDED_COLUMNS = (
    "_row", "_file", "_outcome", "_field", "_code", "_message", "_http_status", "_attempts", "_run_id", "_at", "_raw",
)  # fmt: skip


class RejectsFile:
    """Written as the run goes; it comes into being with its first row, readable by its owner alone."""

    def __init__(self, path: Path, columns: Sequence[str], run_id: str, now: Callable[[], datetime]) -> None:
        self._path = path
        self._columns = own_columns(columns)
        self._run_id = run_id
        self._now = now
        self._file: Any = None
        self._writer: Any = None
        self.written = 0
        self.failure: str | None = None

    @property
    def path(self) -> str | None:
        """Where it is, or None if no row was written."""
        return str(self._path) if self.written else None

    def write(self, problem: Problem, raw: str | None = None) -> None:
        """Add one row. A file that cannot be written is a `failure`, which ends the run at the next chunk."""
        try:
            self._write(problem, raw)
        except OSError as error:
            self.failure = self.failure or (
                f"the rejects file {self._path} cannot be written ({error.strerror}), so rows that a person should see "
                "could not be kept: make room or access, and run again"
            )

    def _write(self, problem: Problem, raw: str | None) -> None:
        if self._writer is None:
            self._open()
        row, at = problem.row, self._now().isoformat(timespec="seconds")
        cells = dict(zip(row.columns, row.cells, strict=True)) if row.cells else {}
        self._writer.writerow(
            [cells.get(name) for name in self._columns]
            + [row.number, row.file, problem.outcome, problem.field, problem.code, problem.message]
            + [problem.http_status, problem.attempts, self._run_id, at, raw]
        )
        self.written += 1

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow([*self._columns, *ADDED_COLUMNS])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._close()

    def _close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            self.failure = self.failure or f"the rejects file {self._path} cannot be written: {error.strerror}"


def is_rejects(columns: Sequence[str]) -> bool:
    """Whether these are the columns of a rejects file."""
    return set(ADDED_COLUMNS) <= set(columns)


def own_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The source's own columns: of a rejects file those of the source that it came from."""
    return tuple(name for name in columns if not (is_rejects(columns) and name in ADDED_COLUMNS))


def build_malformed(row: MalformedRow, file: str) -> Problem:
    """A record that could not be read as a row."""
    where = f"line {row.line}: " if row.line is not None else ""
    return Problem(Row(row.number, file, (), ()), Outcome.INVALID, "", row.code, where + row.message)


def build_invalid(chunk: Chunk, faults: Sequence[Fault]) -> list[Problem]:
    """The invalid rows of a chunk, each with all that is wrong with it in one line."""
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


def build_different(chunk: Chunk, position: int, identity: str) -> Problem:
    """A repeated row that says something else than the first one of its identity."""
    message = f"an earlier row has the same {identity} and other values; that one was used"
    return Problem(take_row(chunk, position), Outcome.DUPLICATE, identity, "differs", message)
