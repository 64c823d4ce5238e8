"""Between the loader's coroutines and the ledger: outcomes gather here, and go into the commit of the next intents.

No request is sent before its intent's commit is done.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from connector.ledger import Base, Intent, Ledger, learn_base, mark_misanswered_base
from connector.ledger.commits import Commits, Step, Then
from connector.load.candidates import Candidate
from connector.load.judging import Verdict
from connector.states import Event, State

T = TypeVar("T")


class Journal:
    """The ledger as a run writes one base's entries."""

    def __init__(self, commits: Commits, base: Base, run_key: int) -> None:
        self.base = base
        self.run_key = run_key
        self._commits = commits
        self._verdicts: dict[Event, list[tuple[bytes, Verdict]]] = defaultdict(list)

    async def ask(self, step: Step[T], then: Then[T] = lambda _: None) -> T:
        """Run one step inside one transaction, after all that has been noted; as `Commits.ask` does it."""
        return await self._commits.ask(self._after_verdicts(step), then)

    def do(self, step: Step[T]) -> T:
        """The same, as `Commits.do` does it."""
        return self._commits.do(self._after_verdicts(step))

    async def intend(self, candidates: Sequence[Candidate]) -> None:
        """Return when the intents of these candidates are durable: from then on they may be sent."""
        by_state: dict[State, list[Intent]] = defaultdict(list)
        for candidate in candidates:
            by_state[candidate.left].append(candidate.intent)

        def write(ledger: Ledger) -> None:
            ledger.mark_intended(self.base, self.run_key, by_state[State.NONE])
            ledger.mark_intended_again(self.base, self.run_key, by_state[State.REJECTED])
            ledger.mark_absent(self.base, self.run_key, by_state[State.UNKNOWN])

        await self.ask(write)

    def note(self, candidate: Candidate, verdict: Verdict) -> None:
        """What became of a candidate that was intended; durable with the next commit. Until then it is SENDING."""
        self._verdicts[verdict.event].append((candidate.intent.identity, verdict))

    async def flush(self) -> None:
        """Make all that was noted durable."""
        if self._verdicts:
            await self.ask(lambda _ledger: None)

    async def learn_base(self, service_id: int, name: str) -> None:
        """The service has told Id and name of the base: entries under the name alone move to it."""
        base = self.base
        await self.ask(lambda ledger: learn_base(ledger.connection, base, service_id, name), self._move)

    def learn_base_now(self, service_id: int, name: str) -> None:
        """The same, as `do` does it."""
        base = self.base
        self._move(self.do(lambda ledger: learn_base(ledger.connection, base, service_id, name)))

    def _move(self, base: Base) -> None:
        self.base = base

    def _after_verdicts(self, step: Step[T]) -> Step[T]:
        """The step, after all that was noted by now is written: taken at once, so that no note falls between two."""
        verdicts, self._verdicts = self._verdicts, defaultdict(list)

        def write(ledger: Ledger) -> T:
            self._write(ledger, verdicts)
            return step(ledger)

        return write

    def _write(self, ledger: Ledger, verdicts: dict[Event, list[tuple[bytes, Verdict]]]) -> None:
        answered = [(identity, verdict.subscriber_id or 0) for identity, verdict in verdicts[Event.ANSWERED]]
        refused = [(identity, verdict.status or 0, verdict.message) for identity, verdict in verdicts[Event.REFUSED]]
        ledger.mark_answered(self.base, answered)
        altered = [(identity, verdict.altered) for identity, verdict in verdicts[Event.ANSWERED] if verdict.altered]
        ledger.record_altered(self.base, altered)
        ledger.mark_refused(self.base, State.SENDING, refused)
        self._write_misanswered(ledger, verdicts[Event.MISANSWERED])
        ledger.mark_not_sent(self.base, [identity for identity, _ in verdicts[Event.NOT_SENT]])
        ledger.mark_lost(self.base, [identity for identity, _ in verdicts[Event.LOST]])

    def _write_misanswered(self, ledger: Ledger, noted: list[tuple[bytes, Verdict]]) -> None:
        """What was answered is kept in the commit that records the answer (architecture 4.9)."""
        rows = [(identity, verdict.subscriber_id or 0, verdict.message) for identity, verdict in noted]
        ledger.mark_misanswered(self.base, rows)
        for _, verdict in noted:
            if verdict.answered_base is not None:
                mark_misanswered_base(ledger.connection, self.base, *verdict.answered_base)
