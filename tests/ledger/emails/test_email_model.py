"""The ledger of emails against its model: whatever is done to both, in whatever order, both hold the same (Hypothesis).

The model is a dictionary, written from the table of transitions and knowing no SQL. Beside it stands what matters: how
often each recipient's email may have left.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from connector.ledger import Campaign, EmailEntry, EmailLog, StaleMoveError, open_emails
from connector.states import EMAIL, EmailEvent, EmailState
from tests.ledger.emails.moves import add_campaign
from tests.ledger.places import add_schema

IN_SQLITE = settings(max_examples=settings().max_examples // 3)
IN_POSTGRESQL = settings(max_examples=IN_SQLITE.max_examples // 3)

PEOPLE = [bytes([number]) * 16 for number in (0, 1, 254, 255)]
NAMES = ["welcome", "farewell"]
S, E = EmailState, EmailEvent


@dataclass(frozen=True)
class Line:
    """One email as the model has it."""

    entry: EmailEntry
    address: str | None


Lines = dict[tuple[str, bytes], Line]


@dataclass(frozen=True)
class Step:
    """One move of the store, and what it makes of a line (None: the line goes)."""

    event: EmailEvent
    left: EmailState
    make: Callable[[EmailLog, Campaign, Sequence[bytes], int], None]
    change: Callable[[int], Callable[[Line], Line | None]]


def intend(number: int) -> Callable[[Line], Line]:
    return lambda _: Line(EmailEntry(S.SENDING, None, None, None, None, None, f"run-{number}"), f"{number}@example.com")


def accept(number: int) -> Callable[[Line], Line]:
    return lambda line: Line(
        replace(line.entry, state=S.SENT, request_id=number, message_id=f"<{number}>", sent_at=number / 2), None
    )


def refuse(number: int) -> Callable[[Line], Line]:
    return lambda line: replace(line, entry=replace(line.entry, state=S.REFUSED, status=422, words=f"no {number}"))


def lose(_: int) -> Callable[[Line], Line]:
    return lambda line: replace(line, entry=replace(line.entry, state=S.UNKNOWN))


def go(_: int) -> Callable[[Line], None]:
    return lambda _: None


STEPS = (
    Step(
        E.INTENDED,
        S.NONE,
        lambda log, at, who, n: log.mark_intended(at, f"run-{n}", [(each, f"{n}@example.com") for each in who], at=n),
        intend,
    ),
    Step(
        E.ACCEPTED,
        S.SENDING,
        lambda log, at, who, n: log.mark_accepted(at, [(each, n, f"<{n}>", n / 2) for each in who]),
        accept,
    ),
    Step(
        E.REFUSED,
        S.SENDING,
        lambda log, at, who, n: log.mark_refused(at, [(each, 422, f"no {n}") for each in who]),
        refuse,
    ),
    Step(E.NOT_SENT, S.SENDING, lambda log, at, who, _: log.mark_not_sent(at, who), go),
    Step(E.LOST, S.SENDING, lambda log, at, who, _: log.mark_lost(at, who), lose),
)
OF_ALL = {(S.SENDING, E.DIED), (S.REFUSED, E.ALLOWED)}  # they speak of a whole campaign
NOBODY = Line(EmailEntry(S.NONE, None, None, None, None, None, ""), None)


class EmailMachine(RuleBasedStateMachine):
    """A ledger of emails, opened anew now and then, beside the model of it."""

    next_url: ClassVar[Callable[[], str]]

    def __init__(self) -> None:
        super().__init__()
        self.url = type(self).next_url()
        self.lines: Lines = {}
        self.may_have_left: Counter[tuple[str, bytes]] = Counter()
        self.opened = ExitStack()
        self.open()

    def open(self) -> None:
        self.log = self.opened.enter_context(open_emails(self.url))
        self.campaigns = {name: add_campaign(self.log, name) for name in NAMES}

    def teardown(self) -> None:
        self.opened.close()

    @rule(
        step=st.sampled_from(STEPS),
        name=st.sampled_from(NAMES),
        who=st.lists(st.sampled_from(PEOPLE), min_size=1, max_size=3, unique=True),
        is_aimed=st.booleans(),
        number=st.integers(0, 2**53),
    )
    def move(self, step: Step, name: str, who: list[bytes], is_aimed: bool, number: int) -> None:
        fitting = [each for each in PEOPLE if self.get(name, each).entry.state is step.left]
        who = fitting[: len(who)] if is_aimed and fitting else who
        if not all(each in fitting for each in who):
            with pytest.raises(StaleMoveError), self.log.transaction():
                step.make(self.log, self.campaigns[name], who, number)
            return
        with self.log.transaction():
            step.make(self.log, self.campaigns[name], who, number)
        for each in who:
            self.put(name, each, step.change(number)(self.get(name, each)))
            self.may_have_left[name, each] += {E.INTENDED: 1, E.NOT_SENT: -1, E.REFUSED: -1}.get(step.event, 0)

    def get(self, name: str, who: bytes) -> Line:
        return self.lines.get((name, who), NOBODY)

    def put(self, name: str, who: bytes, line: Line | None) -> None:
        self.lines.pop((name, who), None)
        if line is not None:
            self.lines[name, who] = line

    @rule(name=st.sampled_from(NAMES))
    def die(self, name: str) -> None:
        """As the next run finds it, in a process of its own."""
        self.opened.close()
        self.open()
        with self.log.hold_campaign("account", name) as campaign, self.log.transaction():
            assert campaign == self.campaigns[name]
            died = [who for who in PEOPLE if self.get(name, who).entry.state is S.SENDING]
            assert self.log.mark_died(campaign) == len(died)
        for who in died:
            self.put(name, who, lose(0)(self.get(name, who)))

    @rule(name=st.sampled_from(NAMES))
    def allow(self, name: str) -> None:
        refused = [who for who in PEOPLE if self.get(name, who).entry.state is S.REFUSED]
        with self.log.transaction():
            self.log.mark_allowed(self.campaigns[name], refused)
        for who in refused:
            self.put(name, who, None)

    @invariant()
    def no_email_may_have_left_twice(self) -> None:
        assert set(self.may_have_left.values()) <= {0, 1}

    @invariant()
    def the_ledger_holds_and_tells_what_the_model_holds(self) -> None:
        with self.log.transaction():
            for name, campaign in self.campaigns.items():
                mine = {who: line for (at, who), line in self.lines.items() if at == name}
                assert self.log.find(campaign, PEOPLE) == {who: line.entry for who, line in mine.items()}
                states = Counter(line.entry.state for line in mine.values())
                assert self.log.count_by_state(campaign) == {s: states[s] for s in S if s is not S.NONE}
                for state, read in ((S.UNKNOWN, self.log.read_unsettled), (S.REFUSED, self.log.read_refused)):
                    assert {(each.recipient, each.address, each.words) for each in read(campaign)} == {
                        (who, line.address, line.entry.words) for who, line in mine.items() if line.entry.state is state
                    }


def test_the_model_knows_every_move_of_the_table() -> None:
    assert {(step.left, step.event) for step in STEPS} | OF_ALL == EMAIL.transitions.keys()


def test_emails_in_sqlite_are_what_their_model_is(tmp_path: Path) -> None:
    numbers = count()

    class InSqlite(EmailMachine):
        next_url = staticmethod(lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db")

    run_state_machine_as_test(InSqlite, settings=IN_SQLITE)


def test_emails_in_postgresql_are_what_their_model_is(postgres: str) -> None:
    class InPostgresql(EmailMachine):
        next_url = staticmethod(lambda: add_schema(postgres))

    run_state_machine_as_test(InPostgresql, settings=IN_POSTGRESQL)
