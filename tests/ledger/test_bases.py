"""The bases and the cursors of the ledger, on SQLite and on PostgreSQL. Each base has one record,
which is found by the id and by the name of the base."""

from itertools import product

import pytest

from connector.errors import ConfigurationError
from connector.ledger.entries import Ledger
from connector.ledger.records import (
    StoredCursor,
    count_unsettled_entries_of_possible_duplicate_bases,
    list_bases,
    move_cursor,
    read_cursor,
    record_base_id,
    start_run,
)
from connector.states import State
from tests.ledger.transitions import INTENT, RUN_KEY, add_base, bring_to_state, read_body, read_entry_state


def test_a_base_is_found_by_its_id_and_by_its_name(ledger: Ledger) -> None:
    base_with_name = add_base(ledger, None, "News")
    with ledger.transaction() as connection:
        updated_base = record_base_id(connection, base_with_name, 7, "News")
        assert list_bases(connection, "account") == [updated_base]
        assert list_bases(connection, "other") == []
    assert add_base(ledger, 7) == updated_base
    assert add_base(ledger, None, "News") == updated_base
    assert updated_base.service_id == 7


STATES_FROM_STRONGEST = (
    State.CONFIRMED,
    State.SENDING,
    State.UNKNOWN,
    State.HELD,
    State.DROPPED,
    State.REJECTED,
    State.NONE,
)


def test_the_two_records_of_a_base_are_merged_when_its_id_is_known(ledger: Ledger) -> None:
    assert set(STATES_FROM_STRONGEST) == set(State)
    for index, states in enumerate(product(STATES_FROM_STRONGEST, repeat=2)):
        expected_state = min(states, key=STATES_FROM_STRONGEST.index)
        base_with_name, base_with_id = add_base(ledger, None, f"News {index}"), add_base(ledger, index)
        for base, state in zip((base_with_name, base_with_id), states, strict=True):
            bring_to_state(ledger, base, state)
        with ledger.transaction() as connection:
            updated_base = record_base_id(connection, base_with_name, index, f"News {index}")
        assert read_entry_state(ledger, updated_base) is expected_state, states
        assert read_body(ledger, updated_base) == (
            None if expected_state in (State.CONFIRMED, State.NONE) else INTENT.body
        )


def test_a_base_that_was_renamed_in_the_service_keeps_its_record(ledger: Ledger) -> None:
    base = add_base(ledger, 7)
    with ledger.transaction() as connection:
        record_base_id(connection, base, 7, "News")
        renamed_base = record_base_id(connection, base, 7, "Letters")
        assert list_bases(connection, "account") == [renamed_base]
    assert add_base(ledger, None, "Letters").key == base.key


def test_a_name_that_several_bases_have_is_refused(ledger: Ledger) -> None:
    for base_id in (1, 2):
        base = add_base(ledger, base_id)
        with ledger.transaction() as connection:
            record_base_id(connection, base, base_id, "News")
    with pytest.raises(ConfigurationError, match="ids 1, 2"):
        add_base(ledger, None, "News")


@pytest.mark.parametrize("state", [State.UNKNOWN, State.HELD])
def test_a_base_without_a_known_id_may_be_the_same_base_as_any_base_with_an_id(ledger: Ledger, state: State) -> None:
    base_with_name, base_with_id = add_base(ledger, None, "News"), add_base(ledger, 7)
    bring_to_state(ledger, base_with_name, state)
    with ledger.transaction() as connection:
        assert count_unsettled_entries_of_possible_duplicate_bases(connection, base_with_id) == 1
        assert count_unsettled_entries_of_possible_duplicate_bases(connection, base_with_name) == 0
        merged_base = record_base_id(connection, base_with_name, 7, "News")
        assert count_unsettled_entries_of_possible_duplicate_bases(connection, merged_base) == 0


def test_a_base_whose_name_is_stored_escaped_is_found(ledger: Ledger) -> None:
    name = "a\0b and half \ud83d of a pair"
    base = add_base(ledger, None, name)
    assert add_base(ledger, None, name) == base
    with ledger.transaction() as connection:
        updated_base = record_base_id(connection, base, 7, name)
    assert add_base(ledger, None, name) == updated_base


SOURCE_DIGEST, OTHER_SOURCE_DIGEST = b"s" * 16, b"o" * 16


def read_job_cursor(ledger: Ledger, job: str = "crm", source_digest: bytes = SOURCE_DIGEST) -> StoredCursor | None:
    with ledger.transaction() as connection:
        return read_cursor(connection, job, source_digest)


def move_job_cursor(
    ledger: Ledger, value: str, job: str = "crm", source_digest: bytes = SOURCE_DIGEST, run: int = RUN_KEY
) -> None:
    with ledger.transaction() as connection:
        move_cursor(connection, job, source_digest, value, run)


def test_each_job_has_its_own_cursor_for_each_source(ledger: Ledger) -> None:
    move_job_cursor(ledger, "1")
    move_job_cursor(ledger, "2", job="shop")
    move_job_cursor(ledger, "3", source_digest=OTHER_SOURCE_DIGEST)
    assert read_job_cursor(ledger) == StoredCursor("1", "run-1")
    assert read_job_cursor(ledger, job="shop") == StoredCursor("2", "run-1")
    assert read_job_cursor(ledger, source_digest=OTHER_SOURCE_DIGEST) == StoredCursor("3", "run-1")
    assert read_job_cursor(ledger, job="shop", source_digest=OTHER_SOURCE_DIGEST) is None


def test_a_cursor_records_the_run_that_moved_it_and_can_be_moved_back(ledger: Ledger) -> None:
    move_job_cursor(ledger, "2026-11-21")
    with ledger.transaction() as connection:
        second_run_key = start_run(connection, "run-2", "crm", "sync", 1.0)
    move_job_cursor(ledger, "2026-11-20", run=second_run_key)
    assert read_job_cursor(ledger) == StoredCursor("2026-11-20", "run-2")
