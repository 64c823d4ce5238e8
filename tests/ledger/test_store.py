"""The store: every move from every state, and nothing half done."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from connector.errors import ConfigurationError, LedgerError
from connector.ledger import (
    Base,
    Intent,
    Ledger,
    StaleMoveError,
    count_doubts_elsewhere,
    find_or_add_base,
    learn_base,
    open_ledger,
    start_run,
)
from connector.states import TRANSITIONS, Event, State

RUN = 1
IDENTITY = b"i" * 16
INTENT = Intent(IDENTITY, b"f" * 8, b'{"Subscriber":{}}')

MOVES: dict[tuple[State, Event], Callable[[Ledger, Base], object]] = {
    (State.NONE, Event.INTENDED): lambda ledger, base: ledger.mark_intended(base, RUN, [INTENT]),
    (State.NONE, Event.FOUND): lambda ledger, base: ledger.record_listed(base, "email", [(IDENTITY, 7)]),
    (State.SENDING, Event.ANSWERED): lambda ledger, base: ledger.mark_answered(base, [(IDENTITY, 7)]),
    (State.SENDING, Event.REFUSED): lambda ledger, base: ledger.mark_refused(
        base, State.SENDING, [(IDENTITY, 422, "no")]
    ),
    (State.SENDING, Event.NOT_SENT): lambda ledger, base: ledger.mark_not_sent(base, [IDENTITY]),
    (State.SENDING, Event.LOST): lambda ledger, base: ledger.mark_lost(base, [IDENTITY]),
    (State.SENDING, Event.DIED): lambda ledger, base: ledger.mark_died(),
    (State.UNKNOWN, Event.FOUND): lambda ledger, base: ledger.mark_found(base, State.UNKNOWN, [(IDENTITY, 7)]),
    (State.UNKNOWN, Event.ABSENT): lambda ledger, base: ledger.mark_absent(base, RUN, [INTENT]),
    (State.UNKNOWN, Event.WITHHELD): lambda ledger, base: ledger.mark_withheld(base, [IDENTITY]),
    (State.UNKNOWN, Event.REFUSED): lambda ledger, base: ledger.mark_refused(
        base, State.UNKNOWN, [(IDENTITY, 200, "no")]
    ),
    (State.HELD, Event.FOUND): lambda ledger, base: ledger.mark_found(base, State.HELD, [(IDENTITY, 7)]),
    (State.REJECTED, Event.INTENDED): lambda ledger, base: ledger.mark_intended_again(base, RUN, [INTENT]),
    (State.REJECTED, Event.FOUND): lambda ledger, base: ledger.mark_found(base, State.REJECTED, [(IDENTITY, 7)]),
}
TOLERANT = {(State.NONE, Event.FOUND), (State.SENDING, Event.DIED)}  # they speak of many entries: those that fit move

PATHS: dict[State, tuple[Event, ...]] = {
    State.NONE: (),
    State.SENDING: (Event.INTENDED,),
    State.UNKNOWN: (Event.INTENDED, Event.LOST),
    State.HELD: (Event.INTENDED, Event.LOST, Event.WITHHELD),
    State.CONFIRMED: (Event.INTENDED, Event.ANSWERED),
    State.REJECTED: (Event.INTENDED, Event.REFUSED),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as opened:
        begin_run(opened)
        yield opened


def begin_run(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        assert start_run(connection, "run-1", "job", "import", 0.0) == RUN


def read_all(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("ledger.db*"))


def add_base(ledger: Ledger, service_id: int | None = 7, name: str | None = None) -> Base:
    with ledger.transaction() as connection:
        return find_or_add_base(connection, "account", service_id, name)


def bring_to(ledger: Ledger, base: Base, state: State) -> None:
    at = State.NONE
    for event in PATHS[state]:
        with ledger.transaction():
            MOVES[at, event](ledger, base)
        at = TRANSITIONS[at, event]


def read_state(ledger: Ledger, base: Base) -> State:
    with ledger.transaction():
        entry = ledger.find_entries(base, [IDENTITY]).get(IDENTITY)
    return entry.state if entry else State.NONE


def test_the_store_has_a_function_for_every_move_of_the_table_and_no_other() -> None:
    assert MOVES.keys() == TRANSITIONS.keys()


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("move", MOVES, ids=lambda move: f"{move[0].name}-{move[1].name}")
def test_a_move_goes_where_the_table_says_or_raises_and_changes_nothing(
    ledger: Ledger, state: State, move: tuple[State, Event]
) -> None:
    base = add_base(ledger)
    bring_to(ledger, base, state)
    if state is move[0]:
        with ledger.transaction():
            MOVES[move](ledger, base)
        assert read_state(ledger, base) is TRANSITIONS[move]
    elif move in TOLERANT:
        with ledger.transaction():
            MOVES[move](ledger, base)
        is_found = move[1] is Event.FOUND and state in (State.REJECTED, State.HELD)
        assert read_state(ledger, base) is (State.CONFIRMED if is_found else state)
    else:
        with pytest.raises(StaleMoveError), ledger.transaction():
            MOVES[move](ledger, base)
        assert read_state(ledger, base) is state


def test_one_entry_out_of_step_undoes_the_whole_transaction(ledger: Ledger) -> None:
    base = add_base(ledger)
    bring_to(ledger, base, State.SENDING)
    with pytest.raises(StaleMoveError, match="1 of 2 entries"), ledger.transaction():
        ledger.mark_lost(base, [IDENTITY, b"j" * 16])
    assert read_state(ledger, base) is State.SENDING


def test_the_body_goes_when_the_state_is_final(tmp_path: Path) -> None:
    secret = Intent(IDENTITY, b"f" * 8, b"somebody@example.com" * 20)
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        begin_run(ledger)
        base = add_base(ledger)
        with ledger.transaction():
            ledger.mark_intended(base, RUN, [secret])
        assert b"somebody" in read_all(tmp_path)
        with ledger.transaction():
            ledger.mark_answered(base, [(IDENTITY, 7)])
    assert b"somebody" not in read_all(tmp_path)


def test_unknown_entries_come_back_with_body_attempts_and_run(ledger: Ledger) -> None:
    base = add_base(ledger)
    bring_to(ledger, base, State.UNKNOWN)
    with ledger.transaction():
        (entry,) = ledger.find_unknown(base)
    assert (entry.identity, entry.body, entry.attempts, entry.run_id) == (IDENTITY, INTENT.body, 1, "run-1")


def test_more_identities_than_one_statement_takes_are_all_found(ledger: Ledger) -> None:
    base = add_base(ledger)
    identities = [number.to_bytes(16, "big") for number in range(2500)]
    with ledger.transaction():
        ledger.record_listed(base, "email", [(identity, 1) for identity in identities])
        assert ledger.find_entries(base, identities).keys() == set(identities)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET state = 4",
        "UPDATE entry SET state = 9",
        "UPDATE entry SET body = NULL",
        "UPDATE entry SET identity = x'00'",
        "UPDATE entry SET state = 5, body = NULL",
        "UPDATE entry SET subscriber_id = 1",
    ],
)
def test_the_database_itself_refuses_what_no_entry_can_be(ledger: Ledger, statement: str) -> None:
    base = add_base(ledger)
    bring_to(ledger, base, State.SENDING)
    with pytest.raises(LedgerError, match="CHECK constraint"), ledger.transaction() as connection:
        connection.exec_driver_sql(statement)


def test_a_base_is_one_line_whether_asked_for_by_id_or_by_the_name_it_turned_out_to_have(ledger: Ledger) -> None:
    by_name = add_base(ledger, None, "News")
    with ledger.transaction() as connection:
        learned = learn_base(connection, by_name, 7, "News")
    assert add_base(ledger, 7) == learned
    assert add_base(ledger, None, "News") == learned
    assert learned.service_id == 7


@pytest.mark.parametrize(
    ("under_name", "under_id", "expected"),
    [
        (State.UNKNOWN, State.NONE, State.UNKNOWN),
        (State.NONE, State.CONFIRMED, State.CONFIRMED),
        (State.UNKNOWN, State.CONFIRMED, State.CONFIRMED),
        (State.UNKNOWN, State.REJECTED, State.UNKNOWN),
        (State.REJECTED, State.UNKNOWN, State.UNKNOWN),
        (State.CONFIRMED, State.UNKNOWN, State.CONFIRMED),
    ],
)
def test_learning_the_id_of_a_name_brings_both_lines_together(
    ledger: Ledger, under_name: State, under_id: State, expected: State
) -> None:
    by_name, by_id = add_base(ledger, None, "News"), add_base(ledger, 7)
    bring_to(ledger, by_name, under_name)
    bring_to(ledger, by_id, under_id)
    with ledger.transaction() as connection:
        learned = learn_base(connection, by_name, 7, "News")
    assert read_state(ledger, learned) is expected


def test_bases_of_two_accounts_are_two(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        one, other = (find_or_add_base(connection, account, 7, None) for account in ("one", "other"))
    assert one.key != other.key


def test_an_entry_costs_about_a_hundred_bytes_once_settled(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_ledger(f"sqlite:///{path}") as ledger:
        begin_run(ledger)
        base = add_base(ledger)
        for start in range(0, 20_000, 1000):
            identities = [(number * 2654435761 % 2**64).to_bytes(16, "big") for number in range(start, start + 1000)]
            with ledger.transaction():
                ledger.mark_intended(base, RUN, [Intent(each, b"f" * 8, b"{}" * 150) for each in identities])
            with ledger.transaction():
                ledger.mark_answered(base, [(each, start) for each in identities])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
    assert path.stat().st_size / 20_000 < 100


def test_sqlite_is_set_up_to_keep_what_it_says(ledger: Ledger) -> None:
    pragmas = {
        name: ledger.connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("journal_mode", "synchronous", "secure_delete", "locking_mode")
    }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "locking_mode": "exclusive"}


def test_a_name_that_several_bases_bear_is_refused(ledger: Ledger) -> None:
    for service_id in (1, 2):
        base = add_base(ledger, service_id)
        with ledger.transaction() as connection:
            learn_base(connection, base, service_id, "News")
    with pytest.raises(ConfigurationError, match="ids 1, 2"):
        add_base(ledger, None, "News")


@pytest.mark.parametrize("state", [State.UNKNOWN, State.HELD])
def test_doubts_under_a_line_that_may_be_the_same_base_are_counted(ledger: Ledger, state: State) -> None:
    by_name, by_id = add_base(ledger, None, "News"), add_base(ledger, 7)
    bring_to(ledger, by_name, state)
    with ledger.transaction() as connection:
        assert count_doubts_elsewhere(connection, by_id) == 1
        assert count_doubts_elsewhere(connection, by_name) == 0
        whole = learn_base(connection, by_name, 7, "News")
        assert count_doubts_elsewhere(connection, whole) == 0


def test_an_unknown_says_what_its_identity_is_of(ledger: Ledger) -> None:
    base = add_base(ledger)
    with ledger.transaction():
        ledger.mark_intended(base, RUN, [Intent(IDENTITY, b"f" * 8, b"{}", "client_user_id")])
        ledger.mark_lost(base, [IDENTITY])
        assert [entry.field for entry in ledger.find_unknown(base)] == ["client_user_id"]
