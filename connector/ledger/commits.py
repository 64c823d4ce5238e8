"""Runs the ledger's transactions for coroutines. The transactions run one after another, in the order of the calls.

A thread runs the slow part of a transaction, so that the event loop does not wait. For a ledger in SQLite, the slow
part is only the commit: one call that releases the interpreter's lock. The statements before the commit are many short
calls. In a thread, these calls would compete for this lock (35 µs for each create, measured). For a ledger in
PostgreSQL, the slow part is the whole transaction.

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
from typing import Any, TypeVar, assert_never

from connector.ledger.entries import Entry, Intent, Ledger, Transition
from connector.ledger.receipts import PendingReceipt, ReceiptKind, record_pending_receipts
from connector.ledger.records import record_base_id, record_wrong_answer
from connector.ledger.store import Base
from connector.states import CreateEvent, Event, State

logger = logging.getLogger(__name__)

T = TypeVar("T")

LedgerFunction = Callable[[Ledger], T]
"""A function that reads or changes the ledger inside one transaction."""

CommitCallback = Callable[[T], object]
"""A function that runs on the thread of the event loop, after the transaction is durable and before the next
transaction begins."""


@dataclass(frozen=True, slots=True)
class _QueuedCall:
    """A queued function on the ledger, its callback after the commit, and the future on which the caller awaits the
    result."""

    function: LedgerFunction[Any]
    commit_callback: CommitCallback[Any]
    result_future: "asyncio.Future[Any]"


class LedgerQueue:
    """A queue of functions that use the ledger, each in its own transaction. `executor` is an executor of one thread.

    No other code may use the ledger while a function of the queue runs.
    """

    def __init__(self, ledger: Ledger, executor: Executor) -> None:
        self._ledger = ledger
        self._executor = executor
        self._queue: deque[_QueuedCall] = deque()
        # The call that the thread works on. The future gets the result when the transaction is durable.
        self._running: tuple[_QueuedCall, Future[Any]] | None = None

    @property
    def send_deadline(self) -> float:
        """The time (monotonic) until which requests may leave: the end of the lease, or infinity without a lease."""
        lease = self._ledger.store.lease
        return inf if lease is None else lease.valid_until

    async def execute(self, function: LedgerFunction[T], commit_callback: CommitCallback[T] = lambda _: None) -> T:
        """Run the function inside one transaction, and return its result when the transaction is durable.

        A cancellation of the caller takes effect only after the transaction has ended. Raises the errors of the
        function, and LedgerError.
        """
        queued_call = _QueuedCall(function, commit_callback, asyncio.get_running_loop().create_future())
        self._queue.append(queued_call)
        self._start_next_call()
        cancellation = await _wait_despite_cancellation(queued_call.result_future)
        result: T = queued_call.result_future.result()
        if cancellation is not None:
            raise cancellation
        return result

    def drain(self) -> None:
        """Run all functions that are still in the queue, on the thread of the caller."""
        while self._running is not None or self._queue:
            if self._running is not None:
                # Wait for the thread here, so that Ctrl-C ends `drain`. If `_set_result` waited for the thread,
                # `_set_result` would catch the KeyboardInterrupt, and report it as an error of the transaction.
                queued_call, thread_future = self._running
                thread_future.exception()
                self._running = None
                _set_result(queued_call, thread_future.result)
            else:
                queued_call = self._queue.popleft()
                _set_result(queued_call, partial(self._run_transaction, queued_call.function))

    def _run_transaction(self, function: LedgerFunction[T]) -> T:
        with self._ledger.transaction():
            result = function(self._ledger)
        logger.debug("commit: the transaction of the ledger is durable")
        return result

    def _start_next_call(self) -> None:
        while self._running is None and self._queue:
            queued_call = self._queue.popleft()
            try:
                thread_function = (
                    self._run_up_to_commit(queued_call.function)
                    if self._ledger.is_file
                    else partial(self._run_transaction, queued_call.function)
                )
            except BaseException as error:  # noqa: BLE001 - the error belongs to the caller
                queued_call.result_future.set_exception(error)
            else:
                self._submit_to_thread(queued_call, thread_function)

    def _run_up_to_commit(self, function: LedgerFunction[T]) -> Callable[[], T]:
        """Run a transaction up to its commit, and return the commit as a function."""
        with ExitStack() as stack:
            stack.enter_context(self._ledger.transaction())
            result = function(self._ledger)
            commit = stack.pop_all().close

        def commit_and_return() -> T:
            commit()
            logger.debug("commit: the transaction of the ledger is durable")
            return result

        return commit_and_return

    def _submit_to_thread(self, queued_call: _QueuedCall, function: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()

        def finish_running_call(thread_future: "Future[Any]") -> None:
            # After `drain`, `_running` is no longer this call, and the caller has the result already.
            if self._running is not None and self._running[1] is thread_future:
                self._running = None
                _set_result(queued_call, thread_future.result)
                self._start_next_call()

        # The submitted function contains the digests of a chunk of rows, so it must not refer to itself. Only the
        # garbage collector frees a circular reference. Until the garbage collector runs, 200 MB of digests pile up.
        thread_future = self._executor.submit(function)
        self._running = queued_call, thread_future
        thread_future.add_done_callback(lambda future: loop.call_soon_threadsafe(finish_running_call, future))


class LedgerWriter:
    """The writer of the entries of one base in a run. The writer keeps the recorded state transitions until the next
    commit."""

    def __init__(self, ledger_queue: LedgerQueue, base: Base, run_key: int, *, has_receipts: bool = False) -> None:
        self.base = base
        self.run_key = run_key
        self._ledger_queue = ledger_queue
        self.has_receipts = has_receipts  # whether the run writes receipts
        self.created_row_count = 0  # rows of the base whose subscribers the run has created
        self._receipts: list[PendingReceipt] = []
        self._transitions: dict[CreateEvent, list[tuple[bytes, Transition]]] = defaultdict(list)

    @property
    def send_deadline(self) -> float:
        """The time (monotonic) until which requests may leave, unless a commit renews the lease earlier."""
        return self._ledger_queue.send_deadline

    async def execute(self, function: LedgerFunction[T], commit_callback: CommitCallback[T] = lambda _: None) -> T:
        """Write the recorded state transitions and run one function, inside one transaction. Return the result of
        `LedgerQueue.execute`."""
        # Transitions and receipts of answers that come during the transaction are added to the new, empty collections.
        transitions, self._transitions = self._transitions, defaultdict(list)
        receipts, self._receipts = self._receipts, []

        def write_and_call(ledger: Ledger) -> T:
            self._write_transitions(ledger, transitions)
            record_pending_receipts(ledger, self.run_key, self.base.key, receipts)
            return function(ledger)

        return await self._ledger_queue.execute(write_and_call, commit_callback)

    async def find_entries(self, identities: Sequence[bytes]) -> dict[bytes, Entry]:
        """Write all recorded state transitions, and return the entries of these identities in the base."""
        base = self.base
        return await self.execute(lambda ledger: ledger.find_entries(base, identities))

    async def commit_intents(self, intents: Sequence[tuple[State, Intent]], identity_texts: Sequence[str] = ()) -> None:
        """Record these intents, each with the old state of its entry. Return when the intents are durable: no request
        may leave earlier. `identity_texts` are needed for receipts."""
        for (_, intent), identity_text in zip(intents, identity_texts, strict=False):
            self.record_receipt(intent.identity, identity_text, ReceiptKind.SENT)
        intents_by_state: dict[State, list[Intent]] = defaultdict(list)
        for state, intent in intents:
            intents_by_state[state].append(intent)

        def record_intents(ledger: Ledger) -> None:
            for state, intents_of_state in intents_by_state.items():
                match state:
                    case State.NONE:
                        ledger.mark_intended(self.base, self.run_key, intents_of_state)
                    case State.REJECTED | State.DROPPED:
                        ledger.mark_intended_again(self.base, self.run_key, state, intents_of_state)
                    case State.UNKNOWN:
                        ledger.mark_absent(self.base, self.run_key, intents_of_state)
                    case State.SENDING | State.HELD | State.CONFIRMED:
                        raise ValueError(f"no create may be sent for an entry that is {state.name}")
                    case _:
                        assert_never(state)

        await self.execute(record_intents)

    def record(self, identity: bytes, transition: Transition) -> None:
        """Record the state transition of an entry that is SENDING. The state transition is durable after the next
        commit. Until then, the entry stays SENDING."""
        self._transitions[transition.event].append((identity, transition))

    def count_created_row(self) -> None:
        """Count one more row of the base whose subscriber the run has created."""
        self.created_row_count += 1

    def record_receipt(
        self,
        identity: bytes,
        identity_text: str,
        kind: ReceiptKind,
        evidence: str | None = None,
        message: str | None = None,
    ) -> None:
        """If the run writes receipts, record that it must write a receipt of this subscriber. The record is durable
        after the next commit."""
        if self.has_receipts:
            self._receipts.append(PendingReceipt(identity, kind, identity_text, evidence, message))

    async def flush(self) -> None:
        """Make all recorded state transitions and receipts durable."""
        if self._transitions or self._receipts:
            await self.execute(lambda _ledger: None)

    async def record_base_id(self, base_id: int, name: str) -> None:
        """Record the id and the name of the base, because an answer of the service has shown both. The ledger may also
        have a base with this name and without an id. The entries of that base move to the base with the id."""
        base = self.base
        await self.execute(lambda ledger: record_base_id(ledger.connection, base, base_id, name), self._set_base)

    def _set_base(self, base: Base) -> None:
        self.base = base

    def _write_transitions(
        self, ledger: Ledger, transitions: dict[CreateEvent, list[tuple[bytes, Transition]]]
    ) -> None:
        for event, transitions_of_event in transitions.items():
            identities = [identity for identity, _ in transitions_of_event]
            match event:
                case Event.ANSWERED:
                    answered_entries = [
                        (identity, transition.subscriber_id or 0) for identity, transition in transitions_of_event
                    ]
                    ledger.mark_answered(self.base, answered_entries)
                    altered_fields_of_entries = [
                        (identity, transition.altered_fields)
                        for identity, transition in transitions_of_event
                        if transition.altered_fields
                    ]
                    ledger.record_altered_fields(self.base, altered_fields_of_entries)
                case Event.REFUSED:
                    refusals = [
                        (identity, transition.status or 0, transition.message)
                        for identity, transition in transitions_of_event
                    ]
                    ledger.mark_refused(self.base, State.SENDING, refusals)
                case Event.MISANSWERED:
                    wrong_answers = [
                        (identity, transition.subscriber_id or 0, transition.message)
                        for identity, transition in transitions_of_event
                    ]
                    ledger.mark_wrongly_answered(self.base, wrong_answers)
                    # Later runs send nothing to a base if a create was answered with another base (architecture 4.9).
                    for _, transition in transitions_of_event:
                        if transition.answered_base is not None:
                            record_wrong_answer(ledger.connection, self.base, *transition.answered_base)
                case Event.NOT_SENT:
                    ledger.mark_not_sent(self.base, identities)
                case Event.LOST:
                    ledger.mark_lost(self.base, identities)
                case _:
                    assert_never(event)


@contextmanager
def open_ledger_queue(ledger: Ledger) -> Iterator[LedgerQueue]:
    """Yield a queue with its own thread. At the end of the context, run the functions that are still in the queue."""
    with ThreadPoolExecutor(1, thread_name_prefix="connector commits") as executor:
        # If the thread cannot start, the error occurs here, and not in a transaction.
        executor.submit(lambda: None).result()
        ledger_queue = LedgerQueue(ledger, executor)
        try:
            yield ledger_queue
        finally:
            ledger_queue.drain()


def _set_result(queued_call: _QueuedCall, get_result: Callable[[], Any]) -> None:
    """Call `get_result`, then the call's `commit_callback`, and pass the result or the error to the caller."""
    try:
        result = get_result()
        queued_call.commit_callback(result)
    except BaseException as error:  # noqa: BLE001 - the error belongs to the caller
        queued_call.result_future.set_exception(error)
    else:
        queued_call.result_future.set_result(result)


async def _wait_despite_cancellation(result_future: "asyncio.Future[Any]") -> asyncio.CancelledError | None:
    """Wait until `result_future` is done, even if the caller is cancelled. Then return the CancelledError, or None if
    the caller was not cancelled."""
    cancellation = None
    while not result_future.done():
        try:
            await asyncio.wait((result_future,))
        except asyncio.CancelledError as error:
            cancellation = error
    return cancellation
