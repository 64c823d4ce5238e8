"""A ledger that is slow, or that fails, while the run is cancelled."""

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from connector.errors import LedgerError
from connector.ledger.commits import LedgerQueue, LedgerWriter, open_ledger_queue
from connector.ledger.entries import Ledger, Transition
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, start_run
from connector.load.candidates import CandidateList
from connector.load.creates import Creator
from connector.states import Event, State
from tests.load.sessions import BASE_ID, build_session, compute_identity
from tests.load.test_creating import FakeService, RecordedOutcomes, build_candidate

TIMEOUT_S = 30.0


def open_ledger_file(folder: Path) -> AbstractContextManager[Ledger]:
    return open_ledger(f"sqlite:///{folder}/ledger.db")


def build_writer_of_named_base(ledger: Ledger, ledger_queue: LedgerQueue) -> LedgerWriter:
    """Return the writer of a base that is known only by its name. The ledger has another record with the Id of the
    base."""
    with ledger.transaction() as connection:
        run_key = start_run(connection, "run", "job", "import", 0.0)
        find_or_add_base(connection, "account", BASE_ID, None)
        base = find_or_add_base(connection, "account", None, "News")
    return LedgerWriter(ledger_queue, base, run_key)


def test_a_cancelled_task_still_records_the_id_of_the_base(tmp_path: Path) -> None:
    first_candidate, second_candidate = build_candidate(1), build_candidate(2)

    async def record_base() -> None:
        with open_ledger_file(tmp_path) as ledger, ThreadPoolExecutor(1) as executor:
            ledger_writer = build_writer_of_named_base(ledger, LedgerQueue(ledger, executor))
            await ledger_writer.commit_intents(
                [(candidate.entry_state, candidate.intent) for candidate in (first_candidate, second_candidate)]
            )
            ledger_writer.record(first_candidate.intent.identity, Transition(Event.ANSWERED, subscriber_id=5))
            may_continue = threading.Event()
            executor.submit(may_continue.wait, TIMEOUT_S)
            record_task = asyncio.ensure_future(ledger_writer.record_base_id(BASE_ID, "News"))
            await asyncio.sleep(0)
            record_task.cancel()
            may_continue.set()
            with pytest.raises(asyncio.CancelledError):
                await record_task
            ledger_writer.record(second_candidate.intent.identity, Transition(Event.LOST))
            await ledger_writer.flush()
            identities = [first_candidate.intent.identity, second_candidate.intent.identity]
            entries = await ledger_writer.execute(lambda ledger: ledger.find_entries(ledger_writer.base, identities))
            assert [entries[identity].state for identity in identities] == [State.CONFIRMED, State.UNKNOWN]

    asyncio.run(record_base())


def test_a_full_disk_fails_the_run_even_if_the_run_is_stopped_during_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the next intents fails once, and the stop of the run cancels the task that waits for the commit."""
    candidates = [build_candidate(candidate_number) for candidate_number in range(400)]
    transitions: dict[str, Transition] = {}

    async def create_candidates(ledger: Ledger, ledger_queue: LedgerQueue) -> None:
        ledger_writer, dialect = build_writer_of_named_base(ledger, ledger_queue), ledger.connection.engine.dialect
        session = build_session(SlowFakeService({}), ledger_writer, max_concurrency=8, grace_s=5.0)
        original_commit, event_loop, commit_count = dialect.do_commit, asyncio.get_running_loop(), 0

        def fail_fourth_commit(connection: Any) -> None:
            nonlocal commit_count
            commit_count += 1
            if commit_count == 4:
                event_loop.call_soon_threadsafe(session.stop.event.set)
                threading.Event().wait(0.2)
                raise sqlite3.OperationalError("database or disk is full")
            original_commit(connection)

        monkeypatch.setattr(dialect, "do_commit", fail_fourth_commit)
        creator = Creator(session, RecordedOutcomes(session, transitions))
        with pytest.raises(LedgerError, match="disk is full"):
            await asyncio.wait_for(
                creator.create_subscribers(CandidateList(candidates, session.clock.monotonic).fetch), TIMEOUT_S
            )
        emails = [email for email, transition in transitions.items() if transition.event is Event.ANSWERED]
        identities = [compute_identity(email) for email in emails]
        assert set(
            await ledger_writer.execute(lambda ledger: ledger.find_entries(ledger_writer.base, identities))
        ) == set(identities)

    with open_ledger_file(tmp_path) as ledger, open_ledger_queue(ledger) as ledger_queue:
        asyncio.run(create_candidates(ledger, ledger_queue))
    assert Event.ANSWERED in {transition.event for transition in transitions.values()}


class SlowFakeService(FakeService):
    """A service that answers slowly."""

    async def create_subscriber(self, body: bytes) -> Any:
        answer = await super().create_subscriber(body)
        await asyncio.sleep(0.05)
        return answer
