"""Leases of a ledger in PostgreSQL: the runs that may write a shard, and the runs that may not write any more."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger import postgres
from connector.ledger.entries import Intent, Known, Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.postgres import name_run
from connector.ledger.records import end_dead_runs, find_open_run, find_or_add_base, start_run
from connector.ledger.store import Base
from connector.shards import Shard
from connector.states import State
from tests.ledger.moves import add_base, begin_run
from tests.ledger.places import check_refused, run_sql
from tests.pipelines.conftest import wait_for

FIRST, SECOND = Shard(1, 2), Shard(2, 2)
OF_FIRST, OF_SECOND = b"\x01" * 16, b"\xf1" * 16
EXPIRE = "UPDATE lease SET expires_at = now() - interval '1 minute'"
RUN = 1


def intend(ledger: Ledger, base: Base, *identities: bytes) -> None:
    with ledger.transaction():
        ledger.mark_intended(base, RUN, [Intent(identity, b"f" * 8, b"{}") for identity in identities])


def read_state(ledger: Ledger, base: Base, identity: bytes) -> State:
    with ledger.transaction():
        entry = ledger.find_entries(base, [identity]).get(identity)
    return State.NONE if entry is None else entry.state


def test_shards_of_one_count_share_the_ledger_and_exclude_other_runs(postgres_url: str) -> None:
    with open_ledger(postgres_url, shard=FIRST), open_ledger(postgres_url, shard=SECOND):
        check_refused(open_ledger(postgres_url), LockedError, "the ledger .* is held by a run of shard 1/2")
        check_refused(
            open_ledger(postgres_url, shard=FIRST), LockedError, "shard 1/2 of the ledger .* is held by a run"
        )
        check_refused(open_ledger(postgres_url, shard=Shard(3, 3)), LockedError, "is held by a run of shard 1/2")
    with open_ledger(postgres_url):
        check_refused(open_ledger(postgres_url, shard=FIRST), LockedError, "is held by process")
    with open_ledger(postgres_url, shard=Shard(3, 3)):
        pass


def test_a_ledger_in_a_file_has_no_shards(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.db"
    check_refused(open_ledger(url, shard=FIRST), ConfigurationError, "CONNECTOR_LEDGER=postgresql://")


def test_a_run_whose_lease_was_taken_over_writes_nothing_more(postgres_url: str) -> None:
    with open_ledger(postgres_url) as late:
        begin_run(late)
        base = add_base(late)
        intend(late, base, OF_FIRST)
        run_sql(postgres_url, EXPIRE)
        with open_ledger(postgres_url) as following:
            with following.transaction():
                assert following.mark_died() == 1
            with pytest.raises(LedgerError, match="another run has taken over"), late.transaction():
                late.mark_answered(base, [(OF_FIRST, 9)])
            assert read_state(following, base, OF_FIRST) is State.UNKNOWN


def test_a_run_with_an_expired_lease_continues_if_no_other_run_has_the_lease(postgres_url: str) -> None:
    with open_ledger(postgres_url) as late:
        begin_run(late)
        base = add_base(late)
        intend(late, base, OF_FIRST)
        run_sql(postgres_url, EXPIRE)
        with late.transaction():
            late.mark_answered(base, [(OF_FIRST, 9)])
        check_refused(open_ledger(postgres_url), LockedError, "is held by process")


def test_no_lease_is_taken_over_in_the_middle_of_a_transaction(postgres_url: str) -> None:
    with open_ledger(postgres_url) as late:
        run_sql(postgres_url, EXPIRE)
        with late.transaction():
            check_refused(open_ledger(postgres_url), LockedError, "is held by process")
        begin_run(late)


def test_requests_may_leave_for_less_than_the_lease_from_the_moment_before_the_last_transaction(
    postgres_url: str,
) -> None:
    with open_ledger(postgres_url) as ledger:
        held = ledger.store.lease
        assert held is not None
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        with ledger.transaction():
            assert held.until < before + 25
            after = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert before + 25 <= held.until <= after + 25


def test_a_killed_process_of_this_machine_blocks_no_run(postgres_url: str) -> None:
    code = (
        "import os, sys\nfrom connector.ledger.opening import open_ledger\n"
        "with open_ledger(sys.argv[1]):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, postgres_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        check_refused(open_ledger(postgres_url), LockedError, f"is held by process {process.pid}")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with open_ledger(postgres_url):  # its lease has 30 s to go
            pass


def test_a_process_that_the_system_hides_counts_as_alive(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_ledger(postgres_url):
        identify = postgres._identify_process
        parent = identify(os.getppid())
        run_sql(postgres_url, f"UPDATE lease SET process = '{parent} token'")
        monkeypatch.setattr(postgres, "_identify_process", lambda pid: identify(pid) if pid == os.getpid() else "")
        check_refused(open_ledger(postgres_url), LockedError, "is held by process")


def test_a_shard_moves_the_entries_of_its_own_range_alone(postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:
        begin_run(ledger)
        base = add_base(ledger)
        intend(ledger, base, OF_FIRST, OF_SECOND)
    with open_ledger(postgres_url, shard=FIRST) as first, open_ledger(postgres_url, shard=SECOND) as second:
        with first.transaction():
            assert first.mark_died() == 1
            assert [entry.identity for entry in first.find_unfinished(base, State.UNKNOWN)] == [OF_FIRST]
        with second.transaction():
            assert second.find_unfinished(base, State.UNKNOWN) == []
            assert second.mark_died() == 1
            second.mark_refused(base, State.UNKNOWN, [(OF_SECOND, 403, "no")])
        with first.transaction():
            assert first.find_not_final(base) == []
            first.record_listed(base, "email", [(OF_SECOND, 8), (b"\x02" * 16, 9)])
            assert first.find_confirmed(base, b"\xff" * 16, 9) == [Known(b"\x02" * 16, 9, None)]
        assert read_state(second, base, OF_SECOND) is State.REJECTED


def test_shards_that_meet_a_base_at_once_add_one_line_for_it(postgres_url: str) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(open_ledger(postgres_url, shard=FIRST))
        second = stack.enter_context(open_ledger(postgres_url, shard=SECOND))
        with first.transaction() as connection:
            one = find_or_add_base(connection, "account", 7, None)
            waiting = subprocess.Popen(
                [sys.executable, "-c", _ADD_BASE, postgres_url], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
            )
            wait_for(lambda: bool(run_sql(postgres_url, "SELECT 1 FROM pg_locks WHERE NOT granted")))
        with second.transaction() as connection:
            assert find_or_add_base(connection, "account", 7, None) == one
        assert waiting.communicate()[0].decode().strip() == str(one.key)
        assert run_sql(postgres_url, "SELECT count(*) FROM base") == [(1,)]


_ADD_BASE = """
import sys
from sqlalchemy import create_engine
from connector.ledger.records import find_or_add_base
with create_engine(sys.argv[1]).begin() as connection:
    print(find_or_add_base(connection, "account", 7, None).key)
"""


def test_a_new_run_ends_the_dead_run_of_its_shard_only(postgres_url: str) -> None:
    def begin(ledger: Ledger, name: str, at: float) -> None:
        with ledger.transaction() as connection:
            end_dead_runs(connection, at)
            name_run(ledger.store, start_run(connection, name, "crm", "sync", at))

    with open_ledger(postgres_url, shard=FIRST) as first:
        begin(first, "beside", 1.0)
        with open_ledger(postgres_url, shard=SECOND) as second:
            begin(second, "died", 2.0)
        with open_ledger(postgres_url, shard=SECOND) as second:
            begin(second, "next", 9.0)
            with second.transaction() as connection:
                assert find_open_run(connection) == "next"
            ended = run_sql(postgres_url, "SELECT run_id, finished_at FROM run ORDER BY run_key")
            assert ended == [("beside", None), ("died", 9.0), ("next", None)]
