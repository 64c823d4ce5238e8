"""Queries of commands that read the ledger outside a run, on SQLite and on PostgreSQL."""

from collections.abc import Iterator

import pytest

from connector.ledger.entries import EntryWithId, Intent, Ledger, count_unsettled_entries
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_job_of_run, find_or_add_base, start_run
from connector.ledger.store import Base
from connector.states import State


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """A ledger in which no run has begun."""
    with open_ledger(ledger_url) as ledger:
        yield ledger


def add_entries(ledger: Ledger, base: Base, run_key: int, person_numbers: range) -> list[bytes]:
    identities = [bytes([person_number]) * 16 for person_number in person_numbers]
    ledger.mark_intended(base, run_key, [Intent(identity, b"f" * 8, b"{}") for identity in identities])
    return identities


def test_the_job_of_a_run_is_found_by_the_id_of_the_run(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        for index in range(4):
            start_run(connection, f"run-{index}", f"job-{index}", "sync", float(index))
        assert find_job_of_run(connection, "run-2") == "job-2"
        assert find_job_of_run(connection, "run") is None


def test_sending_unknown_and_held_entries_are_counted_by_account(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        run_key = start_run(connection, "run", "crm", "sync", 0.0)
        first_base, base_of_other_account = (
            find_or_add_base(connection, account, 7, None) for account in ("here", "there")
        )
        second_base = find_or_add_base(connection, "here", 8, None)
        base_without_unsettled_entries = find_or_add_base(connection, "done", 7, None)
        add_entries(ledger, first_base, run_key, range(1))  # this entry stays in the state SENDING
        unknown_identity, held_identity = add_entries(ledger, first_base, run_key, range(1, 3))
        ledger.mark_lost(first_base, [unknown_identity, held_identity])
        ledger.mark_held(first_base, [(held_identity, None)])
        ledger.mark_lost(second_base, add_entries(ledger, second_base, run_key, range(5, 6)))
        ledger.mark_lost(base_of_other_account, add_entries(ledger, base_of_other_account, run_key, range(6, 8)))
        confirmed_identity, rejected_identity = add_entries(
            ledger, base_without_unsettled_entries, run_key, range(9, 11)
        )
        ledger.mark_answered(base_without_unsettled_entries, [(confirmed_identity, 1)])
        ledger.mark_refused(base_without_unsettled_entries, State.SENDING, [(rejected_identity, 422, "no")])
        assert count_unsettled_entries(connection) == {"here": 4, "there": 2}


def test_entries_are_found_by_subscriber_id_in_every_base_of_the_account(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        start_run(connection, "run", "crm", "sync", 0.0)
        first_base, second_base = (
            find_or_add_base(connection, "here", 7, "News"),
            find_or_add_base(connection, "here", 8, None),
        )
        base_of_other_account = find_or_add_base(connection, "there", 7, None)
        assert ledger.read_largest_subscriber_id() == 0
        for base, subscriber_id in (
            (first_base, 5),
            (second_base, 5),
            (second_base, 2**40),
            (base_of_other_account, 6),
        ):
            ledger.record_listed_subscribers(base, "email", [(subscriber_id.to_bytes(16, "big"), subscriber_id)])
        assert ledger.read_largest_subscriber_id() == 2**40
        entries_with_ids = ledger.find_entries_with_ids("here", [5, 6, 9])
        assert set(entries_with_ids) == {
            EntryWithId(5, first_base.key, 7, "News", None),
            EntryWithId(5, second_base.key, 8, None, None),
        }


def test_the_ledger_returns_an_entry_as_shown_only_if_the_list_has_shown_the_entry(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        start_run(connection, "run", "crm", "sync", 0.0)
        base = find_or_add_base(connection, "here", 7, "News")
        identities = [bytes([index]) * 16 for index in range(9)]
        ledger.record_listed_subscribers(base, "email", [(identity, identity[0] + 1) for identity in identities])
        assert ledger.find_shown_entries(base, b"", 4) == []
        ledger.record_shown_identities(base, [identities[1], identities[5]])
        assert [entry.subscriber_id for entry in ledger.find_shown_entries(base, identities[3], 4)] == [6, 2]
