"""The drift file: what the source says now, or said all along, and the service does not have (architecture 8)."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from connector.load import Change, Omission, Row
from connector.outcomes import Outcome
from connector.rows import write_cell
from pipelines.rows.row_file import RowFile
from pipelines.words import agree, count

COLUMNS = {
    "identity": "Email or client_user_id, as the source has it.",
    "field": "The field that differs; empty where the row could not be compared.",
    "service": "What the service has, where the row was compared.",
    "source": "What the source says now, as it would be sent.",
    "_row": "The row's number in the source, from 1.",
    "_file": "The source.",
    "_outcome": "What became of the row.",
    "_code": "changed; not_compared: its values could not be compared with the service, as a message of the report "
    "says; or zip_omitted: created without its zip, which is no number.",
    "_run_id": "The run.",
    "_at": "When the line was written.",
}


class DriftFile:
    """A line for each field that differs, for each row that could not be compared, and for each zip that was left out
    of a create. Rows that an earlier run has reported in its own file are counted, and not written."""

    def __init__(self, path: Path, run_id: str, now: Callable[[], datetime]) -> None:
        self._file = RowFile(path, tuple(COLUMNS), "drift file", "what the service does not have")
        self._run_id, self._now = run_id, now
        self.begin_anew()

    def begin_anew(self) -> None:
        """Throw away what was written: all rows are read again."""
        self._file.begin_anew()
        self._known = 0  # rows
        self._not_compared = Counter[str]()  # rows, by the reason

    @property
    def path(self) -> str | None:
        """Where it is, or None if no line was written."""
        return self._file.path

    @property
    def failure(self) -> str | None:
        """Why it could not be written, which ends the run at the next chunk."""
        return self._file.failure

    def write_change(self, change: Change) -> None:
        """A row has changed."""
        self._known += change.is_known
        for name, was, now in change.fields:
            self._write(change.row, change.identity, name, was, now, Outcome.CHANGED, "changed")
        if change.reason:
            self._not_compared[change.reason] += 1
            self._write(change.row, change.identity, "", None, None, Outcome.CHANGED, "not_compared")

    def write_omission(self, omission: Omission) -> None:
        """A subscriber was created without the zip of the row."""
        self._write(omission.row, omission.identity, "address_zip", None, omission.zip, Outcome.CREATED, "zip_omitted")

    def remark(self) -> Iterator[str]:
        """What a person should know of the rows that have changed."""
        if self._known:
            yield (
                f"{self._known} changed rows say what an earlier run reported in its drift file; they are compared "
                "again 7 days after that, or with --full"
            )
        for reason, number in sorted(self._not_compared.items()):
            rows = f"{count(number, 'changed row')} {agree(number, 'is', 'are')}"
            yield f"{rows} in the drift file without a field, since not compared: {reason}"

    def _write(
        self, row: Row, identity: str, name: str, service: object, source: object, outcome: Outcome, code: str
    ) -> None:
        at = self._now().isoformat(timespec="seconds")
        cells = [identity, name, write_cell(service), write_cell(source)]
        self._file.write([*cells, row.number, row.file, outcome, code, self._run_id, at])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
