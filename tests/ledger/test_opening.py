"""The opening of a ledger on SQLite and PostgreSQL. Only one run at a time can have a ledger open."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from sqlalchemy import create_engine

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.entries import Intent
from connector.ledger.opening import open_ledger, wrap_connection
from connector.ledger.records import find_or_add_base
from connector.ledger.store import StaleTransitionError
from connector.states import State
from tests.ledger.places import check_refused
from tests.ledger.transitions import IDENTITY, INTENT, RUN_KEY, add_base, begin_run, bring_to_state, read_entry_state


def test_the_error_of_a_second_run_shows_the_process_of_the_first_run(ledger_url: str) -> None:
    error_pattern = (
        f"held by process {os.getpid()} on .*, since 20[0-9-]{{8}} [0-9:]{{8}} UTC.*: wait for that run, or use --wait"
    )
    with (
        open_ledger(ledger_url),
        pytest.raises(LockedError, match=error_pattern) as error_info,
        open_ledger(ledger_url),
    ):
        pass
    assert "connector:" not in str(error_info.value)


def test_a_ledger_that_must_exist_is_not_created(ledger_url: str) -> None:
    check_refused(open_ledger(ledger_url, may_create=False), LedgerError, r"there is no ledger at .*CONNECTOR_LEDGER")
    with open_ledger(ledger_url) as ledger:
        begin_run(ledger)
    with open_ledger(
        ledger_url, wait_s=60.0, may_create=False
    ):  # PostgreSQL notices the end of a session a moment later
        pass


def build_is_stopped(call_number: int, callback: Callable[[], object]) -> Callable[[], bool]:
    """Return an `is_stopped` that always returns False. Call number `call_number` of the function also calls
    `callback`."""
    calls: list[bool] = []

    def is_stopped() -> bool:
        calls.append(False)
        if len(calls) == call_number:
            callback()
        return False

    return is_stopped


def test_a_run_that_waits_gets_the_ledger_when_it_is_free(ledger_url: str) -> None:
    with ExitStack() as exit_stack:
        exit_stack.enter_context(open_ledger(ledger_url))
        with open_ledger(ledger_url, wait_s=60.0, is_stopped=build_is_stopped(2, exit_stack.close)) as ledger:
            begin_run(ledger)


def test_a_run_that_waits_ends_at_its_limit_or_when_it_is_stopped(ledger_url: str) -> None:
    calls: list[int] = []

    def is_stopped() -> bool:
        calls.append(1)
        return True

    with open_ledger(ledger_url):
        check_refused(open_ledger(ledger_url, wait_s=0.2), LockedError, "held by process")
        check_refused(open_ledger(ledger_url, wait_s=3600.0, is_stopped=is_stopped), LockedError, "held by process")
    assert calls == [1]


def test_the_lock_of_a_killed_process_is_free(ledger_url: str) -> None:
    script = (
        "import os, sys\nfrom connector.ledger.opening import open_ledger\n"
        "with open_ledger(sys.argv[1]):\n    os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script, ledger_url], check=False).returncode == -9
    with open_ledger(ledger_url, wait_s=60.0):  # PostgreSQL notices the end of a session a moment later
        pass


def test_an_exception_of_the_caller_is_raised_unchanged(ledger_url: str) -> None:
    with pytest.raises(FileNotFoundError), open_ledger(ledger_url):
        raise FileNotFoundError
    with open_ledger(ledger_url) as ledger, pytest.raises(FileNotFoundError), ledger.transaction():
        raise FileNotFoundError


def test_a_ledger_works_on_a_connection_of_the_caller() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        first_ledger = wrap_connection(connection, "memory")
        begin_run(first_ledger)
        base = add_base(first_ledger)
        bring_to_state(first_ledger, base, State.SENDING)
        with pytest.raises(StaleTransitionError), first_ledger.transaction():
            first_ledger.mark_intended(base, RUN_KEY, [Intent(b"j" * 16, b"f" * 8, b"{}"), INTENT])
        second_ledger = wrap_connection(connection, "memory")  # the next process does the same
        assert read_entry_state(second_ledger, base, b"j" * 16) is State.NONE
        with second_ledger.transaction():
            assert second_ledger.mark_died() == 1
        assert read_entry_state(second_ledger, base, IDENTITY) is State.UNKNOWN
    engine.dispose()


def test_a_base_id_beyond_64_bits_is_refused(ledger_url: str) -> None:
    with (
        open_ledger(ledger_url) as ledger,
        ledger.transaction() as connection,
        pytest.raises(ConfigurationError, match="beyond 64 bits"),
    ):
        find_or_add_base(connection, "account", 2**63, None)


def test_a_subscriber_id_beyond_64_bits_is_an_error_and_changes_nothing(ledger_url: str) -> None:
    with open_ledger(ledger_url) as ledger:
        begin_run(ledger)
        base = add_base(ledger)
        bring_to_state(ledger, base, State.SENDING)
        with pytest.raises(LedgerError), ledger.transaction():
            ledger.mark_answered(base, [(IDENTITY, 2**63)])
        assert read_entry_state(ledger, base) is State.SENDING
