"""The basis of the simulation: virtual time passes without waiting, and a dead process does nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from connector.ledger.entries import Ledger
from connector.ledger.records import find_or_add_base, list_bases
from tests.simulation.memory_ledger import Ledgers, Store
from tests.simulation.process import Life, Process, StuckError
from tests.simulation.timeline import Timeline

ACCOUNT = "account"
Main = Callable[[Ledger], Awaitable[None]]


def run_process(main: Main, life: Life) -> tuple[list[str | None], float]:
    """Run a process until it ends or dies. Return the names of the bases in its ledger, and the virtual seconds."""
    timeline, ledgers = Timeline(), Ledgers()
    store, began_at = ledgers.create(), timeline.now_s

    async def run(ledger: Ledger) -> None:
        await main(ledger)

    with ledgers.open(store, life) as ledger:
        Process(timeline, life).run(run(ledger))
    names = read_names(ledgers, store)
    store.close()
    return names, timeline.now_s - began_at


def read_names(ledgers: Ledgers, store: Store) -> list[str | None]:
    with ledgers.open(store, Life()) as ledger, ledger.transaction() as connection:
        return [base.name for base in list_bases(connection, ACCOUNT)]


def write_base(ledger: Ledger, name: str) -> None:
    with ledger.transaction() as connection:
        find_or_add_base(connection, ACCOUNT, None, name)


async def write_in_every_block(ledger: Ledger) -> None:
    """Make two commits, and try to write in each block that Python runs at the end of a coroutine."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(3))
            write_base(ledger, "first")
            await asyncio.sleep(1)
    except BaseException:
        write_base(ledger, "in an except block")
        raise
    finally:
        write_base(ledger, "last")
        await asyncio.sleep(1)
        write_base(ledger, "after the last")


@pytest.mark.parametrize(
    ("life", "names"),
    [
        (Life(), ["first", "last", "after the last"]),
        (Life(at_commit=1), []),
        (Life(at_commit=1, is_after=True), ["first"]),
        (Life(at_commit=2), ["first"]),
        (Life(at_commit=2, is_after=True), ["first", "last"]),
        (Life(at_step=1), []),
        (Life(at_step=3), ["first"]),
    ],
    ids=str,
)
def test_a_dead_process_does_not_reach_the_ledger(life: Life, names: list[str]) -> None:
    assert run_process(write_in_every_block, life)[0] == names


def test_hours_of_virtual_time_pass_without_waiting() -> None:
    async def sleep(_ledger: Ledger) -> None:
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(7200))

    assert run_process(sleep, Life())[1] == 7200


def test_a_process_that_waits_for_an_event_that_never_happens_raises() -> None:
    async def wait(_ledger: Ledger) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError, match="never happen"):
        run_process(wait, Life())


def test_a_process_that_never_ends_raises() -> None:
    async def spin(_ledger: Ledger) -> None:
        for _ in count():
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="not ended"):
        run_process(spin, Life())
