"""Coroutines request steps on the ledger. A step is a function that runs in one transaction. Steps run in the order of
the requests, even after a cancellation."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from connector.errors import LedgerError
from connector.ledger.commits import LedgerQueue, open_ledger_queue
from connector.ledger.entries import Ledger
from connector.ledger.store import Base, StaleTransitionError
from connector.states import State
from tests.ledger.places import ON_SQLITE
from tests.ledger.transitions import IDENTITY, INTENT, RUN_KEY, add_base, read_entry_state

TIMEOUT_S = 30.0


class BlockedExecutor(ThreadPoolExecutor):
    """An executor whose thread waits until `may_continue` is set. The wait imitates a slow disk or server."""

    def __init__(self) -> None:
        super().__init__(1)
        self.may_continue = threading.Event()
        self.submit(self.may_continue.wait, TIMEOUT_S)


@contextmanager
def open_blocked_queue(ledger: Ledger) -> Iterator[tuple[LedgerQueue, BlockedExecutor]]:
    with BlockedExecutor() as executor:
        yield LedgerQueue(ledger, executor), executor
        executor.may_continue.set()


def build_intent_step(base: Base) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.mark_intended(base, RUN_KEY, [INTENT])


def build_answer_step(base: Base) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.mark_answered(base, [(IDENTITY, 7)])


def build_drop_step(base: Base) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.mark_not_sent(base, [IDENTITY])


def make_the_commit_fail(ledger: Ledger) -> None:
    ledger.connection.execute(text("PRAGMA defer_foreign_keys = ON"))  # the error appears only at the commit
    ledger.mark_intended(Base(99, "nobody", 9, "none"), RUN_KEY, [INTENT])


def run_with_timeout(coroutine: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_S))


def test_a_step_is_not_finished_before_its_commit(ledger: Ledger) -> None:
    base = add_base(ledger)

    async def execute_steps() -> None:
        with open_blocked_queue(ledger) as (ledger_queue, executor):
            step_tasks = [
                asyncio.ensure_future(ledger_queue.execute(step(base)))
                for step in (build_intent_step, build_answer_step)
            ]
            await asyncio.sleep(0.05)
            assert not any(step_task.done() for step_task in step_tasks)
            executor.may_continue.set()
            await asyncio.gather(*step_tasks)

    run_with_timeout(execute_steps())
    assert read_entry_state(ledger, base) is State.CONFIRMED


def test_a_step_that_fails_changes_nothing_and_the_other_steps_succeed(ledger: Ledger) -> None:
    base = add_base(ledger)

    def fail_in_transaction(ledger: Ledger) -> None:
        ledger.mark_answered(base, [(IDENTITY, 7)])
        ledger.mark_answered(base, [(IDENTITY, 7)])

    async def execute_steps_together() -> list[object]:
        with open_ledger_queue(ledger) as ledger_queue:
            step_coroutines = (
                ledger_queue.execute(step)
                for step in (
                    build_intent_step(base),
                    fail_in_transaction,
                    build_drop_step(base),
                    build_intent_step(base),
                )
            )
            return list(await asyncio.gather(*step_coroutines, return_exceptions=True))

    first_result, failed_result, *other_results = asyncio.run(execute_steps_together())
    assert isinstance(failed_result, StaleTransitionError)
    assert [first_result, *other_results] == [None] * 3
    assert read_entry_state(ledger, base) is State.SENDING


@ON_SQLITE  # PostgreSQL checks foreign keys immediately
def test_the_steps_after_a_failed_commit_succeed(ledger: Ledger) -> None:
    base = add_base(ledger)

    async def execute_steps_together() -> list[object]:
        with open_ledger_queue(ledger) as ledger_queue:
            step_coroutines = (ledger_queue.execute(step) for step in (make_the_commit_fail, build_intent_step(base)))
            return list(await asyncio.gather(*step_coroutines, return_exceptions=True))

    failed_result, later_result = asyncio.run(execute_steps_together())
    assert isinstance(failed_result, LedgerError)
    assert later_result is None
    assert read_entry_state(ledger, base) is State.SENDING


@ON_SQLITE
@pytest.mark.parametrize("cancelled_index", [0, 1], ids=["begun", "waiting"])
def test_a_cancelled_task_waits_until_its_ledger_transaction_has_ended(ledger: Ledger, cancelled_index: int) -> None:
    base = add_base(ledger)
    steps = [build_intent_step(base), build_answer_step(base)]
    follow_up_calls: list[None] = []

    async def cancel_step_tasks() -> None:
        with open_blocked_queue(ledger) as (ledger_queue, executor):
            step_tasks = [asyncio.ensure_future(ledger_queue.execute(step, follow_up_calls.append)) for step in steps]
            await asyncio.sleep(0)
            for _ in range(3):
                step_tasks[cancelled_index].cancel()
                await asyncio.sleep(0.01)
            assert not step_tasks[cancelled_index].done()
            assert follow_up_calls == []
            executor.may_continue.set()
            await step_tasks[1 - cancelled_index]
            await asyncio.wait((step_tasks[cancelled_index],))
            assert step_tasks[cancelled_index].cancelled()
            assert follow_up_calls == [None, None]

    run_with_timeout(cancel_step_tasks())
    assert read_entry_state(ledger, base) is State.CONFIRMED


@ON_SQLITE
def test_a_cancelled_task_raises_the_error_of_its_commit(ledger: Ledger) -> None:
    follow_up_calls: list[None] = []

    async def cancel_step_tasks() -> None:
        with open_blocked_queue(ledger) as (ledger_queue, executor):
            step_task = asyncio.ensure_future(ledger_queue.execute(make_the_commit_fail, follow_up_calls.append))
            await asyncio.sleep(0)
            step_task.cancel()
            executor.may_continue.set()
            with pytest.raises(LedgerError):
                await step_task

    run_with_timeout(cancel_step_tasks())
    assert follow_up_calls == []


@ON_SQLITE
def test_the_follow_up_of_a_step_runs_before_the_next_step(ledger: Ledger) -> None:
    calls: list[str] = []

    async def execute_steps() -> None:
        with open_ledger_queue(ledger) as ledger_queue:
            first_result = ledger_queue.execute(
                lambda _: calls.append("first"), lambda _: calls.append("follow-up of first")
            )
            await asyncio.gather(first_result, ledger_queue.execute(lambda _: calls.append("second")))

    run_with_timeout(execute_steps())
    assert calls == ["first", "follow-up of first", "second"]


@ON_SQLITE
def test_the_queue_executes_all_its_steps_before_it_closes(ledger: Ledger) -> None:
    base = add_base(ledger)

    async def close_queue_before_the_steps_run() -> None:
        with open_ledger_queue(ledger) as ledger_queue:
            step_tasks = [
                asyncio.ensure_future(ledger_queue.execute(step(base)))
                for step in (build_intent_step, build_answer_step)
            ]
            await asyncio.sleep(0)
        assert read_entry_state(ledger, base) is State.CONFIRMED
        await asyncio.gather(*step_tasks)

    run_with_timeout(close_queue_before_the_steps_run())


class Digests(list[bytes]):
    """A list that supports weak references."""


@pytest.fixture
def stop_garbage_collector() -> Iterator[None]:
    """Switch the garbage collector off, so that objects in reference cycles are not freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@ON_SQLITE
@pytest.mark.usefixtures("stop_garbage_collector")
def test_the_queue_frees_the_memory_of_a_finished_step(ledger: Ledger) -> None:
    async def execute_steps() -> "weakref.ref[Digests]":
        digests = Digests()
        with open_ledger_queue(ledger) as ledger_queue:
            await ledger_queue.execute(lambda _ledger: digests)
        return weakref.ref(digests)

    assert asyncio.run(execute_steps())() is None
