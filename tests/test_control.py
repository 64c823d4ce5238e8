"""The stop of a run, tasks that work during a block of code, and the clock of the machine."""

import asyncio
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from connector import control
from connector.clock import system_clock
from connector.control import Stop, run_in_background
from connector.errors import LedgerError, RunAborted


async def test_work_is_cancelled_again_if_it_hides_a_cancellation() -> None:
    cancellation_count = 0

    async def do_work() -> None:
        nonlocal cancellation_count
        while True:
            with suppress(LedgerError):
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancellation_count += 1
                    if cancellation_count == 1:  # the error of a transaction hides the cancellation
                        raise LedgerError("the connection was lost") from None
                    raise

    async with asyncio.timeout(30), run_in_background(do_work()):
        await asyncio.sleep(0)
    assert cancellation_count == 2


async def test_an_error_of_background_work_is_raised_after_the_with_block() -> None:
    async def do_work() -> None:
        raise LedgerError("the connection was lost")

    has_block_ended = False

    async def run_block() -> None:
        nonlocal has_block_ended
        async with run_in_background(do_work()):
            await asyncio.sleep(0.01)
            has_block_ended = True

    with pytest.raises(LedgerError, match="was lost"):
        await run_block()
    assert has_block_ended


async def test_a_stop_cancels_the_work_and_the_error_has_the_first_of_two_reasons() -> None:
    stop = Stop()
    asyncio.get_running_loop().call_soon(stop.request_stop, "the guard tripped")
    asyncio.get_running_loop().call_soon(stop.request_stop, "the time is over")
    with pytest.raises(RunAborted, match="the guard tripped"):
        await stop.wait_until_stopped(asyncio.sleep(60))
    with pytest.raises(RunAborted, match="the guard tripped"):
        stop.raise_if_stop_requested()


async def test_the_result_of_work_that_completes_after_its_cancellation_is_returned() -> None:
    stop = Stop()
    asyncio.get_running_loop().call_soon(stop.event.set)

    async def publish() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "published"
        return "never"

    assert await stop.wait_until_stopped(publish(), cancels_only_once=True) == "published"


async def test_work_is_cancelled_again_during_its_clean_up_unless_the_caller_forbids_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "_CANCEL_INTERVAL_S", 0.05)

    async def clean_up() -> int:
        cancellation_count = 0
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancellation_count += 1
        try:
            await asyncio.sleep(0.2)  # longer than `_CANCEL_INTERVAL_S`
        except asyncio.CancelledError:
            cancellation_count += 1
        return cancellation_count

    stop = Stop()
    stop.event.set()
    assert await stop.wait_until_stopped(clean_up(), cancels_only_once=True) == 1
    assert await stop.wait_until_stopped(clean_up()) == 2


async def test_a_time_limit_ends_a_run_unless_the_run_is_ending_already() -> None:
    limited_stop, requested_stop = Stop(), Stop()
    requested_stop.event.set()
    for stop in (limited_stop, requested_stop):
        stop.stop_after(0.001)
    await asyncio.wait_for(limited_stop.event.wait(), 30)
    await asyncio.sleep(0.01)
    assert (limited_stop.reason or "").startswith("the time limit of")
    assert requested_stop.reason is None


async def test_work_is_cancelled_at_the_end_of_the_grace_period_after_a_stop() -> None:
    sleep_durations_s, has_ended = [], False

    async def end_after_stop() -> None:
        nonlocal has_ended
        await asyncio.sleep(0.01)
        has_ended = True

    async def skip_sleep(seconds: float) -> None:
        sleep_durations_s.append(seconds)

    stop_with_waits, stop_without_waits = Stop(), Stop(replace(system_clock(), sleep=skip_sleep))
    for stop in (stop_with_waits, stop_without_waits):
        stop.event.set()
    await stop_with_waits.run_with_grace(end_after_stop(), 60.0)
    await asyncio.wait_for(stop_without_waits.run_with_grace(asyncio.sleep(60), 8.0), 30)
    assert (has_ended, sleep_durations_s) == (True, [8.0])


async def test_a_second_signal_does_not_cancel_a_clean_up() -> None:
    stop = Stop()
    ignores_signal_during_clean_up = False

    async def do_work() -> None:
        nonlocal ignores_signal_during_clean_up
        try:
            await asyncio.sleep(60)
        finally:
            ignores_signal_during_clean_up = stop.ignores_second_signal

    stop.event.set()
    with pytest.raises(RunAborted):
        await stop.wait_until_stopped(do_work())
    assert (ignores_signal_during_clean_up, stop.ignores_second_signal) == (True, False)


_DAY_S = 86_400
_CLOCK_SCRIPT = (
    "import time; from connector.clock import system_clock; print(system_clock().monotonic() - time.monotonic())"
)


def test_the_clock_counts_the_time_while_the_machine_sleeps() -> None:
    sleep_command = ["unshare", "-rT", "--boottime", str(_DAY_S)]  # sets the clock as if the machine had slept a day
    if sys.platform != "linux" or subprocess.run([*sleep_command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not allow a time namespace")
    result = subprocess.run(
        [*sleep_command, sys.executable, "-c", _CLOCK_SCRIPT], check=True, capture_output=True, text=True
    )
    assert float(result.stdout) >= _DAY_S - 1
