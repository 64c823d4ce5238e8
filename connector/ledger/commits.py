"""Runs the ledger's transactions for coroutines: one after another, in the order of the calls.

A thread runs the slow part, so that the event loop does not wait. For a file the slow part is the commit alone: one
call that releases the interpreter's lock. The statements are many short calls, which would compete for that lock (35 µs
a create, measured). For a server the slow part is the whole transaction.

A caller waits until the result of the transaction is known, even if the caller is cancelled. Otherwise a failed commit
would go unnoticed, and the caller would rely on entries that the ledger does not have.
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

from connector.ledger.entries import Entry, Intent, Ledger, Move
from connector.ledger.receipts import PendingReceipt, ReceiptKind, record_pending
from connector.ledger.records import learn_base, mark_misanswered_base
from connector.ledger.store import Base
from connector.states import Event, State

logger = logging.getLogger(__name__)

T = TypeVar("T")

Step = Callable[[Ledger], T]
"""The work inside one transaction."""

Then = Callable[[T], object]
"""Runs on the thread of the event loop, once the transaction is durable and before the next one begins."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A step, the function to call after it, and the future in which the caller waits for the result."""

    step: Step[Any]
    then: Then[Any]
    answer: "asyncio.Future[Any]"


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """The step that the thread works on; `result` has the step's result once the transaction is durable."""

    request: _Request
    result: "Future[Any]"


class Commits:
    """Runs steps on the ledger; `thread` is an executor of one thread.

    No other code may use the ledger while a step is under way.
    """

    def __init__(self, ledger: Ledger, thread: Executor) -> None:
        self._ledger = ledger
        self._thread = thread
        self._queue: deque[_Request] = deque()
        self._running: _Running | None = None

    @property
    def sends_until(self) -> float:
        """The time (monotonic) until which requests may leave: the end of the lease, or infinity without a lease."""
        lease = self._ledger.store.lease
        return inf if lease is None else lease.until

    async def ask(self, step: Step[T], then: Then[T] = lambda _: None) -> T:
        """Run the step inside one transaction, and return its result once the transaction is durable.

        A cancellation of the caller takes effect only after the transaction has ended. Raises the errors of the step,
        and LedgerError.
        """
        request = _Request(step, then, asyncio.get_running_loop().create_future())
        self._queue.append(request)
        self._start_next()
        cancelled = await _wait_uncancelled(request.answer)
        answer: T = request.answer.result()
        if cancelled is not None:
            raise cancelled
        return answer

    def drain(self) -> None:
        """Run all steps that still wait, on the thread of the caller."""
        while self._running is not None or self._queue:
            if self._running is not None:
                self._running.result.exception()  # wait here, where an interruption answers no caller
                running, self._running = self._running, None
                _set_answer(running.request, running.result.result)
            else:
                request = self._queue.popleft()
                _set_answer(request, partial(self._carry_out, request.step))

    def _carry_out(self, step: Step[T]) -> T:
        with self._ledger.transaction():
            result = step(self._ledger)
        logger.debug("commit: the ledger is durable")
        return result

    def _start_next(self) -> None:
        while self._running is None and self._queue:
            request = self._queue.popleft()
            try:
                commit = self._prepare(request.step) if self._ledger.is_file else partial(self._carry_out, request.step)
            except BaseException as error:  # noqa: BLE001 - the error belongs to the caller
                request.answer.set_exception(error)
            else:
                self._submit(request, commit)

    def _prepare(self, step: Step[T]) -> Callable[[], T]:
        """Run a transaction up to its commit, and return the commit as a function."""
        with ExitStack() as stack:
            stack.enter_context(self._ledger.transaction())
            result = step(self._ledger)
            commit = stack.pop_all().close

        def make_durable() -> T:
            commit()
            logger.debug("commit: the ledger is durable")
            return result

        return make_durable

    def _submit(self, request: _Request, work: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()

        def finish_running(result: "Future[Any]") -> None:
            if self._running is not None and self._running.result is result:  # otherwise `drain` has answered it
                self._running = None
                _set_answer(request, result.result)
                self._start_next()

        # The submitted work must not refer to itself: a step holds a chunk's digests, and the garbage collector runs
        # so seldom that 200 MB of them would wait for it.
        self._running = _Running(request, self._thread.submit(work))
        self._running.result.add_done_callback(lambda result: loop.call_soon_threadsafe(finish_running, result))


class LedgerWriter:
    """Writes the entries of one base in a run. Recorded moves wait here for the commit of the next intents."""

    def __init__(self, commits: Commits, base: Base, run_key: int, *, has_receipts: bool = False) -> None:
        self.base = base
        self.run_key = run_key
        self._commits = commits
        self.has_receipts = has_receipts  # whether the run writes receipts
        self._receipts: list[PendingReceipt] = []
        self._moves: dict[Event, list[tuple[bytes, Move]]] = defaultdict(list)

    @property
    def sends_until(self) -> float:
        """The time (monotonic) until which requests may leave, unless a commit renews the lease earlier."""
        return self._commits.sends_until

    async def ask(self, step: Step[T], then: Then[T] = lambda _: None) -> T:
        """Write the recorded moves and run one step, inside one transaction, as `Commits.ask` does."""
        moves, self._moves = self._moves, defaultdict(list)  # at once, so that no move falls between two steps
        receipts, self._receipts = self._receipts, []

        def write(ledger: Ledger) -> T:
            self._write(ledger, moves)
            record_pending(ledger, self.run_key, self.base.key, receipts)
            return step(ledger)

        return await self._commits.ask(write, then)

    async def find_entries(self, identities: Sequence[bytes]) -> dict[bytes, Entry]:
        """Return the entries of these identities of the base, after all recorded moves."""
        base = self.base
        return await self.ask(lambda ledger: ledger.find_entries(base, identities))

    async def intend(self, intents: Sequence[tuple[State, Intent]], names: Sequence[str] = ()) -> None:
        """Return once these intents are durable, each with the state that its entry leaves. Only then may a request
        leave. `names` are the texts of the identities, for receipts."""
        for (_, intent), name in zip(intents, names, strict=False):
            self.record_receipt(intent.identity, name, ReceiptKind.SENT)
        by_state: dict[State, list[Intent]] = defaultdict(list)
        for state, intent in intents:
            by_state[state].append(intent)

        def write(ledger: Ledger) -> None:
            ledger.mark_intended(self.base, self.run_key, by_state[State.NONE])
            ledger.mark_intended_again(self.base, self.run_key, by_state[State.REJECTED])
            ledger.mark_absent(self.base, self.run_key, by_state[State.UNKNOWN])

        await self.ask(write)

    def record(self, identity: bytes, move: Move) -> None:
        """Record the move of an entry that was intended. The move is durable with the next commit; until then the entry
        is SENDING."""
        self._moves[move.event].append((identity, move))

    def record_receipt(
        self,
        identity: bytes,
        name: str,
        kind: ReceiptKind,
        evidence: str | None = None,
        message: str | None = None,
    ) -> None:
        """Record that the run must write a receipt of this subscriber, if the run writes receipts. The record is
        durable with the next commit."""
        if self.has_receipts:
            self._receipts.append(PendingReceipt(identity, kind, name, evidence, message))

    async def flush(self) -> None:
        """Make all recorded moves durable."""
        if self._moves or self._receipts:
            await self.ask(lambda _ledger: None)

    async def learn_base(self, service_id: int, name: str) -> None:
        """Record the base's id and name, as the service answered them. Entries of the base that was known by its name
        alone move to this base."""
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
    """Yield commits with their own thread. At the end of the context, run the steps that still wait."""
    with ThreadPoolExecutor(1, thread_name_prefix="connector commits") as thread:
        thread.submit(lambda: None).result()  # a thread that cannot start fails here, not in a transaction
        commits = Commits(ledger, thread)
        try:
            yield commits
        finally:
            commits.drain()


def _set_answer(request: _Request, get_result: Callable[[], Any]) -> None:
    """Run `get_result`, then the function to call after the step, and pass the result or the error to the caller."""
    try:
        result = get_result()
        request.then(result)
    except BaseException as error:  # noqa: BLE001 - the error belongs to the caller
        request.answer.set_exception(error)
    else:
        request.answer.set_result(result)


async def _wait_uncancelled(answer: "asyncio.Future[Any]") -> asyncio.CancelledError | None:
    """Wait for the answer. Return the cancellation that arrived meanwhile, or None."""
    cancelled = None
    while not answer.done():
        try:
            await asyncio.wait((answer,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
