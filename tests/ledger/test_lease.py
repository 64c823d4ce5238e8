"""Leases of a ledger in PostgreSQL. A run may write only to the shard of its lease, until the lease expires."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger import postgres
from connector.ledger.entries import ConfirmedEntry, Intent, Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.problems import ProblemKey, SeenProblem, find_problems, record_problems
from connector.ledger.records import end_dead_runs, find_open_run, find_or_add_base, start_run
from connector.ledger.schema import SCHEMA_VERSION, is_current, meta, read_version
from connector.ledger.store import Base
from connector.shards import Shard
from connector.states import State
from tests.ledger.places import check_opening_fails, run_sql
from tests.ledger.transitions import RUN_KEY, add_base, begin_run, read_entry_state
from tests.pipelines.conftest import wait_for

FIRST_SHARD, SECOND_SHARD = Shard(1, 2), Shard(2, 2)
IDENTITY_OF_FIRST_SHARD, IDENTITY_OF_SECOND_SHARD = b"\x01" * 16, b"\xf1" * 16
EXPIRE_SQL = "UPDATE lease SET expires_at = now() - interval '1 minute'"
SET_OLDER_VERSION_SQL = f"UPDATE meta SET value = '{SCHEMA_VERSION - 1}' WHERE name = 'schema_version'"


def mark_creates_intended(ledger: Ledger, base: Base, *identities: bytes) -> None:
    with ledger.transaction():
        ledger.mark_intended(base, RUN_KEY, [Intent(identity, b"f" * 8, b"{}") for identity in identities])


def test_only_shards_with_the_same_shard_count_share_the_ledger(postgres_url: str) -> None:
    with open_ledger(postgres_url, shard=FIRST_SHARD), open_ledger(postgres_url, shard=SECOND_SHARD):
        check_opening_fails(open_ledger(postgres_url), LockedError, "the ledger .* is held by a run of shard 1/2")
        check_opening_fails(
            open_ledger(postgres_url, shard=FIRST_SHARD), LockedError, "shard 1/2 of the ledger .* is held by a run"
        )
        check_opening_fails(open_ledger(postgres_url, shard=Shard(3, 3)), LockedError, "is held by a run of shard 1/2")
    with open_ledger(postgres_url):
        check_opening_fails(open_ledger(postgres_url, shard=FIRST_SHARD), LockedError, "is held by process")
    with open_ledger(postgres_url, shard=Shard(3, 3)):
        pass


def test_a_ledger_in_a_file_has_no_shards(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.db"
    check_opening_fails(open_ledger(url, shard=FIRST_SHARD), ConfigurationError, "CONNECTOR_LEDGER=postgresql://")


def test_a_run_writes_nothing_after_another_run_has_taken_its_lease_over(postgres_url: str) -> None:
    with open_ledger(postgres_url) as expired_ledger:
        begin_run(expired_ledger)
        base = add_base(expired_ledger)
        mark_creates_intended(expired_ledger, base, IDENTITY_OF_FIRST_SHARD)
        run_sql(postgres_url, EXPIRE_SQL)
        with open_ledger(postgres_url) as next_ledger:
            with next_ledger.transaction():
                assert next_ledger.mark_sending_entries_unknown() == 1
            with pytest.raises(LedgerError, match="another run has taken over"), expired_ledger.transaction():
                expired_ledger.mark_answered(base, [(IDENTITY_OF_FIRST_SHARD, 9)])
            assert read_entry_state(next_ledger, base, IDENTITY_OF_FIRST_SHARD) is State.UNKNOWN


def test_a_ledger_that_a_run_of_an_older_version_holds_is_not_upgraded(postgres_url: str) -> None:
    with open_ledger(postgres_url, shard=FIRST_SHARD) as ledger:
        run_sql(postgres_url, SET_OLDER_VERSION_SQL)
        refusal = "which this version must upgrade first, is held by a run of shard 1/2"
        check_opening_fails(open_ledger(postgres_url), LockedError, refusal)
        check_opening_fails(open_ledger(postgres_url, shard=SECOND_SHARD), LockedError, refusal)
        assert not is_current_version(ledger)
    with open_ledger(postgres_url, shard=SECOND_SHARD) as ledger:
        assert is_current_version(ledger)


def is_current_version(ledger: Ledger) -> bool:
    with ledger.transaction() as connection:
        return is_current(read_version(connection), meta)


def test_a_run_with_an_expired_lease_continues_if_no_other_run_has_the_lease(postgres_url: str) -> None:
    with open_ledger(postgres_url) as expired_ledger:
        begin_run(expired_ledger)
        base = add_base(expired_ledger)
        mark_creates_intended(expired_ledger, base, IDENTITY_OF_FIRST_SHARD)
        run_sql(postgres_url, EXPIRE_SQL)
        with expired_ledger.transaction():
            expired_ledger.mark_answered(base, [(IDENTITY_OF_FIRST_SHARD, 9)])
        check_opening_fails(open_ledger(postgres_url), LockedError, "is held by process")


def test_a_run_keeps_an_expired_lease_during_its_transaction(postgres_url: str) -> None:
    with open_ledger(postgres_url) as expired_ledger:
        run_sql(postgres_url, EXPIRE_SQL)
        with expired_ledger.transaction():
            check_opening_fails(open_ledger(postgres_url), LockedError, "is held by process")
        begin_run(expired_ledger)


def test_requests_may_be_sent_until_25_seconds_after_the_start_of_the_last_transaction(postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:
        lease = ledger.store.lease
        assert lease is not None
        time_before = time.clock_gettime(time.CLOCK_BOOTTIME)
        with ledger.transaction():
            assert lease.valid_until < time_before + 25
            time_after = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert time_before + 25 <= lease.valid_until <= time_after + 25


def test_the_lease_of_a_killed_process_of_this_machine_is_free(postgres_url: str) -> None:
    script = (
        "import os, sys\nfrom connector.ledger.opening import open_ledger\n"
        "with open_ledger(sys.argv[1]):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, postgres_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        check_opening_fails(open_ledger(postgres_url), LockedError, f"is held by process {process.pid}")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with open_ledger(postgres_url):  # the lease of the killed process would last 30 s
            pass


def test_a_process_that_the_operating_system_hides_counts_as_alive(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_ledger(postgres_url):
        identify_process = postgres._identify_process
        parent_identity = identify_process(os.getppid())
        run_sql(postgres_url, f"UPDATE lease SET process = '{parent_identity} token'")
        monkeypatch.setattr(
            postgres, "_identify_process", lambda pid: identify_process(pid) if pid == os.getpid() else ""
        )
        check_opening_fails(open_ledger(postgres_url), LockedError, "is held by process")


def test_a_shard_reads_and_changes_only_the_entries_of_its_range(postgres_url: str) -> None:
    with open_ledger(postgres_url) as ledger:
        begin_run(ledger)
        base = add_base(ledger)
        mark_creates_intended(ledger, base, IDENTITY_OF_FIRST_SHARD, IDENTITY_OF_SECOND_SHARD)
    with (
        open_ledger(postgres_url, shard=FIRST_SHARD) as first_ledger,
        open_ledger(postgres_url, shard=SECOND_SHARD) as second_ledger,
    ):
        with first_ledger.transaction():
            assert first_ledger.mark_sending_entries_unknown() == 1
            assert [entry.identity for entry in first_ledger.find_unfinished_entries(base, State.UNKNOWN)] == [
                IDENTITY_OF_FIRST_SHARD
            ]
        with second_ledger.transaction():
            assert second_ledger.find_unfinished_entries(base, State.UNKNOWN) == []
            assert second_ledger.mark_sending_entries_unknown() == 1
            second_ledger.mark_refused(base, State.UNKNOWN, [(IDENTITY_OF_SECOND_SHARD, 403, "no")])
        with first_ledger.transaction():
            assert first_ledger.find_not_final_refusals(base) == []
            first_ledger.record_listed_subscribers(base, "email", [(IDENTITY_OF_SECOND_SHARD, 8), (b"\x02" * 16, 9)])
            assert first_ledger.find_confirmed_entries(base, b"\xff" * 16, 9) == [ConfirmedEntry(b"\x02" * 16, 9, None)]
            first_ledger.record_opt_outs(base, "crm", [b"\x02" * 16])
            keys = [ProblemKey(digest, "", "invalid") for digest in (b"\x02" * 16, IDENTITY_OF_SECOND_SHARD)]
            problems = dict.fromkeys(keys, SeenProblem(True, "email", b"r" * 16))
            record_problems(first_ledger, "account", "crm", problems, "run", 1.0)
            assert first_ledger.find_opt_outs(base, "crm") == [b"\x02" * 16]
            assert find_problems(first_ledger, "account", "crm") == {keys[0]}
        assert read_entry_state(second_ledger, base, IDENTITY_OF_SECOND_SHARD) is State.REJECTED
        with second_ledger.transaction():
            assert second_ledger.find_opt_outs(base, "crm") == []
            assert find_problems(second_ledger, "account", "crm") == {keys[1]}


def test_two_shards_that_add_a_base_at_the_same_time_make_one_record(postgres_url: str) -> None:
    with ExitStack() as open_ledgers:
        first_ledger = open_ledgers.enter_context(open_ledger(postgres_url, shard=FIRST_SHARD))
        second_ledger = open_ledgers.enter_context(open_ledger(postgres_url, shard=SECOND_SHARD))
        with first_ledger.transaction() as connection:
            first_base = find_or_add_base(connection, "account", 7, None)
            waiting_process = subprocess.Popen(
                [sys.executable, "-c", ADD_BASE_SCRIPT, postgres_url], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
            )
            wait_for(lambda: bool(run_sql(postgres_url, "SELECT 1 FROM pg_locks WHERE NOT granted")))
        with second_ledger.transaction() as connection:
            assert find_or_add_base(connection, "account", 7, None) == first_base
        assert waiting_process.communicate()[0].decode().strip() == str(first_base.key)
        assert run_sql(postgres_url, "SELECT count(*) FROM base") == [(1,)]


ADD_BASE_SCRIPT = """
import sys
from sqlalchemy import create_engine
from connector.ledger.records import find_or_add_base
with create_engine(sys.argv[1]).begin() as connection:
    print(find_or_add_base(connection, "account", 7, None).key)
"""


def test_a_new_run_of_a_shard_does_not_end_the_run_of_another_shard(postgres_url: str) -> None:
    def begin_run_of_shard(ledger: Ledger, run_id: str, started_at: float) -> None:
        with ledger.transaction() as connection:
            end_dead_runs(connection, started_at)
            run_key = start_run(connection, run_id, "crm", "sync", started_at)
            assert ledger.store.lease is not None
            ledger.store.lease.record_run(connection, run_key)

    with open_ledger(postgres_url, shard=FIRST_SHARD) as first_ledger:
        begin_run_of_shard(first_ledger, "beside", 1.0)
        with open_ledger(postgres_url, shard=SECOND_SHARD) as second_ledger:
            begin_run_of_shard(second_ledger, "died", 2.0)
        with open_ledger(postgres_url, shard=SECOND_SHARD) as second_ledger:
            begin_run_of_shard(second_ledger, "next", 9.0)
            with second_ledger.transaction() as connection:
                assert find_open_run(connection) == "next"
            finished_runs = run_sql(postgres_url, "SELECT run_id, finished_at FROM run ORDER BY run_key")
            assert finished_runs == [("beside", None), ("died", 9.0), ("next", None)]
