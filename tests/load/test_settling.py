"""Absence by the rule of architecture 4.5, and by no weaker rule: the settler on a virtual clock, with fake looks."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from connector.clock import Clock
from connector.control import Stop
from connector.errors import RunAborted
from connector.ledger.entries import Intent, Ledger, Move
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, read_largest_lag, record_lag, start_run
from connector.ledger.store import Base
from connector.listing.access import KeyGroup, ListAccess, LookupKey, LookupResult, Sentinel
from connector.load import resolution
from connector.load.candidates import Candidate
from connector.load.lookups import LookupPart
from connector.load.outcomes import Outcomes, UnresolvedCreate
from connector.load.refusals import EarlierRefusals
from connector.load.resolution import Settler
from connector.load.session import LoadPolicy, RunMode, Session, Tally
from connector.sender import FetchItems
from connector.service.wire import encode_subscriber
from connector.states import Event, State
from connector.subscribers.identity import digest_identity
from tests.load.sessions import Journal

ANN = digest_identity("email", "ann@x.org")
QUIET_S = 30.0
WITNESS = 99


@dataclass
class Look:
    """What one look shows: the people found, whether it can tell who is missed, whether it shows the sentinel."""

    found: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    is_complete: bool = True
    is_witness_seen: bool = True


NOTHING = Look()
INCOMPLETE = Look(is_complete=False)
LAGGING = Look(is_witness_seen=False)
FOUND = Look({ANN: (5,)})


@dataclass
class Bench:
    """A settler whose looks come from a list, and whose creates are only written down."""

    ledger: Ledger
    base: Base
    looks: list[Look]
    now: float = 1000.0
    looked_at: list[float] = field(default_factory=list)
    sent_again: list[Candidate] = field(default_factory=list)
    in_any_spelling: list[bool] = field(default_factory=list)
    body: bytes = encode_subscriber({"base_id": 7, "email": "ann@x.org"})
    other_sentinels: tuple[Sentinel, ...] = ()  # that every look shows
    losses: int = 0  # of creates that are answered with an error before one is answered

    def settle(
        self, *, hold: bool = False, confirmed_at: float | None = None, unresolved: UnresolvedCreate | None = None
    ) -> None:
        asyncio.run(self._settle(hold, confirmed_at, unresolved))

    async def _settle(self, hold: bool, confirmed_at: float | None, unresolved: UnresolvedCreate | None) -> None:
        clock = Clock(lambda: self.now, lambda: datetime.fromtimestamp(self.now, UTC), self._sleep)
        policy = LoadPolicy(quiet_period_s=QUIET_S, on_unknown="hold" if hold else "resend")
        nothing = cast("Any", None)  # no request is sent: look-ups and creates are passed in
        writer = Journal(self.ledger, self.base, 1)
        access = ListAccess(Stop(clock), nothing, nothing, writer, policy)
        session = Session(access, policy, Tally(lambda problem: None))
        if confirmed_at is not None:
            base_id = self.base.service_id
            access.sentinels.append(Sentinel(confirmed_at, WITNESS, "email", "sentinel@x.org", base_id=base_id))
        access.sentinels.extend(self.other_sentinels)
        access.state.swept_activity.add(False)  # the list shows inactive subscribers
        self.tally, self.outcomes = session.tally, Outcomes(session, RunMode.LOAD)
        if unresolved is not None:
            self.outcomes.add_unresolved(ANN, unresolved)
        settler = Settler(session, RunMode.LOAD, self.outcomes, EarlierRefusals(session), self._create)
        await settler.read_lag()
        with pytest.MonkeyPatch.context() as patch, suppress(RunAborted):  # a bench without more looks ends the run
            patch.setattr(resolution, "look_up_keys", self._look_up_all)
            await settler.settle()

    async def _look_up_all(self, groups: Sequence[KeyGroup]) -> AsyncIterator[LookupPart]:
        for group in groups:
            yield LookupPart(group.access, group.keys, self.look_up(group.access, group.keys))

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def look_up(self, access: ListAccess, wanted: Sequence[LookupKey]) -> LookupResult:
        assert [replace(want, in_any_spelling=False) for want in wanted] == [LookupKey(ANN, "email", "ann@x.org")]
        self.in_any_spelling.append(wanted[0].in_any_spelling)
        if not self.looks:
            access.control.end("no more looks were foreseen")
            return build_result(INCOMPLETE, self.now, access)
        self.looked_at.append(self.now)
        return build_result(self.looks.pop(0), self.now, access)

    async def _create(self, take: FetchItems[Candidate]) -> None:
        while batch := await take(10):
            self.sent_again += batch
            is_lost, self.losses = self.losses > 0, self.losses - 1
            with self.ledger.transaction():
                self.ledger.mark_absent(self.base, 1, [candidate.intent for candidate in batch])
                if is_lost:
                    self.ledger.mark_lost(self.base, [candidate.intent.identity for candidate in batch])
                else:
                    self.ledger.mark_answered(self.base, [(candidate.intent.identity, 7) for candidate in batch])
            move = Move(Event.LOST, status=500, message="oops") if is_lost else Move(Event.ANSWERED, subscriber_id=7)
            for candidate in batch:
                self.outcomes.record(candidate, move)

    @property
    def state(self) -> State:
        with self.ledger.transaction():
            return self.ledger.find_entries(self.base, [ANN])[ANN].state


def build_result(look: Look, now: float, access: ListAccess) -> LookupResult:
    confirmed = frozenset(sentinel for sentinel in access.sentinels if sentinel.confirmed_at < now)
    seen = (
        confirmed
        if look.is_witness_seen
        else frozenset(subscriber for subscriber in confirmed if subscriber.subscriber_id != WITNESS)
    )
    lag_s = max((now - person.confirmed_at for person in confirmed - seen), default=0.0)
    missed = frozenset({ANN}) - look.found.keys() if look.is_complete else frozenset[bytes]()
    return LookupResult(look.found, missed, seen, lag_s, now)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        with ledger.transaction() as connection:
            start_run(connection, "run", "job", "import", 0.0)
            base = find_or_add_base(connection, "account", 7, None)
            ledger.mark_intended(base, 1, [Intent(ANN, b"f" * 8, Bench.body)])
            ledger.mark_lost(base, [ANN])
        yield Bench(ledger, base, [])


ENDS: dict[str, tuple[list[Look], float | None, float | None, int, list[Event]]] = {
    "presence settles at the first look, whatever its certificate": (
        [Look({ANN: (5,)}, is_complete=False)], None, None, 1, [Event.FOUND],
    ),
    "absence takes two complete looks a quiet period apart, the first one after the attempt": (
        [NOTHING] * 3, 1001.0, None, 3, [],
    ),
    "the quiet period counts from the end of the attempt": ([NOTHING] * 2, 991.0, 960.0, 2, []),
    "a subscriber that shows at the second look is not sent again": (
        [NOTHING, NOTHING, FOUND], 1001.0, None, 3, [Event.FOUND],
    ),
    "an incomplete look proves nothing and breaks the row of two": (
        [NOTHING, NOTHING, INCOMPLETE, NOTHING, NOTHING], 1001.0, None, 5, [],
    ),
    "incomplete looks alone leave it unknown": ([INCOMPLETE] * 10, 1001.0, None, 5, [Event.LOST]),
    "no subscriber is absent while one who came later does not show": (
        [*[LAGGING] * 4, NOTHING], 1001.0, None, 5, [],
    ),
    # It did not show at 1030: a lag of 80 s at least, so nobody is absent before 1160.
    "a sentinel from before the attempt is none, and twice the lag must pass": (
        [LAGGING, LAGGING, *[NOTHING] * 10], 950.0, None, 7, [],
    ),
}  # fmt: skip
"""Looks, when a sentinel was confirmed, when the attempt ended, how many looks were made, and what settled without a
create: an unknown that is not settled stays lost."""


@pytest.mark.parametrize(("looks", "confirmed_at", "since", "looked", "settled"), ENDS.values(), ids=ENDS)
def test_looks_a_quiet_period_apart_settle_an_unknown(
    bench: Bench, looks: list[Look], confirmed_at: float | None, since: float | None, looked: int, settled: list[Event]
) -> None:
    bench.looks = list(looks)
    bench.settle(
        confirmed_at=confirmed_at, unresolved=None if since is None else UnresolvedCreate(attempt_ended_at=since)
    )
    assert bench.looked_at == [1000.0 + QUIET_S * number for number in range(looked)]
    assert bench.state is {(): State.CONFIRMED, (Event.FOUND,): State.CONFIRMED}.get(tuple(settled), State.UNKNOWN)
    assert [dict(call.sent) for call in bench.sent_again] == ([] if settled else [{"base_id": 7, "email": "ann@x.org"}])
    assert bench.tally.settled_found_count == settled.count(Event.FOUND)
    assert bench.tally.settled_absent_count == len(bench.sent_again)


@pytest.mark.parametrize(("is_active", "base_id"), [(True, 7), (False, 8)], ids=["another activity", "another base"])
def test_a_sentinel_of_another_class_proves_no_absence(bench: Bench, is_active: bool, base_id: int) -> None:
    other = Sentinel(1001.0, 98, "email", "other@x.org", is_active=is_active, base_id=base_id)
    bench.other_sentinels = (other,)
    bench.looks = [*[LAGGING] * 4, NOTHING]
    bench.settle(confirmed_at=1001.0)
    assert len(bench.looked_at) == 5  # until the sentinel of the entry's class shows
    assert len(bench.sent_again) == 1


def test_twice_the_largest_known_lag_must_pass_without_a_sentinel(bench: Bench) -> None:
    with bench.ledger.transaction() as connection:
        record_lag(connection, bench.base.account, 45.0)
        record_lag(connection, bench.base.account, 5.0)
    bench.looks = [NOTHING] * 10
    bench.settle()
    assert bench.looked_at == [1000.0, 1030.0, 1060.0, 1090.0]
    assert len(bench.sent_again) == 1


def test_the_largest_lag_that_a_run_has_seen_is_on_record_for_the_next(bench: Bench) -> None:
    bench.looks = [LAGGING, LAGGING, *[NOTHING] * 10]
    bench.settle(confirmed_at=950.0)
    with bench.ledger.transaction() as connection:
        assert read_largest_lag(connection, bench.base.account) == 80.0


def test_an_entry_of_an_earlier_run_is_looked_up_in_any_spelling(bench: Bench) -> None:
    bench.looks = [NOTHING, NOTHING, NOTHING]
    bench.settle(confirmed_at=1001.0)
    assert bench.in_any_spelling == [True] * 3


def test_a_fresh_create_of_this_run_is_looked_up_as_it_was_sent(bench: Bench) -> None:
    bench.looks = [INCOMPLETE, INCOMPLETE, INCOMPLETE, INCOMPLETE, NOTHING, NOTHING]
    bench.settle(
        confirmed_at=1001.0,
        unresolved=UnresolvedCreate(attempt_ended_at=990.0, is_of_this_run=True, known_until=1060.0),
    )
    assert bench.in_any_spelling == [False, False, False, True, True, True]


def test_an_entry_of_a_run_with_hold_is_held_by_a_later_run(bench: Bench) -> None:
    with bench.ledger.transaction() as connection:
        run_key = start_run(connection, "holding", "job", "import", 0.0, is_holding=True)
        bench.ledger.mark_absent(bench.base, run_key, [Intent(ANN, b"f" * 8, bench.body)])
        bench.ledger.mark_lost(bench.base, [ANN])
    bench.looks = [NOTHING, NOTHING, NOTHING]
    bench.settle(confirmed_at=1001.0)
    assert (bench.state, bench.sent_again) == (State.HELD, [])


def lose_often(bench: Bench) -> None:
    with bench.ledger.transaction():
        for _ in range(5):
            bench.ledger.mark_absent(bench.base, 1, [Intent(ANN, b"f" * 8, bench.body)])
            bench.ledger.mark_lost(bench.base, [ANN])


@pytest.mark.parametrize(
    ("unresolved", "state"),
    [
        (UnresolvedCreate(attempt_ended_at=990.0, is_of_this_run=True), State.HELD),
        (UnresolvedCreate(attempt_ended_at=990.0, status=422, message="no", is_of_this_run=True), State.REJECTED),
        (UnresolvedCreate(attempt_ended_at=990.0, is_of_this_run=True, uncounted_attempts=2), State.CONFIRMED),
        (UnresolvedCreate(attempt_ended_at=990.0), State.CONFIRMED),
    ],
    ids=["no words", "with words", "some never left", "by an earlier run"],
)
def test_an_entry_that_is_lost_too_often_is_held(bench: Bench, unresolved: UnresolvedCreate, state: State) -> None:
    """After five creates that this run made; those that never left, and an earlier run's, do not count."""
    lose_often(bench)
    bench.looks = [NOTHING, NOTHING, NOTHING]
    bench.settle(confirmed_at=1001.0, unresolved=unresolved)
    assert bench.state is state


def test_creates_of_runs_that_died_do_not_count_against_a_row_that_is_lost_once_more(bench: Bench) -> None:
    lose_often(bench)
    bench.looks, bench.losses = [NOTHING] * 6, 1
    bench.settle(confirmed_at=1001.0)
    assert (bench.state, len(bench.sent_again)) == (State.CONFIRMED, 2)


def test_a_create_of_a_run_that_died_is_rejected_once_this_run_has_lost_the_create_five_times(bench: Bench) -> None:
    lose_often(bench)
    bench.looks, bench.losses = [NOTHING] * 20, 20
    bench.settle(confirmed_at=1001.0)
    assert (bench.state, len(bench.sent_again)) == (State.REJECTED, 5)


def test_a_run_with_hold_holds_an_unknown_entry(bench: Bench) -> None:
    bench.looks = [NOTHING, NOTHING, NOTHING]
    bench.settle(hold=True, confirmed_at=1001.0)
    assert (bench.state, bench.sent_again) == (State.HELD, [])
    assert bench.tally.leftovers == {"held": 1}
