"""Steps that coroutines request: one transaction for each step, in their order, also after a cancellation."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import PoolProxiedConnection, text

from connector.errors import LedgerError
from connector.ledger.commits import Commits, open_commits
from connector.ledger.entries import Ledger
from connector.ledger.store import Base, StaleMoveError
from connector.states import State
from tests.ledger.moves import IDENTITY, INTENT, RUN, add_base, read_state

PATIENCE_S = 30.0


class HeldThread(ThreadPoolExecutor):
    """A thread that does nothing until it is let go on: a disk, or a server, that takes its time."""

    def __init__(self) -> None:
        super().__init__(1)
        self.let_go_on = threading.Event()
        self.submit(self.let_go_on.wait, PATIENCE_S)


@contextmanager
def hold(ledger: Ledger) -> Iterator[tuple[Commits, HeldThread]]:
    with HeldThread() as thread:
        yield Commits(ledger, thread), thread
        thread.let_go_on.set()


def intend(base: Base) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.mark_intended(base, RUN, [INTENT])


def answer(base: Base) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.mark_answered(base, [(IDENTITY, 7)])


def drop(base: Base) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.mark_not_sent(base, [IDENTITY])


def refer_to_nothing(ledger: Ledger) -> None:
    ledger.connection.execute(text("PRAGMA defer_foreign_keys = ON"))  # seen at the commit alone
    ledger.mark_intended(Base(99, "nobody", 9, "none"), RUN, [INTENT])


def run(main: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(main, PATIENCE_S))


def test_steps_run_in_the_order_of_their_requests(ledger: Ledger) -> None:
    base = add_base(ledger)

    async def ask_together() -> None:
        with open_commits(ledger) as commits:
            await asyncio.gather(*(commits.ask(step(base)) for step in (intend, drop, intend, answer)))

    run(ask_together())
    assert read_state(ledger, base) is State.CONFIRMED


def test_a_step_is_not_done_before_its_commit(ledger: Ledger) -> None:
    base = add_base(ledger)

    async def ask() -> None:
        with hold(ledger) as (commits, thread):
            asked = [asyncio.ensure_future(commits.ask(step(base))) for step in (intend, answer)]
            await asyncio.sleep(0.05)
            assert not any(request.done() for request in asked)
            thread.let_go_on.set()
            await asyncio.gather(*asked)

    run(ask())
    assert read_state(ledger, base) is State.CONFIRMED


def test_a_step_that_fails_fails_alone_and_changes_nothing(ledger: Ledger) -> None:
    base = add_base(ledger)

    def fail_late(ledger: Ledger) -> None:
        ledger.mark_answered(base, [(IDENTITY, 7)])
        ledger.mark_answered(base, [(IDENTITY, 7)])

    async def ask_together() -> list[object]:
        with open_commits(ledger) as commits:
            asked = (commits.ask(step) for step in (intend(base), fail_late, drop(base), intend(base)))
            return list(await asyncio.gather(*asked, return_exceptions=True))

    first, failed, *others = asyncio.run(ask_together())
    assert isinstance(failed, StaleMoveError)
    assert [first, *others] == [None] * 3
    assert read_state(ledger, base) is State.SENDING


@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)  # PostgreSQL checks what refers to others at once
def test_a_commit_that_fails_fails_alone(ledger: Ledger) -> None:
    base = add_base(ledger)

    async def ask_together() -> list[object]:
        with open_commits(ledger) as commits:
            asked = (commits.ask(step) for step in (refer_to_nothing, intend(base)))
            return list(await asyncio.gather(*asked, return_exceptions=True))

    failed, made = asyncio.run(ask_together())
    assert isinstance(failed, LedgerError)
    assert made is None
    assert read_state(ledger, base) is State.SENDING


@pytest.mark.parametrize("place", [0, 1], ids=["begun", "waiting"])
def test_a_cancelled_task_waits_for_its_step(ledger: Ledger, place: int) -> None:
    base = add_base(ledger)
    steps = [intend(base), answer(base)]
    followed: list[None] = []

    async def give_up() -> None:
        with hold(ledger) as (commits, thread):
            asked = [asyncio.ensure_future(commits.ask(step, followed.append)) for step in steps]
            await asyncio.sleep(0)
            for _ in range(3):
                asked[place].cancel()
                await asyncio.sleep(0.01)
            assert not asked[place].done()
            assert followed == []
            thread.let_go_on.set()
            await asked[1 - place]
            await asyncio.wait((asked[place],))
            assert asked[place].cancelled()
            assert followed == [None, None]

    run(give_up())
    assert read_state(ledger, base) is State.CONFIRMED


@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
def test_a_cancelled_task_raises_the_error_of_its_commit(ledger: Ledger) -> None:
    followed: list[None] = []

    async def give_up() -> None:
        with hold(ledger) as (commits, thread):
            asked = asyncio.ensure_future(commits.ask(refer_to_nothing, followed.append))
            await asyncio.sleep(0)
            asked.cancel()
            thread.let_go_on.set()
            with pytest.raises(LedgerError):
                await asked

    run(give_up())
    assert followed == []


def test_the_follow_up_of_a_step_runs_before_the_next_step(ledger: Ledger) -> None:
    order: list[str] = []

    async def ask() -> None:
        with open_commits(ledger) as commits:
            first = commits.ask(lambda _: order.append("first"), lambda _: order.append("what follows"))
            await asyncio.gather(first, commits.ask(lambda _: order.append("second")))

    run(ask())
    assert order == ["first", "what follows", "second"]


def test_the_thread_of_commits_waits_for_the_disk_or_the_server(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect, committed_by, made_by = ledger.connection.engine.dialect, [], []
    commit = dialect.do_commit

    def note_and_commit(connection: PoolProxiedConnection) -> None:
        committed_by.append(threading.current_thread())
        commit(connection)

    monkeypatch.setattr(dialect, "do_commit", note_and_commit)

    async def ask() -> None:
        with open_commits(ledger) as commits:
            await commits.ask(lambda _: made_by.append(threading.current_thread()))

    run(ask())
    main = threading.main_thread()
    assert ([thread is main for thread in made_by], [thread is main for thread in committed_by]) == (
        [ledger.is_file],
        [False],
    )


def test_a_step_that_was_requested_before_the_end_runs(ledger: Ledger) -> None:
    base = add_base(ledger)

    async def leave() -> None:
        with open_commits(ledger) as commits:
            asked = [asyncio.ensure_future(commits.ask(step(base))) for step in (intend, answer)]
            await asyncio.sleep(0)
        assert read_state(ledger, base) is State.CONFIRMED
        await asyncio.gather(*asked)

    run(leave())


class Digests(list[bytes]):
    """A chunk's, which a weak reference may be made to."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is free without the garbage collector, which comes seldom, is free at once."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_finished_step_frees_its_memory(ledger: Ledger) -> None:
    async def ask() -> "weakref.ref[Digests]":
        digests = Digests()
        with open_commits(ledger) as commits:
            await commits.ask(lambda _ledger: digests)
        return weakref.ref(digests)

    assert asyncio.run(ask())() is None
