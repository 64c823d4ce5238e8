"""Between the loader's coroutines and the store: outcomes gather here, and go into the commit of the next intents.

Commits are made one after another; no request is sent before its intent's commit is done.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from connector.ledger import Base, Intent, Ledger, learn_base
from connector.load.candidates import Candidate
from connector.load.judging import Verdict
from connector.states import Event, State

T = TypeVar("T")


class Journal:
    """The ledger as a run writes it. `executor` is the one thread that commits; None: the caller's own does."""

    def __init__(self, ledger: Ledger, base: Base, run_key: int, executor: Executor | None) -> None:
        self.base = base
        self.run_key = run_key
        self._ledger = ledger
        self._executor = executor
        self._verdicts: dict[Event, list[tuple[bytes, Verdict]]] = defaultdict(list)

    async def ask(self, step: Callable[[Ledger], T]) -> T:
        """Run one step inside one transaction, after all that has been noted."""
        verdicts = self._take_verdicts()
        if self._executor is None:
            return self._commit(verdicts, step)
        commit = asyncio.get_running_loop().run_in_executor(self._executor, self._commit, verdicts, step)
        return await asyncio.shield(commit)  # once begun it is made, whoever gives up waiting for it

    def do(self, step: Callable[[Ledger], T]) -> T:
        """The same, at once, on the caller's own thread; only while no other step is under way."""
        return self._commit(self._take_verdicts(), step)

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
        self.base = await self.ask(lambda ledger: learn_base(ledger.connection, base, service_id, name))

    def learn_base_now(self, service_id: int, name: str) -> None:
        """The same, as `do` does it."""
        base = self.base
        self.base = self.do(lambda ledger: learn_base(ledger.connection, base, service_id, name))

    def _take_verdicts(self) -> dict[Event, list[tuple[bytes, Verdict]]]:
        """All that was noted. On the event loop's thread, so that no note falls between two commits."""
        verdicts, self._verdicts = self._verdicts, defaultdict(list)
        return verdicts

    def _commit(self, verdicts: dict[Event, list[tuple[bytes, Verdict]]], step: Callable[[Ledger], T]) -> T:
        with self._ledger.transaction():
            self._write(verdicts)
            return step(self._ledger)

    def _write(self, verdicts: dict[Event, list[tuple[bytes, Verdict]]]) -> None:
        answered = [(identity, verdict.subscriber_id or 0) for identity, verdict in verdicts[Event.ANSWERED]]
        refused = [(identity, verdict.status or 0, verdict.message) for identity, verdict in verdicts[Event.REFUSED]]
        self._ledger.mark_answered(self.base, answered)
        self._ledger.mark_refused(self.base, State.SENDING, refused)
        self._ledger.mark_not_sent(self.base, [identity for identity, _ in verdicts[Event.NOT_SENT]])
        self._ledger.mark_lost(self.base, [identity for identity, _ in verdicts[Event.LOST]])
