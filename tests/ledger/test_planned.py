"""The ledger of a plan: it reads the real ledger and never changes it."""

from math import inf
from pathlib import Path

import pytest
from sqlalchemy import text

from connector.ledger.entries import Intent, Ledger
from connector.ledger.opening import open_ledger, read_ledger
from connector.ledger.planned import open_planned_ledger
from connector.ledger.records import (
    find_or_add_base,
    list_bases,
    move_cursor,
    read_cursor,
    read_largest_lag,
    record_base_id,
    record_lag,
)
from connector.states import State
from tests.ledger.places import ON_SQLITE, build_file_url, run_sql
from tests.ledger.transitions import RUN_KEY, begin_run

ACCOUNT = "account"
SOURCE_DIGEST = b"s" * 16
ANN, BOB, CEM, UNRECORDED_PERSON, DAN, EVE = (letter * 16 for letter in (b"a", b"b", b"c", b"d", b"e", b"f"))


def fill_ledger(url: str) -> None:
    """Write a ledger with entries in several states in two accounts, and a cursor."""
    with open_ledger(url) as ledger:
        begin_run(ledger)
        with ledger.transaction() as connection:
            news_base = find_or_add_base(connection, ACCOUNT, 7, "News")
            base_of_other_account = find_or_add_base(connection, "another", 7, "News")
            ledger.record_listed_subscribers(news_base, "email", [(ANN, 1)])
            ledger.record_listed_subscribers(base_of_other_account, "email", [(UNRECORDED_PERSON, 2)])
            ledger.mark_intended(news_base, RUN_KEY, [Intent(identity, b"f" * 8, b"{}") for identity in (BOB, CEM)])
            ledger.mark_refused(news_base, State.SENDING, [(CEM, 422, "no")])
            move_cursor(connection, "crm", SOURCE_DIGEST, "7", RUN_KEY)
            record_lag(connection, ACCOUNT, 90.0)


def read_states(url: str, account: str = ACCOUNT) -> dict[bytes, State]:
    with open_planned_ledger(url, account) as planned_ledger, planned_ledger.transaction() as connection:
        return {
            identity: entry.state
            for base in list_bases(connection, account)
            for identity, entry in planned_ledger.find_entries(base, [ANN, BOB, CEM, UNRECORDED_PERSON]).items()
        }


def test_a_plan_has_the_entries_of_the_account(ledger_url: str) -> None:
    fill_ledger(ledger_url)
    assert read_states(ledger_url) == {ANN: State.CONFIRMED, BOB: State.SENDING, CEM: State.REJECTED}
    assert read_states(ledger_url, "another") == {UNRECORDED_PERSON: State.CONFIRMED}
    with open_planned_ledger(ledger_url, ACCOUNT) as planned_ledger, planned_ledger.transaction() as connection:
        cursor = read_cursor(connection, "crm", SOURCE_DIGEST)
        assert read_largest_lag(connection, ACCOUNT) == 90.0
        news_base = list_bases(connection, ACCOUNT)[0]
        assert cursor is not None
        assert cursor.value == "7"
        assert planned_ledger.find_unfinished_entries(news_base, State.REJECTED)[0].body == b"{}"
        assert planned_ledger.find_identities_of_changed_rows(news_base, [(ANN, b"f" * 8), (DAN, b"f" * 8)]) == {
            ANN: True,
            DAN: False,
        }
        assert [entry.subscriber_id for entry in planned_ledger.find_confirmed_entries(news_base, b"", 9)] == [1]
        assert [entry[:2] for entry in planned_ledger.list_entries(news_base, "email", ANN, 9)] == [
            (BOB, State.SENDING),
            (CEM, State.REJECTED),
        ]


def test_a_plan_without_a_ledger_is_empty_and_creates_no_ledger(ledger_url: str, tmp_path: Path) -> None:
    assert read_states(ledger_url) == {}
    assert list(tmp_path.iterdir()) == []
    if not ledger_url.startswith("sqlite"):
        assert run_sql(ledger_url, "SELECT to_regclass('meta') IS NULL") == [(True,)]


def test_the_records_of_a_plan_are_visible_only_in_the_plan(ledger_url: str) -> None:
    fill_ledger(ledger_url)
    with open_planned_ledger(ledger_url, ACCOUNT) as planned_ledger, planned_ledger.transaction() as connection:
        assert planned_ledger.mark_sending_entries_unknown() == 1
        news_base = list_bases(connection, ACCOUNT)[0]
        planned_ledger.mark_found(news_base, State.UNKNOWN, [(BOB, 5)])
        planned_ledger.record_listed_subscribers(news_base, "email", [(ANN, 1), (CEM, 6), (DAN, 7)])
        entries = planned_ledger.find_entries(news_base, [ANN, BOB, CEM, DAN])
        assert {entry.state for entry in entries.values()} == {State.CONFIRMED}
        assert [entry.subscriber_id for entry in entries.values()] == [1, 5, 6, 7]
        planned_ledger.record_rows_equal_to_service(news_base, [(ANN, b"f" * 8)])
        assert planned_ledger.find_identities_of_changed_rows(news_base, [(ANN, b"f" * 8), (DAN, b"f" * 8)]) == {
            DAN: True
        }
        move_cursor(connection, "crm", SOURCE_DIGEST, "8", RUN_KEY)
    assert read_states(ledger_url) == {ANN: State.CONFIRMED, BOB: State.SENDING, CEM: State.REJECTED}
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        cursor = read_cursor(connection, "crm", SOURCE_DIGEST)
        assert cursor is not None
        assert cursor.value == "7"


@ON_SQLITE
def test_a_base_that_a_plan_adds_never_has_the_entries_of_another_base(ledger_url: str) -> None:
    fill_ledger(ledger_url)
    with (
        open_planned_ledger(ledger_url, ACCOUNT) as planned_ledger,
        open_ledger(ledger_url) as ledger,
        ledger.transaction() as connection,
    ):
        added_base = find_or_add_base(connection, ACCOUNT, 8, "Shop")
        ledger.record_listed_subscribers(added_base, "email", [(DAN, 9)])
        with planned_ledger.transaction() as planned_connection:
            # The plan and the load choose keys independently. One of these three bases gets the key of `added_base`.
            for base_id in (11, 12, 13):
                base = find_or_add_base(planned_connection, ACCOUNT, base_id, None)
                assert planned_ledger.find_entries(base, [DAN]) == {}


def test_a_plan_sees_the_commits_of_a_running_load(ledger_url: str) -> None:
    fill_ledger(ledger_url)
    with open_ledger(ledger_url) as ledger, open_planned_ledger(ledger_url, ACCOUNT) as planned_ledger:
        with ledger.transaction() as connection:
            assert ledger.mark_sending_entries_unknown() == 1  # the plan has not changed this entry of the ledger
            news_base = list_bases(connection, ACCOUNT)[0]
            ledger.mark_intended(news_base, RUN_KEY, [Intent(DAN, b"f" * 8, b"{}")])
            ledger.record_listed_subscribers(news_base, "email", [(EVE, 4)])
        with planned_ledger.transaction():
            entries = planned_ledger.find_entries(news_base, [DAN, EVE])
            assert entries[DAN].state is State.UNKNOWN  # the plan treats the entry as unknown, and looks it up
            assert entries[EVE].state is State.CONFIRMED
            assert [entry.identity for entry in planned_ledger.find_confirmed_entries(news_base, b"", 9)] == [ANN, EVE]


@ON_SQLITE
def test_a_plan_assumes_that_a_list_may_lack_entries_of_an_unfinished_run(ledger_url: str) -> None:
    fill_ledger(ledger_url)
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        ledger.mark_answered(list_bases(connection, ACCOUNT)[0], [(BOB, 2)])
    with open_planned_ledger(ledger_url, ACCOUNT) as planned_ledger, planned_ledger.transaction() as connection:
        confirmed_entries = planned_ledger.find_confirmed_entries(list_bases(connection, ACCOUNT)[0], b"", 9)
        assert {entry.identity: entry.known_since for entry in confirmed_entries} == {ANN: None, BOB: inf}


@ON_SQLITE
@pytest.mark.parametrize("base_id", [None, 7])
def test_a_plan_that_learns_a_base_id_finds_the_entries_of_the_name(ledger_url: str, base_id: int | None) -> None:
    with open_ledger(ledger_url) as ledger:
        begin_run(ledger)
        with ledger.transaction() as connection:
            base_with_name = find_or_add_base(connection, ACCOUNT, None, "News")
            ledger.mark_intended(
                base_with_name, RUN_KEY, [Intent(identity, b"f" * 8, b"{}") for identity in (ANN, BOB)]
            )
            ledger.mark_answered(base_with_name, [(ANN, 1)])
    with open_planned_ledger(ledger_url, ACCOUNT) as planned_ledger, planned_ledger.transaction() as connection:
        base = record_base_id(connection, find_or_add_base(connection, ACCOUNT, base_id, "News"), 7, "NEWS")
        assert planned_ledger.find_identities_of_changed_rows(base, [(ANN, b"f" * 8), (BOB, b"f" * 8)]) == {BOB: True}
        assert [entry[0] for entry in planned_ledger.list_entries(base, "email", b"", 9)] == [ANN, BOB]


def list_files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.iterdir())}


def test_a_plan_does_not_change_the_file_and_its_folder(tmp_path: Path) -> None:
    url = build_file_url(tmp_path / "ledger.db")
    fill_ledger(url)
    (tmp_path / "ledger.db.lock").unlink()
    files_before = list_files(tmp_path)
    assert list(files_before) == ["ledger.db"]
    read_states(url)
    assert list_files(tmp_path) == files_before


def test_a_ledger_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    url = build_file_url(tmp_path / "ledger.db")
    fill_ledger(url)
    base_counts = list[int]()

    def count_bases_and_add_base(ledger: Ledger) -> int:
        base_counts.append(int(ledger.connection.execute(text("SELECT count(*) FROM base")).scalar_one()))
        if len(base_counts) == 1:
            with open_ledger(url) as writer, writer.transaction() as connection:
                find_or_add_base(connection, ACCOUNT, 8, "Shop")
        return base_counts[-1]

    assert read_ledger(url, count_bases_and_add_base) == 3
    assert base_counts == [2, 3]
