"""Tests of the rule of absence (architecture 4.5): the settler runs on a virtual clock and with fake look-ups."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from connector.errors import RunAborted
from connector.ledger.entries import Intent, Ledger, Transition
from connector.ledger.records import read_largest_lag, record_lag, start_run
from connector.ledger.store import Base
from connector.listing.access import ConfirmedCreate, KeyGroup, ListAccess, LookupKey, LookupResult
from connector.load import resolution
from connector.load.candidates import Candidate
from connector.load.lookups import LookupPart
from connector.load.outcomes import Outcomes
from connector.load.refusals import EarlierRefusals
from connector.load.resolution import Settler
from connector.load.session import RunMode
from connector.load.unresolved import UnresolvedCreate
from connector.sender import FetchItems
from connector.service.wire import encode_subscriber
from connector.states import Event, State
from connector.subscribers.identity import digest_identity
from tests.load.sessions import ReadableLedgerWriter, VirtualTime, build_session, open_ledger_writer

ANN_IDENTITY = digest_identity("email", "ann@x.org")
QUIET_PERIOD_S = 30.0
CONFIRMED_CREATE_ID = 99


@dataclass
class FakeLookUp:
    """The result of one fake look-up of Ann."""

    found_ids: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    is_complete: bool = True  # the look-up can prove that Ann is absent
    is_confirmed_create_seen: bool = True


EMPTY_LOOK_UP = FakeLookUp()
INCOMPLETE_LOOK_UP = FakeLookUp(is_complete=False)
LAGGING_LOOK_UP = FakeLookUp(is_confirmed_create_seen=False)
FOUND_LOOK_UP = FakeLookUp({ANN_IDENTITY: (5,)})


@dataclass
class ObservedSettler(VirtualTime):
    """A settler on its own virtual clock. Its look-ups come from a list, and its creates are only recorded."""

    ledger: Ledger = field(kw_only=True)
    base: Base = field(kw_only=True)
    fake_look_ups: list[FakeLookUp] = field(default_factory=list)
    look_up_times: list[float] = field(default_factory=list)
    resent_candidates: list[Candidate] = field(default_factory=list)
    ignores_case_of_look_ups: list[bool] = field(default_factory=list)
    body: bytes = encode_subscriber({"base_id": 7, "email": "ann@x.org"})
    other_confirmed_creates: tuple[ConfirmedCreate, ...] = ()  # every look-up shows these confirmed creates
    loss_count: int = 0  # the number of lost batches before the first answered batch

    def settle(
        self, *, create_confirmed_at: float | None = None, unresolved_create: UnresolvedCreate | None = None
    ) -> None:
        asyncio.run(self._settle(create_confirmed_at, unresolved_create))

    async def _settle(self, create_confirmed_at: float | None, unresolved_create: UnresolvedCreate | None) -> None:
        # No request is sent, because the look-ups and the creates are fakes. So the session has no client.
        ledger_writer = ReadableLedgerWriter(self.ledger, self.base, 1)
        session = build_session(None, ledger_writer, virtual_time=self, quiet_period_s=QUIET_PERIOD_S)
        list_access = session.list_access
        if create_confirmed_at is not None:
            base_id = self.base.service_id
            list_access.confirmed_creates.append(
                ConfirmedCreate(create_confirmed_at, CONFIRMED_CREATE_ID, "email", "confirmed@x.org", base_id=base_id)
            )
        list_access.confirmed_creates.extend(self.other_confirmed_creates)
        list_access.state.activity_values_shown_by_sweep.add(False)  # the list shows inactive subscribers
        self.tally, self.outcomes = session.tally, Outcomes(session, RunMode.LOAD)
        if unresolved_create is not None:
            self.outcomes.add_unresolved_create(ANN_IDENTITY, unresolved_create)
        settler = Settler(session, RunMode.LOAD, self.outcomes, EarlierRefusals(session), self._create_candidates)
        await settler.read_lag()
        # When no fake look-up is left, `self.look_up` stops the run.
        with pytest.MonkeyPatch.context() as monkeypatch, suppress(RunAborted):
            monkeypatch.setattr(resolution, "look_up_keys", self._look_up_all)
            await settler.settle()

    async def _look_up_all(self, groups: Sequence[KeyGroup]) -> AsyncIterator[LookupPart]:
        for group in groups:
            yield LookupPart(group.list_access, group.keys, self.look_up(group.list_access, group.keys))

    def look_up(self, access: ListAccess, keys: Sequence[LookupKey]) -> LookupResult:
        assert [replace(key, ignores_case=False) for key in keys] == [LookupKey(ANN_IDENTITY, "email", "ann@x.org")]
        self.ignores_case_of_look_ups.append(keys[0].ignores_case)
        if not self.fake_look_ups:
            access.stop.request_stop("the test has no more look-ups")
            return build_result(INCOMPLETE_LOOK_UP, self.now_s, access)
        self.look_up_times.append(self.now_s)
        return build_result(self.fake_look_ups.pop(0), self.now_s, access)

    async def _create_candidates(self, fetch: FetchItems[Candidate]) -> None:
        while batch := await fetch(10):
            self.resent_candidates += batch
            is_lost, self.loss_count = self.loss_count > 0, self.loss_count - 1
            with self.ledger.transaction():
                self.ledger.mark_absent(self.base, 1, [candidate.intent for candidate in batch])
                if is_lost:
                    self.ledger.mark_lost(self.base, [candidate.intent.identity for candidate in batch])
                else:
                    self.ledger.mark_answered(self.base, [(candidate.intent.identity, 7) for candidate in batch])
            transition = (
                Transition(Event.LOST, status=500, message="oops")
                if is_lost
                else Transition(Event.ANSWERED, subscriber_id=7)
            )
            for candidate in batch:
                self.outcomes.record_result(candidate, transition)

    @property
    def state(self) -> State:
        with self.ledger.transaction():
            return self.ledger.find_entries(self.base, [ANN_IDENTITY])[ANN_IDENTITY].state


def build_result(fake_look_up: FakeLookUp, now_s: float, access: ListAccess) -> LookupResult:
    earlier_confirmed_creates = frozenset(create for create in access.confirmed_creates if create.confirmed_at < now_s)
    visible_confirmed_creates = (
        earlier_confirmed_creates
        if fake_look_up.is_confirmed_create_seen
        else frozenset(create for create in earlier_confirmed_creates if create.subscriber_id != CONFIRMED_CREATE_ID)
    )
    lag_s = max(
        (now_s - create.confirmed_at for create in earlier_confirmed_creates - visible_confirmed_creates), default=0.0
    )
    absent_identities = (
        frozenset({ANN_IDENTITY}) - fake_look_up.found_ids.keys() if fake_look_up.is_complete else frozenset[bytes]()
    )
    return LookupResult(fake_look_up.found_ids, absent_identities, visible_confirmed_creates, lag_s, now_s)


@pytest.fixture
def observed_settler(tmp_path: Path) -> Iterator[ObservedSettler]:
    with open_ledger_writer(tmp_path) as ledger_writer:
        ledger, base = ledger_writer.ledger, ledger_writer.base
        with ledger.transaction():
            ledger.mark_intended(base, 1, [Intent(ANN_IDENTITY, b"f" * 8, ObservedSettler.body)])
            ledger.mark_lost(base, [ANN_IDENTITY])
        yield ObservedSettler(ledger=ledger, base=base)


LOOK_UP_CASES: dict[str, tuple[list[FakeLookUp], float | None, float | None, int, list[Event]]] = {
    "an incomplete look-up that finds the subscriber confirms the entry": (
        [FakeLookUp({ANN_IDENTITY: (5,)}, is_complete=False)], None, None, 1, [Event.FOUND],
    ),
    "two complete look-ups after the confirmed create prove the absence": (
        [EMPTY_LOOK_UP] * 3, 1001.0, None, 3, [],
    ),
    "the quiet period begins at the end of the attempt": ([EMPTY_LOOK_UP] * 2, 991.0, 960.0, 2, []),
    "the subscriber is not sent again if the last look-up finds the subscriber": (
        [EMPTY_LOOK_UP, EMPTY_LOOK_UP, FOUND_LOOK_UP], 1001.0, None, 3, [Event.FOUND],
    ),
    "two complete look-ups prove nothing if an incomplete look-up lies between them": (
        [EMPTY_LOOK_UP, EMPTY_LOOK_UP, INCOMPLETE_LOOK_UP, EMPTY_LOOK_UP, EMPTY_LOOK_UP], 1001.0, None, 5, [],
    ),
    "incomplete look-ups leave the entry unknown": ([INCOMPLETE_LOOK_UP] * 10, 1001.0, None, 5, [Event.LOST]),
    "look-ups that do not show the confirmed create prove no absence": (
        [*[LAGGING_LOOK_UP] * 4, EMPTY_LOOK_UP], 1001.0, None, 5, [],
    ),
    # The look-up at 1030 s does not show the confirmed create of 950 s, so the lag is 80 s. The settler finds the entry
    # at 1000 s. The first look-up after 1000 s + 2 × 80 s is at 1180 s.
    "without a confirmed create after the attempt, twice the lag must pass": (
        [LAGGING_LOOK_UP, LAGGING_LOOK_UP, *[EMPTY_LOOK_UP] * 10], 950.0, None, 7, [],
    ),
}  # fmt: skip
"""Each case: the look-ups, the time of the confirmed create, the end of the attempt, the expected number of look-ups,
and the expected events. Without an event, the create is sent again. After `Event.LOST`, the entry stays unknown."""


@pytest.mark.parametrize(
    ("fake_look_ups", "create_confirmed_at", "attempt_ended_at", "expected_look_up_count", "expected_events"),
    LOOK_UP_CASES.values(),
    ids=LOOK_UP_CASES,
)
def test_an_unknown_entry_is_looked_up_once_in_each_quiet_period(
    observed_settler: ObservedSettler,
    fake_look_ups: list[FakeLookUp],
    create_confirmed_at: float | None,
    attempt_ended_at: float | None,
    expected_look_up_count: int,
    expected_events: list[Event],
) -> None:
    observed_settler.fake_look_ups = list(fake_look_ups)
    unresolved_create = None if attempt_ended_at is None else UnresolvedCreate(attempt_ended_at=attempt_ended_at)
    observed_settler.settle(create_confirmed_at=create_confirmed_at, unresolved_create=unresolved_create)
    assert observed_settler.look_up_times == [
        1000.0 + QUIET_PERIOD_S * index for index in range(expected_look_up_count)
    ]
    assert observed_settler.state is {(): State.CONFIRMED, (Event.FOUND,): State.CONFIRMED}.get(
        tuple(expected_events), State.UNKNOWN
    )
    assert [dict(candidate.sent_values) for candidate in observed_settler.resent_candidates] == (
        [] if expected_events else [{"base_id": 7, "email": "ann@x.org"}]
    )
    assert observed_settler.tally.settled_found_count == expected_events.count(Event.FOUND)
    assert observed_settler.tally.settled_absent_count == len(observed_settler.resent_candidates)


@pytest.mark.parametrize(("is_active", "base_id"), [(True, 7), (False, 8)], ids=["another activity", "another base"])
def test_a_confirmed_create_proves_absence_only_for_entries_with_equal_base_and_is_active(
    observed_settler: ObservedSettler, is_active: bool, base_id: int
) -> None:
    other_confirmed_create = ConfirmedCreate(1001.0, 98, "email", "other@x.org", is_active=is_active, base_id=base_id)
    observed_settler.other_confirmed_creates = (other_confirmed_create,)
    observed_settler.fake_look_ups = [*[LAGGING_LOOK_UP] * 4, EMPTY_LOOK_UP]
    observed_settler.settle(create_confirmed_at=1001.0)
    # Only the fifth look-up shows the confirmed create with the entry's base and activity.
    assert len(observed_settler.look_up_times) == 5
    assert len(observed_settler.resent_candidates) == 1


def test_a_create_counts_as_absent_after_twice_the_recorded_lag_if_no_create_was_confirmed(
    observed_settler: ObservedSettler,
) -> None:
    with observed_settler.ledger.transaction() as connection:
        record_lag(connection, observed_settler.base.account, 45.0)
        record_lag(connection, observed_settler.base.account, 5.0)
    observed_settler.fake_look_ups = [EMPTY_LOOK_UP] * 10
    observed_settler.settle()
    assert observed_settler.look_up_times == [1000.0, 1030.0, 1060.0, 1090.0]
    assert len(observed_settler.resent_candidates) == 1


def test_a_run_records_the_largest_lag_for_the_next_run(observed_settler: ObservedSettler) -> None:
    observed_settler.fake_look_ups = [LAGGING_LOOK_UP, LAGGING_LOOK_UP, *[EMPTY_LOOK_UP] * 10]
    observed_settler.settle(create_confirmed_at=950.0)
    with observed_settler.ledger.transaction() as connection:
        assert read_largest_lag(connection, observed_settler.base.account) == 80.0


def test_an_entry_of_an_earlier_run_is_looked_up_in_every_spelling(observed_settler: ObservedSettler) -> None:
    observed_settler.fake_look_ups = [EMPTY_LOOK_UP, EMPTY_LOOK_UP, EMPTY_LOOK_UP]
    observed_settler.settle(create_confirmed_at=1001.0)
    assert observed_settler.ignores_case_of_look_ups == [True] * 3


def test_other_spellings_are_looked_up_only_after_the_first_look_up_has_expired(
    observed_settler: ObservedSettler,
) -> None:
    observed_settler.fake_look_ups = [
        INCOMPLETE_LOOK_UP,
        INCOMPLETE_LOOK_UP,
        INCOMPLETE_LOOK_UP,
        INCOMPLETE_LOOK_UP,
        EMPTY_LOOK_UP,
        EMPTY_LOOK_UP,
    ]
    observed_settler.settle(
        create_confirmed_at=1001.0,
        unresolved_create=UnresolvedCreate(attempt_ended_at=990.0, is_of_this_run=True, valid_until=1060.0),
    )
    assert observed_settler.ignores_case_of_look_ups == [False, False, False, True, True, True]


def test_a_lost_create_of_a_run_with_hold_is_held_by_a_later_run_with_resend(
    observed_settler: ObservedSettler,
) -> None:
    with observed_settler.ledger.transaction() as connection:
        run_key = start_run(connection, "holding", "job", "import", 0.0, holds_absent_creates=True)
        observed_settler.ledger.mark_absent(
            observed_settler.base, run_key, [Intent(ANN_IDENTITY, b"f" * 8, observed_settler.body)]
        )
        observed_settler.ledger.mark_lost(observed_settler.base, [ANN_IDENTITY])
    observed_settler.fake_look_ups = [EMPTY_LOOK_UP, EMPTY_LOOK_UP, EMPTY_LOOK_UP]
    observed_settler.settle(create_confirmed_at=1001.0)
    assert (observed_settler.state, observed_settler.resent_candidates) == (State.HELD, [])


def lose_create_five_times(observed_settler: ObservedSettler) -> None:
    with observed_settler.ledger.transaction():
        for _ in range(5):
            observed_settler.ledger.mark_absent(
                observed_settler.base, 1, [Intent(ANN_IDENTITY, b"f" * 8, observed_settler.body)]
            )
            observed_settler.ledger.mark_lost(observed_settler.base, [ANN_IDENTITY])


@pytest.mark.parametrize(
    ("unresolved_create", "state"),
    [
        (UnresolvedCreate(attempt_ended_at=990.0, is_of_this_run=True), State.HELD),
        (UnresolvedCreate(attempt_ended_at=990.0, status=422, message="no", is_of_this_run=True), State.REJECTED),
        (UnresolvedCreate(attempt_ended_at=990.0, is_of_this_run=True, uncounted_attempt_count=2), State.CONFIRMED),
        (UnresolvedCreate(attempt_ended_at=990.0), State.CONFIRMED),
    ],
    ids=[
        "an answer without a status",
        "an answer with a status",
        "two uncounted attempts",
        "creates of an earlier run",
    ],
)
def test_an_entry_whose_creates_are_lost_too_often_is_held(
    observed_settler: ObservedSettler, unresolved_create: UnresolvedCreate, state: State
) -> None:
    """The limit is five creates of this run. Creates that were not sent, and creates of an earlier run, do not
    count."""
    lose_create_five_times(observed_settler)
    observed_settler.fake_look_ups = [EMPTY_LOOK_UP, EMPTY_LOOK_UP, EMPTY_LOOK_UP]
    observed_settler.settle(create_confirmed_at=1001.0, unresolved_create=unresolved_create)
    assert observed_settler.state is state


def test_lost_creates_of_an_earlier_run_do_not_count_for_this_run(
    observed_settler: ObservedSettler,
) -> None:
    lose_create_five_times(observed_settler)
    observed_settler.fake_look_ups, observed_settler.loss_count = [EMPTY_LOOK_UP] * 6, 1
    observed_settler.settle(create_confirmed_at=1001.0)
    assert (observed_settler.state, len(observed_settler.resent_candidates)) == (State.CONFIRMED, 2)
