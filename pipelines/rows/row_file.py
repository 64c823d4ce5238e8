"""A CSV that a run writes line by line for a person: it comes into being with its first line, its owner's alone.

A cell that a spreadsheet would run stands behind an apostrophe.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from connector.atomic_file import create_private, guard_formula


class RowFile:
    """A file that cannot be written is a `failure`, which ends the run at the next chunk; `what` names it there, `loss`
    says what could not be kept."""

    def __init__(self, path: Path, header: Sequence[str], what: str, loss: str) -> None:
        self._path, self._header, self._what, self._loss = path, header, what, loss
        self._file: Any = None
        self._writer: Any = None
        self.written = 0
        self.failure: str | None = None

    @property
    def path(self) -> str | None:
        """Where it is, or None if no line was written."""
        return str(self._path) if self.written else None

    def write(self, cells: Sequence[object]) -> None:
        """Add one line."""
        try:
            if self._writer is None:
                self._open()
            self._writer.writerow([guard_formula(cell) if isinstance(cell, str) else cell for cell in cells])
            self.written += 1
        except OSError as error:
            self._fail(error)

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = io.TextIOWrapper(create_private(self._path), "utf-8", "backslashreplace", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow(self._header)

    def begin_anew(self) -> None:
        """Throw away what was written."""
        if self._file is not None:
            self.close()
            self._throw_away()
        self._file = self._writer = None
        self.written = 0

    def _throw_away(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            self.failure = self.failure or f"the {self._what} {self._path} cannot be written anew: {error.strerror}"

    def close(self) -> None:
        """All lines are written."""
        if self._file is None:
            return
        try:
            self._file.close()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.failure = self.failure or (
            f"the {self._what} {self._path} cannot be written to its end ({error.strerror}), so not all "
            f"of {self._loss} could be kept: make room or access, and run again"
        )
