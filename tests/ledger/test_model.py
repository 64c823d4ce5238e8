"""The store against its model: whatever is done to both, in whatever order, both hold the same (Hypothesis)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import Connection

from connector.errors import ConfigurationError
from connector.ledger import (
    Base,
    Entry,
    Ledger,
    RefusalKind,
    StaleMoveError,
    find_or_add_base,
    learn_base,
    mark_refusal_checked,
    mark_refusal_created,
    open_ledger,
    read_refusal_kinds,
    record_refusal,
    start_run,
)
from connector.ledger.schema import HOW
from connector.states import ENTRY, State
from tests.ledger.chances import (
    KINDS,
    PEOPLE,
    Planned,
    names,
    people,
    planned,
    service_ids,
    tellings,
)
from tests.ledger.model import (
    BY_THEMSELVES,
    STEPS,
    Entries,
    Line,
    StaleError,
    Telling,
    die,
    list_people,
    merge,
    take,
)
from tests.ledger.places import add_schema

IN_SQLITE = settings(max_examples=settings().max_examples // 3)
IN_POSTGRESQL = settings(max_examples=IN_SQLITE.max_examples // 3)  # each step costs three times as much


class RolledBackError(Exception):
    """Something else went wrong in the middle of a transaction."""


class LedgerMachine(RuleBasedStateMachine):
    """A ledger, opened anew now and then, beside the model of it."""

    next_url: ClassVar[Callable[[], str]]  # where the next example's ledger is to be kept

    def __init__(self) -> None:
        super().__init__()
        self.url = type(self).next_url()
        self.entries: Entries = {}
        self.bases: dict[int, Base] = {}
        self.kinds: dict[str, RefusalKind] = {}
        self.opened = ExitStack()
        self.open()

    def open(self) -> None:
        self.ledger: Ledger = self.opened.enter_context(open_ledger(self.url))
        with self.ledger.transaction() as connection:
            run_id = f"run-{connection.exec_driver_sql('SELECT count(*) FROM run').scalar_one()}"
            self.run_key = start_run(connection, run_id, "job", "import", 0.0)

    def teardown(self) -> None:
        self.opened.close()

    @contextmanager
    def broken_transaction(self) -> Iterator[Connection]:
        """A transaction at whose end something else goes wrong."""
        with self.ledger.transaction() as connection:
            yield connection
            raise RolledBackError

    def choose_base(self, number: int) -> Base:
        return self.bases[sorted(self.bases)[number % len(self.bases)]]

    # Bases

    @rule(name=names)
    def name_a_base(self, name: str) -> None:
        known = [base for base in self.bases.values() if base.name == name]
        with_id = [base for base in known if base.service_id is not None]
        if len(with_id) > 1:
            with pytest.raises(ConfigurationError), self.ledger.transaction() as connection:
                find_or_add_base(connection, "account", None, name)
            return
        with self.ledger.transaction() as connection:
            found = find_or_add_base(connection, "account", None, name)
        assert (found in (with_id or known)) if known else (found.key not in self.bases)
        self.bases[found.key] = found

    @rule(service_id=service_ids)
    def give_the_id_of_a_base(self, service_id: int) -> None:
        known = [base for base in self.bases.values() if base.service_id == service_id]
        with self.ledger.transaction() as connection:
            found = find_or_add_base(connection, "account", service_id, None)
        assert [found] == known if known else found.key not in self.bases
        self.bases[found.key] = found

    @precondition(lambda self: self.bases)
    @rule(number=st.integers(0, 9), service_id=service_ids, name=names, is_undone=st.booleans())
    def learn_what_base_it_is(self, number: int, service_id: int, name: str, is_undone: bool) -> None:
        base = self.choose_base(number)
        if base.service_id not in (None, service_id) or (base.service_id is None and base.name != name):
            return  # the service never says so of it
        if is_undone:
            with pytest.raises(RolledBackError), self.broken_transaction() as connection:
                learn_base(connection, base, service_id, name)
            return
        with self.ledger.transaction() as connection:
            learned = learn_base(connection, base, service_id, name)
        assert (learned.service_id, learned.name) == (service_id, name)
        for same in [key for key, each in self.bases.items() if each.service_id is None and each.name == name]:
            self.entries = merge(self.entries, same, learned.key)
            del self.bases[same]
            self.kinds = {
                kind: replace(each, base_key=learned.key) if each.base_key == same else each
                for kind, each in self.kinds.items()
            }
        self.bases[learned.key] = learned

    # Entries

    @precondition(lambda self: self.bases)
    @rule(moves=st.lists(planned, min_size=1, max_size=3), is_undone=st.integers(0, 4).map(lambda each: each == 0))
    def make_moves_in_one_transaction(self, moves: list[Planned], is_undone: bool) -> None:
        expected = self.entries
        error: type[Exception] | None = RolledBackError if is_undone else None
        calls: list[tuple[Planned, Base, Sequence[bytes], Telling]] = []
        for move in moves:
            base, told = self.choose_base(move.base), replace(move.telling, run_key=self.run_key)
            who = self.choose_people(expected, base.key, move)
            calls.append((move, base, who, told))
            try:
                expected = take(expected, move.step, base.key, who, told)
            except StaleError:
                error = StaleMoveError
                break
        if error is None:
            with self.ledger.transaction():
                self.make(calls)
            self.entries = expected
        else:
            with pytest.raises(error), self.broken_transaction():
                self.make(calls)

    def choose_people(self, entries: Entries, key: int, move: Planned) -> Sequence[bytes]:
        """Those the move names or, if it is aimed, as many of whom it can be made of."""
        fitting = [each for each in PEOPLE if entries.get((key, each), Line(State.NONE)).state is move.step.left]
        return fitting[: len(move.people)] if move.is_aimed and fitting else move.people

    def make(self, calls: list[tuple[Planned, Base, Sequence[bytes], Telling]]) -> None:
        for move, base, who, told in calls:
            move.step.make(self.ledger, base, who, told)

    @precondition(lambda self: self.bases)
    @rule(number=st.integers(0, 9), who=st.lists(st.tuples(st.sampled_from(PEOPLE), st.integers(1, 9)), max_size=6))
    def see_a_listing(self, number: int, who: list[tuple[bytes, int]]) -> None:
        base = self.choose_base(number)
        with self.ledger.transaction():
            self.ledger.record_listed(base, "email", who)
        self.entries = list_people(self.entries, base.key, who)

    @precondition(lambda self: self.bases)
    @rule(number=st.integers(0, 9), who=people, telling=tellings, is_equal=st.booleans())
    def compare_rows_with_the_service(self, number: int, who: list[bytes], telling: Telling, is_equal: bool) -> None:
        base, told = self.choose_base(number), [(each, telling.fingerprint) for each in who]

        def record() -> None:
            with self.ledger.transaction():
                if is_equal:
                    self.ledger.record_equal(base, told)
                else:
                    self.ledger.record_reported(base, told, 5.0)

        lines = {(base.key, each): self.entries.get((base.key, each), Line(State.NONE)) for each in who}
        if any(line.state is not State.CONFIRMED for line in lines.values()):
            with pytest.raises(StaleMoveError):
                record()
            return
        record()
        for at, line in lines.items():
            if is_equal:
                lines[at] = replace(line, fingerprint=telling.fingerprint, reported=None, reported_at=None)
            else:
                lines[at] = replace(line, reported=telling.fingerprint, reported_at=5.0)
        self.entries = {**self.entries, **lines}

    @rule(is_killed=st.booleans())
    def open_it_again(self, is_killed: bool) -> None:
        """As the next process does; of one that died in the middle of a transaction nothing of that is left."""
        if is_killed and self.bases:
            with pytest.raises(RolledBackError), self.broken_transaction():
                self.leave_in_the_middle(self.choose_base(0))
        self.opened.close()
        self.open()
        with self.ledger.transaction():
            died = self.ledger.mark_died()
        assert died == sum(line.state is State.SENDING for line in self.entries.values())
        self.entries = die(self.entries)

    def leave_in_the_middle(self, base: Base) -> None:
        self.ledger.record_listed(base, "email", [(each, 1) for each in PEOPLE])
        self.opened.close()

    # Refusals

    @precondition(lambda self: self.bases)
    @rule(number=st.integers(0, 9), kind=st.sampled_from(KINDS), who=st.sampled_from(PEOPLE))
    def meet_a_refusal(self, number: int, kind: str, who: bytes) -> None:
        base = self.choose_base(number)
        with self.ledger.transaction() as connection:
            record_refusal(connection, base, kind, who)
        kept = kind.replace("\0", r"\x00")
        has_created = kind in self.kinds and self.kinds[kind].has_created
        self.kinds[kind] = RefusalKind(kept, base.key, who, has_created, is_checked=False)

    @rule(kind=st.sampled_from(KINDS), has_created=st.booleans())
    def check_a_refusal(self, kind: str, has_created: bool) -> None:
        with self.ledger.transaction() as connection:
            mark_refusal_checked(connection, "account", kind)
            if has_created:
                mark_refusal_created(connection, "account", kind)
        if kind in self.kinds:
            known = self.kinds[kind]
            self.kinds[kind] = replace(known, is_checked=True, has_created=known.has_created or has_created)

    # What must always hold

    @invariant()
    def the_ledger_holds_and_tells_what_the_model_holds(self) -> None:
        with self.ledger.transaction() as connection:
            bases = connection.exec_driver_sql("SELECT base_key, account, service_id, name FROM base").all()
            rows = connection.exec_driver_sql(
                "SELECT base_key, identity, state, how, subscriber_id, fingerprint, body, status, message, attempts, "
                "run_key, reported, reported_at FROM entry"
            ).all()
            kinds = read_refusal_kinds(connection, "account")
            for base in self.bases.values():
                self.check_answers(base)
        assert {row[0]: Base(*row) for row in bases} == self.bases
        assert {(row[0], row[1]): Line(State(row[2]), *row[3:]) for row in rows} == self.entries
        assert {each.kind: each for each in kinds} == {each.kind: self.tell(each) for each in self.kinds.values()}

    def tell(self, kind: RefusalKind) -> RefusalKind:
        """The kind with what its identity's line tells: whether a listing showed it, and that its run is over."""
        line = self.entries.get((kind.base_key, kind.identity), Line(State.NONE))
        is_over = line.run_key is not None and line.run_key < self.run_key  # the next one began at 0.0
        return replace(kind, is_found=line.how == HOW["found"], ended_at=0.0 if is_over else None)

    def check_answers(self, base: Base) -> None:
        mine = {at[1]: line for at, line in sorted(self.entries.items()) if at[0] == base.key}
        assert self.ledger.find_entries(base, PEOPLE) == {
            identity: Entry(
                line.state,
                line.subscriber_id,
                line.fingerprint,
                line.status,
                line.message,
                line.attempts,
                line.reported,
                line.reported_at,
            )
            for identity, line in mine.items()
        }
        for state in (State.UNKNOWN, State.HELD, State.REJECTED):
            unfinished = [
                (each.identity, each.body, each.attempts) for each in self.ledger.find_unfinished(base, state)
            ]
            assert unfinished == [(who, line.body, line.attempts) for who, line in mine.items() if line.state is state]
        confirmed = [identity for identity, line in mine.items() if line.state is State.CONFIRMED]
        round_from = [each for each in confirmed if each >= PEOPLE[2]] + [
            each for each in confirmed if each < PEOPLE[2]
        ]
        assert [each.identity for each in self.ledger.find_confirmed(base, PEOPLE[2], 4)] == round_from[:4]


def test_the_model_knows_every_move_of_the_table() -> None:
    assert {(step.left, step.event) for step in STEPS} | BY_THEMSELVES == ENTRY.transitions.keys()


def test_a_ledger_in_sqlite_is_what_its_model_is(tmp_path: Path) -> None:
    numbers = count()

    class InSqlite(LedgerMachine):
        next_url = staticmethod(lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db")

    run_state_machine_as_test(InSqlite, settings=IN_SQLITE)


def test_a_ledger_in_postgresql_is_what_its_model_is(postgres: str) -> None:
    class InPostgresql(LedgerMachine):
        next_url = staticmethod(lambda: add_schema(postgres))

    run_state_machine_as_test(InPostgresql, settings=IN_POSTGRESQL)
