"""Rows of somebody whom an earlier row of the same run has left in doubt: as a base has an id and a name, one row may
give it by the one and another by the other. They end as the ledger has that person when all is done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from connector.ledger import Entry
from connector.load.candidates import Row
from connector.load.deciding import decide_found
from connector.load.drift import Told
from connector.load.tally import Problem, Tally
from connector.outcomes import Outcome
from connector.states import State


@dataclass(slots=True)
class Followers:
    """`on_found` is told a row of somebody who is there, what it says, and whether that differs from what was sent."""

    tally: Tally
    on_found: Callable[[Row, Told, bool], None]
    rows: list[tuple[Row, Told]] = field(default_factory=list)

    @property
    def identities(self) -> list[bytes]:
        """Whom the rows tell of."""
        return [told.identity for _, told in self.rows]

    def end(self, entries: Mapping[bytes, Entry]) -> None:
        """Give each its outcome, by the entries of their identities."""
        rows, self.rows = self.rows, []
        for row, told in rows:
            self._end(row, told, entries.get(told.identity))

    def end_untold(self) -> None:
        """Give each that has none yet the outcome of somebody of whom nothing can be told."""
        for row, _ in self.rows:
            self._report(row, Outcome.UNKNOWN, "unknown", "an earlier row of the same person was sent", None, 1)
        self.rows.clear()

    def _end(self, row: Row, told: Told, entry: Entry | None) -> None:
        if entry is None:
            self.tally.count_row(Outcome.SUPPRESSED, lambda: row)  # nobody else who was in doubt loses their entry
        elif entry.state is State.CONFIRMED:
            self.on_found(row, told, decide_found(entry, told.fingerprint) is Outcome.CHANGED)
        elif entry.state is State.REJECTED:
            self._report(row, Outcome.REJECTED, "rejected", entry.message or "", entry.status, entry.attempts)
        elif entry.state is State.HELD:
            words = "held after it was proved absent, as an earlier row of the same person has it"
            self._report(row, Outcome.UNKNOWN, "held", words, None, entry.attempts)
        else:
            words = "an earlier row of the same person was sent, and it could not be told whether it took effect"
            self._report(row, Outcome.UNKNOWN, "unknown", words, None, entry.attempts)

    def _report(self, row: Row, outcome: Outcome, code: str, words: str, status: int | None, attempts: int) -> None:
        self.tally.report(Problem(row, outcome, "", code, words, status, attempts))
