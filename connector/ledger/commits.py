"""The ledger's transactions as coroutines ask for them: one after another, in the order in which they were asked for.

A thread waits for what takes long, so that the event loop need not. Of a file that is the commit alone: it is one call
that lets go of the interpreter's lock, while statements are many short ones that would fight for it (35 µs a create,
measured). Of a server, where every statement is waited for, it is the whole transaction.

A caller waits until it is known whether the transaction was made, even when the caller is cancelled. Otherwise a commit
that failed would go unnoticed, and the caller would rely on what is not in the ledger.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, TypeVar

from connector.ledger.entries import Intent, Ledger, Move
from connector.ledger.records import learn_base, mark_misanswered_base
from connector.ledger.store import Base
from connector.states import Event, State

logger = logging.getLogger(__name__)

T = TypeVar("T")

Step = Callable[[Ledger], T]
"""What is done inside one transaction."""

Then = Callable[[T], object]
"""What follows from it, on the loop's thread, once it is durable and before the next transaction begins."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A step, what follows from it, and where its asker waits for what it gives."""

    step: Step[Any]
    then: Then[Any]
    answer: "asyncio.Future[Any]"


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """A step that the thread is at; `result` gives what the step gives once its transaction is durable."""

    asked: _Asked
    result: "Future[Any]"


class Commits:
    """Carries out steps on the ledger; `thread` is an executor of one thread.

    While it has work under way, no other code may use the ledger.
    """

    def __init__(self, ledger: Ledger, thread: Executor) -> None:
        self._ledger = ledger
        self._thread = thread
        self._waiting: deque[_Asked] = deque()
        self._begun: _Begun | None = None

    @property
    def sends_until(self) -> float:
        """The time (monotonic) until which requests may leave: the end of the lease, or infinity without a lease."""
        lease = self._ledger.store.lease
        return inf if lease is None else lease.until

    async def ask(self, step: Step[T], then: Then[T] = lambda _: None) -> T:
        """Carry the step out inside one transaction, and return when that is durable.

        Once asked for it is made, or its error is raised here: a cancellation ends the waiting only after that.
        Raises what the step raises, and LedgerError.
        """
        asked = _Asked(step, then, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        self._begin_next()
        cancelled = await _wait_in_any_case(asked.answer)
        answer: T = asked.answer.result()
        if cancelled is not None:
            raise cancelled
        return answer

    def drain(self) -> None:
        """Carry out all that was asked for, on the caller's own thread."""
        while self._begun is not None or self._waiting:
            if self._begun is not None:
                self._begun.result.exception()  # wait here, where an interruption answers no caller
                begun, self._begun = self._begun, None
                _answer(begun.asked, begun.result.result)
            else:
                asked = self._waiting.popleft()
                _answer(asked, partial(self._carry_out, asked.step))

    def _carry_out(self, step: Step[T]) -> T:
        with self._ledger.transaction():
            result = step(self._ledger)
        logger.debug("commit: the ledger is durable")
        return result

    def _begin_next(self) -> None:
        while self._begun is None and self._waiting:
            asked = self._waiting.popleft()
            try:
                commit = self._prepare(asked.step) if self._ledger.is_file else partial(self._carry_out, asked.step)
            except BaseException as error:  # noqa: BLE001 - the error belongs to the caller that asked
                asked.answer.set_exception(error)
            else:
                self._hand_over(asked, commit)

    def _prepare(self, step: Step[T]) -> Callable[[], T]:
        """All of a transaction but its commit, which is returned."""
        with ExitStack() as stack:
            stack.enter_context(self._ledger.transaction())
            result = step(self._ledger)
            commit = stack.pop_all().close

        def make_durable() -> T:
            commit()
            logger.debug("commit: the ledger is durable")
            return result

        return make_durable

    def _hand_over(self, asked: _Asked, work: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()

        def go_on(result: "Future[Any]") -> None:
            if self._begun is not None and self._begun.result is result:  # otherwise `drain` has answered it
                self._begun = None
                _answer(asked, result.result)
                self._begin_next()

        # What is handed over must not refer to itself: a step holds a chunk's digests, and the garbage collector comes
        # so seldom that 200 MB of them would wait for it.
        self._begun = _Begun(asked, self._thread.submit(work))
        self._begun.result.add_done_callback(lambda result: loop.call_soon_threadsafe(go_on, result))


class LedgerWriter:
    """The ledger as a run writes one base's entries: moves gather here, and go into the commit of the next intents."""

    def __init__(self, commits: Commits, base: Base, run_key: int) -> None:
        self.base = base
        self.run_key = run_key
        self._commits = commits
        self._moves: dict[Event, list[tuple[bytes, Move]]] = defaultdict(list)

    @property
    def sends_until(self) -> float:
        """The time (monotonic) until which requests may leave, unless a commit renews the lease earlier."""
        return self._commits.sends_until

    async def ask(self, step: Step[T], then: Then[T] = lambda _: None) -> T:
        """Run one step inside one transaction, after all that has been noted; as `Commits.ask` does it."""
        moves, self._moves = self._moves, defaultdict(list)  # at once, so that no note falls between two steps

        def write(ledger: Ledger) -> T:
            self._write(ledger, moves)
            return step(ledger)

        return await self._commits.ask(write, then)

    async def intend(self, intents: Sequence[tuple[State, Intent]]) -> None:
        """Return when these intents are durable, each with the state that its entry leaves: then they may be sent."""
        by_state: dict[State, list[Intent]] = defaultdict(list)
        for state, intent in intents:
            by_state[state].append(intent)

        def write(ledger: Ledger) -> None:
            ledger.mark_intended(self.base, self.run_key, by_state[State.NONE])
            ledger.mark_intended_again(self.base, self.run_key, by_state[State.REJECTED])
            ledger.mark_absent(self.base, self.run_key, by_state[State.UNKNOWN])

        await self.ask(write)

    def record(self, identity: bytes, move: Move) -> None:
        """Note what became of an entry that was intended; durable with the next commit. Until then it is SENDING."""
        self._moves[move.event].append((identity, move))

    async def flush(self) -> None:
        """Make all that was noted durable."""
        if self._moves:
            await self.ask(lambda _ledger: None)

    async def learn_base(self, service_id: int, name: str) -> None:
        """Record the base's id and name, as the service answered them; entries under the name alone move to it."""
        base = self.base
        await self.ask(lambda ledger: learn_base(ledger.connection, base, service_id, name), self._move)

    def _move(self, base: Base) -> None:
        self.base = base

    def _write(self, ledger: Ledger, moves: dict[Event, list[tuple[bytes, Move]]]) -> None:
        answered = [(identity, move.subscriber_id or 0) for identity, move in moves[Event.ANSWERED]]
        refused = [(identity, move.status or 0, move.message) for identity, move in moves[Event.REFUSED]]
        ledger.mark_answered(self.base, answered)
        altered = [(identity, move.altered) for identity, move in moves[Event.ANSWERED] if move.altered]
        ledger.record_altered(self.base, altered)
        ledger.mark_refused(self.base, State.SENDING, refused)
        held = [(identity, move.subscriber_id or 0, move.message) for identity, move in moves[Event.MISANSWERED]]
        ledger.mark_misanswered(self.base, held)
        for _, move in moves[Event.MISANSWERED]:  # architecture 4.9
            if move.answered_base is not None:
                mark_misanswered_base(ledger.connection, self.base, *move.answered_base)
        ledger.mark_not_sent(self.base, [identity for identity, _ in moves[Event.NOT_SENT]])
        ledger.mark_lost(self.base, [identity for identity, _ in moves[Event.LOST]])


@contextmanager
def open_commits(ledger: Ledger) -> Iterator[Commits]:
    """Yield commits with a thread of their own, until the context ends; what was asked for by then is made."""
    with ThreadPoolExecutor(1, thread_name_prefix="connector commits") as thread:
        thread.submit(lambda: None).result()  # a thread that cannot start fails here, not in a transaction
        commits = Commits(ledger, thread)
        try:
            yield commits
        finally:
            commits.drain()


def _answer(asked: _Asked, give: Callable[[], Any]) -> None:
    """Let the asker have what this gives or raises, after what follows from it."""
    try:
        result = give()
        asked.then(result)
    except BaseException as error:  # noqa: BLE001 - it is the asker's
        asked.answer.set_exception(error)
    else:
        asked.answer.set_result(result)


async def _wait_in_any_case(answer: "asyncio.Future[Any]") -> asyncio.CancelledError | None:
    """Wait for it; the cancellation that came meanwhile, if any did."""
    cancelled = None
    while not answer.done():
        try:
            await asyncio.wait((answer,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
