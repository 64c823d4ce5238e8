"""The drift file: what the source says now, or said all along, and the service does not have (design, section 8)."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from connector.fields import NAMES
from connector.load import Change, Omission, Row
from connector.load.cells import write_cell
from connector.load.looks.sent import SentOf, SentValues
from connector.outcomes import Outcome
from pipelines.rows.row_file import RowFile

COLUMNS = {
    "identity": "Email or client_user_id, as the source has it.",
    "field": "The field that differs; empty where it is not known which.",
    "sent": "What was sent, if it was looked up and the list still has it; else empty.",
    "source": "What the source says now, as it would be sent.",
    "_row": "The row's number in the source, from 1.",
    "_file": "The source.",
    "_outcome": "What became of the row.",
    "_code": "changed, or zip_omitted: created without its zip, which is no number.",
    "_run_id": "The run.",
    "_at": "When the line was written.",
}

_LOOKED_UP = 100  # who have changed, a run: a look-up for each, and a page of the list is a thousand people
_NOTHING: SentValues = {}


class DriftFile:
    """A line for each field that differs, and for each zip that was left out of a create.

    The first hundred who have changed wait in `waiting` for the run's end, when it can be looked up what was sent of
    them; whoever changed after them is written at once, without that. Rows that differ by a change of the mapping alone
    are counted, and not written.
    """

    def __init__(self, path: Path, run_id: str, now: Callable[[], datetime]) -> None:
        self._file = RowFile(path, tuple(COLUMNS), "drift file", "what the service does not have")
        self._run_id, self._now = run_id, now
        self._failure: str | None = None  # of the look-ups
        self.begin_anew()

    def begin_anew(self) -> None:
        """Throw away what was written: all rows are read again."""
        self._file.begin_anew()
        self._drifted = self._unknown = self._by_mapping = 0  # rows
        self._of_mapping = Counter[str]()
        self.waiting: list[Change] = []

    @property
    def path(self) -> str | None:
        """Where it is, or None if no line was written."""
        return self._file.path

    @property
    def failure(self) -> str | None:
        """Why it could not be written, which ends the run at the next chunk."""
        return self._file.failure

    def write_change(self, change: Change) -> None:
        """Somebody has changed."""
        if change.is_by_mapping_alone:
            self._by_mapping += 1
            self._of_mapping.update(change.by_mapping)
            return
        self._drifted += 1
        self._unknown += change.drifted is None
        if change.drifted is not None and self._drifted - self._unknown <= _LOOKED_UP:
            self.waiting.append(change)
        else:
            self._write_fields(change, _NOTHING)

    def write_omission(self, omission: Omission) -> None:
        """Somebody was created without their zip."""
        self._write(omission.row, omission.identity, "address_zip", None, omission.zip, Outcome.CREATED, "zip_omitted")

    def end(self, sent: SentOf, failure: str | None = None) -> None:
        """Write those who wait, with what was sent of them as far as it is known; `failure` says why it could not be
        looked up."""
        waiting, self.waiting = self.waiting, []
        for change in waiting:
            self._write_fields(change, sent.get((change.base_key, change.digest), _NOTHING))
        self._failure = failure

    def remark(self) -> Iterator[str]:
        """What a person should know of those who have changed."""
        if self._by_mapping:
            names = ", ".join(name for name in NAMES if name in self._of_mapping)
            yield (
                f"{self._by_mapping} rows differ from what was sent only since the mapping has changed ({names}): the "
                "service cannot update them, and the drift file leaves them out"
            )
        if self._unknown:
            yield (
                f"{self._unknown} changed rows are in the drift file without a field: the ledger does not know in "
                "which they differ from what was sent"
            )
        if self.waiting:
            yield "the drift file does not say what was sent: that is looked up when a run comes to its end"
        elif self._failure is not None:
            yield f"the drift file does not say what was sent: that could not be looked up ({self._failure})"
        elif self._drifted - self._unknown > _LOOKED_UP:
            yield (
                f"{self._drifted - self._unknown} rows have changed: the drift file says what was sent for the first "
                f"{_LOOKED_UP}, where the list still has it"
            )

    def _write_fields(self, change: Change, sent: SentValues) -> None:
        for name in change.drifted if change.drifted is not None else ("",):
            was, now = write_cell(sent.get(name)), write_cell(change.now.get(name))
            self._write(change.row, change.identity, name, was, now, Outcome.CHANGED, "changed")

    def _write(
        self, row: Row, identity: str, name: str, sent: str | None, source: str | None, outcome: Outcome, code: str
    ) -> None:
        at = self._now().isoformat(timespec="seconds")
        self._file.write([identity, name, sent, source, row.number, row.file, outcome, code, self._run_id, at])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whoever waits still is written as they are: a run that ended early looks nobody up."""
        self.end({}, self._failure)
        self._file.close()
