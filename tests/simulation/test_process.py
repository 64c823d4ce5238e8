"""The basis of the simulation: virtual time passes without waiting, and a killed process has no further effect."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import count

import pytest

from connector.ledger.entries import Ledger
from connector.ledger.records import find_or_add_base, list_bases
from tests.simulation.memory_ledger import LedgerDatabase, Ledgers
from tests.simulation.process import Process, ProcessState, StuckError
from tests.simulation.timeline import Timeline

ACCOUNT = "account"
MainFunction = Callable[[Ledger], Awaitable[None]]


def run_process(main: MainFunction, process_state: ProcessState) -> tuple[list[str | None], float]:
    """Run a process until it ends or is killed. Return the names of the bases in its ledger, and the virtual
    seconds."""
    timeline, ledgers = Timeline(), Ledgers()
    started_at = timeline.now_s

    async def run(ledger: Ledger) -> None:
        await main(ledger)

    with closing(ledgers.create()) as ledger_database:
        with ledgers.open(ledger_database, process_state) as ledger:
            Process(timeline, process_state).run(run(ledger))
        base_names = read_base_names(ledgers, ledger_database)
    return base_names, timeline.now_s - started_at


def read_base_names(ledgers: Ledgers, ledger_database: LedgerDatabase) -> list[str | None]:
    with ledgers.open(ledger_database, ProcessState()) as ledger, ledger.transaction() as connection:
        return [base.name for base in list_bases(connection, ACCOUNT)]


def write_base(ledger: Ledger, name: str) -> None:
    with ledger.transaction() as connection:
        find_or_add_base(connection, ACCOUNT, None, name)


async def write_bases_in_each_block(ledger: Ledger) -> None:
    """Write bases in the `try` block, in the `except` block and in the `finally` block."""
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
    ("process_state", "base_names"),
    [
        (ProcessState(), ["first", "last", "after the last"]),
        (ProcessState(kill_at_commit=1), []),
        (ProcessState(kill_at_commit=1, kills_after_commit=True), ["first"]),
        (ProcessState(kill_at_commit=2), ["first"]),
        (ProcessState(kill_at_commit=2, kills_after_commit=True), ["first", "last"]),
        (ProcessState(kill_at_step=1), []),
        (ProcessState(kill_at_step=3), ["first"]),
    ],
    ids=str,
)
def test_a_killed_process_does_not_change_the_ledger(process_state: ProcessState, base_names: list[str]) -> None:
    assert run_process(write_bases_in_each_block, process_state)[0] == base_names


def test_hours_of_virtual_time_pass_without_waiting() -> None:
    async def sleep(_ledger: Ledger) -> None:
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(7200))

    assert run_process(sleep, ProcessState())[1] == 7200


def test_a_process_that_waits_forever_raises_an_error() -> None:
    async def wait(_ledger: Ledger) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError, match="never happen"):
        run_process(wait, ProcessState())


def test_a_process_with_endless_steps_raises_an_error() -> None:
    async def loop_forever(_ledger: Ledger) -> None:
        for _ in count():
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="not ended"):
        run_process(loop_forever, ProcessState())
