"""The opening of a ledger on SQLite and PostgreSQL. Only one run at a time can have a ledger open."""

import os
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base
from tests.ledger.places import check_opening_fails
from tests.ledger.transitions import begin_run


def test_the_error_of_a_second_run_shows_the_process_of_the_first_run(ledger_url: str) -> None:
    error_pattern = (
        f"held by process {os.getpid()} on .*, since 20[0-9-]{{8}} [0-9:]{{8}} UTC.*: wait for that run, or use --wait"
    )
    with open_ledger(ledger_url):
        assert "connector:" not in check_opening_fails(open_ledger(ledger_url), LockedError, error_pattern)


def test_a_ledger_that_must_exist_is_not_created(ledger_url: str) -> None:
    check_opening_fails(
        open_ledger(ledger_url, may_create=False), LedgerError, r"there is no ledger at .*CONNECTOR_LEDGER"
    )
    with open_ledger(ledger_url) as ledger:
        begin_run(ledger)
    # PostgreSQL notices the end of a session a moment later.
    with open_ledger(ledger_url, wait_s=60.0, may_create=False):
        pass


def build_stop_check(call_number: int, callback: Callable[[], object]) -> Callable[[], bool]:
    """Return a function that always returns False, and that calls `callback` in its call number `call_number`."""
    call_count = 0

    def is_stopped() -> bool:
        nonlocal call_count
        call_count += 1
        if call_count == call_number:
            callback()
        return False

    return is_stopped


def test_a_waiting_run_gets_the_ledger_when_the_ledger_is_free(ledger_url: str) -> None:
    with ExitStack() as exit_stack:
        exit_stack.enter_context(open_ledger(ledger_url))
        with open_ledger(ledger_url, wait_s=60.0, is_stopped=build_stop_check(2, exit_stack.close)) as ledger:
            begin_run(ledger)


def test_a_waiting_run_ends_at_its_time_limit_or_when_it_is_stopped(ledger_url: str) -> None:
    call_count = 0

    def is_stopped() -> bool:
        nonlocal call_count
        call_count += 1
        return True

    with open_ledger(ledger_url):
        check_opening_fails(open_ledger(ledger_url, wait_s=0.2), LockedError, "held by process")
        check_opening_fails(
            open_ledger(ledger_url, wait_s=3600.0, is_stopped=is_stopped), LockedError, "held by process"
        )
    assert call_count == 1


def test_a_base_id_beyond_64_bits_is_refused(ledger_url: str) -> None:
    with (
        open_ledger(ledger_url) as ledger,
        ledger.transaction() as connection,
        pytest.raises(ConfigurationError, match="beyond 64 bits"),
    ):
        find_or_add_base(connection, "account", 2**63, None)
