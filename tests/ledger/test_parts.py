"""Several runs at once over one ledger: the parts of a joint run, in PostgreSQL."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.ledger.commits import Commits
from connector.ledger.entries import Intent, Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.parts import (
    JointListing,
    Part,
    claim_identities,
    count_created_before,
    end_part,
    exchange_beats,
    find_listing,
    find_own_unknown,
    mark_read,
    open_part,
    record_listing,
    stop_listing,
    take_part,
    try_list_alone,
)
from connector.ledger.records import find_or_add_base, start_run
from connector.ledger.store import Base
from connector.states import State
from tests.ledger.places import check_refused, run_sql

FIRST, SECOND = Part(1, 2, "account", "crm", "files"), Part(2, 2, "account", "crm", "files")
IDENTITY, FINGERPRINT = b"i" * 16, b"f" * 8
EXPIRE = "UPDATE part SET lease_until = now() - interval '1 minute', process = ''"


@contextmanager
def open_taken(url: str, part: Part, run_id: str = "") -> Iterator[Ledger]:
    """A ledger whose part this run has taken."""
    with open_part(url, part) as ledger:
        with ledger.transaction() as connection:
            key = start_run(connection, run_id or f"run-{time.monotonic_ns()}", part.job, "sync", 0.0)
            lease = take_part(ledger, part, key, time.monotonic)
        ledger.store.lease = lease
        yield ledger


def add_base(ledger: Ledger) -> Base:
    with ledger.transaction() as connection:
        return find_or_add_base(connection, "account", 7, None)


def claim(ledger: Ledger, base: Base, *rows: tuple[bytes, bytes]) -> dict[bytes, bytes]:
    with ledger.transaction():
        return claim_identities(ledger, base, rows)


def intend(ledger: Ledger, base: Base, identity: bytes = IDENTITY) -> None:
    lease = ledger.store.lease
    assert lease is not None
    with ledger.transaction():
        ledger.mark_intended(base, lease.run_key, [Intent(identity, FINGERPRINT, b"{}")])


def read_state(ledger: Ledger, base: Base, identity: bytes = IDENTITY) -> State:
    with ledger.transaction():
        entry = ledger.find_entries(base, [identity]).get(identity)
    return State.NONE if entry is None else entry.state


def end(ledger: Ledger, *, is_well: bool) -> None:
    with ledger.transaction():
        end_part(ledger, is_well=is_well)


def test_parts_share_the_ledger_and_keep_every_other_run_out(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST), open_taken(postgres_url, SECOND):
        check_refused(open_ledger(postgres_url), LockedError, "is held by process")
        check_refused(open_part(postgres_url, FIRST), LockedError, "part 1 of 2 of the job crm is held by process")
        other = Part(1, 2, "account", "shop", "files")
        check_refused(open_part(postgres_url, other), LockedError, "a joint run of the job crm in 2 parts, process")
        files = Part(1, 2, "account", "crm", "others")
        check_refused(open_part(postgres_url, files), LockedError, "in 2 parts over other files")
        led = Part(0, 2, "account", "crm", "files", lead="20261124T080000-000001")
        check_refused(open_part(postgres_url, led), LockedError, "in 2 parts, ")
    with open_ledger(postgres_url):
        check_refused(open_part(postgres_url, FIRST), LockedError, "the ledger .* is held by process")


def test_what_any_part_has_confirmed_is_no_long_known_subscriber(postgres_url: str) -> None:
    """Another part may have confirmed it in this moment, and the list does not show it yet."""
    with open_taken(postgres_url, FIRST) as first, open_taken(postgres_url, SECOND) as second:
        base = add_base(first)
        intend(first, base)
        with first.transaction():
            first.mark_answered(base, [(IDENTITY, 7)])
        lease = second.store.lease
        assert lease is not None
        with second.transaction():
            assert len(second.find_confirmed(base, b"", 9, before=lease.run_key)) == 1
            assert second.find_confirmed(base, b"", 9, before=lease.first_key) == []


@pytest.mark.campaign
def test_what_attempts_of_a_led_part_created_is_counted_once_and_apart_from_runs_with_a_report(
    postgres_url: str,
) -> None:
    lead = Part(0, 2, "account", "crm", "files", "lead")
    part = Part(1, 2, "account", "crm", "files", "lead")
    with open_taken(postgres_url, lead, "lead") as leading:
        base = add_base(leading)
        for number, run_id in enumerate(("died", "reported")):
            with open_taken(postgres_url, part, run_id) as ledger:
                identity = bytes([number]) * 16
                intend(ledger, base, identity)
                with ledger.transaction():
                    ledger.mark_answered(base, [(identity, number + 1)])
                end(ledger, is_well=False)
        with leading.transaction():
            assert count_created_before(leading, ["lead", "reported"]) == {1: 1}
            assert count_created_before(leading, ["lead", "reported", "died"]) == {}
        check_refused(open_part(postgres_url, FIRST), LockedError, "a joint run of the job crm in 2 parts, process")
    stranger = Part(1, 2, "account", "crm", "files", "another")
    check_refused(open_taken(postgres_url, stranger), ConfigurationError, "the command that leads it has no run in the")


def test_a_ledger_in_a_file_has_one_writer() -> None:
    check_refused(open_part("sqlite:///ledger.db", FIRST), ConfigurationError, "CONNECTOR_LEDGER=postgresql://")


def test_an_identity_belongs_to_the_part_that_met_it_first(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as first, open_taken(postgres_url, SECOND) as second:
        base = add_base(first)
        assert claim(first, base, (IDENTITY, b"1" * 8)) == {}
        assert claim(second, base, (b"j" * 16, b"1" * 8), (IDENTITY, b"2" * 8)) == {IDENTITY: b"1" * 8}
        assert claim(first, base, (IDENTITY, b"1" * 8), (b"j" * 16, b"1" * 8)) == {b"j" * 16: b"1" * 8}


def test_parts_that_claim_at_once_never_claim_the_same(postgres_url: str) -> None:
    parts = [Part(number, 4, "account", "crm") for number in range(1, 5)]
    rng = random.Random(1)
    rows = [(bytes([each]) * 16, FINGERPRINT) for each in range(200)]
    chunks = [[rng.sample(rows, 60) for _ in range(10)] for _ in parts]
    with ExitStack() as stack, ThreadPoolExecutor(len(parts)) as threads:
        ledgers = [stack.enter_context(open_taken(postgres_url, part)) for part in parts]
        base = add_base(ledgers[0])

        def claim_all(index: int) -> set[bytes]:
            commits = Commits(ledgers[index])
            mine: set[bytes] = set()
            for chunk in chunks[index]:
                others = commits.do(partial(claim_identities, base=base, rows=chunk))
                mine |= {identity for identity, _ in chunk if identity not in others}
            return mine

        claimed = list(threads.map(claim_all, range(len(parts))))
    assert sum(len(each) for each in claimed) == len(set().union(*claimed))
    assert set().union(*claimed) == {identity for part in chunks for chunk in part for identity, _ in chunk}


def test_a_run_whose_part_was_taken_over_writes_nothing_more(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as late:
        base = add_base(late)
        claim(late, base, (IDENTITY, FINGERPRINT))
        intend(late, base)
        run_sql(postgres_url, EXPIRE)
        with open_taken(postgres_url, FIRST) as next_run:
            assert read_state(next_run, base) is State.UNKNOWN
            with pytest.raises(LedgerError, match="another run has taken over part 1"), late.transaction():
                late.mark_answered(base, [(IDENTITY, 9)])
            assert read_state(next_run, base) is State.UNKNOWN


def test_a_run_whose_lease_has_expired_goes_on_where_no_other_has_taken_the_part(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as late:
        base = add_base(late)
        claim(late, base, (IDENTITY, FINGERPRINT))
        intend(late, base)
        run_sql(postgres_url, EXPIRE)
        with late.transaction():
            late.mark_answered(base, [(IDENTITY, 9)])
        assert read_state(late, base) is State.CONFIRMED
        check_refused(open_part(postgres_url, FIRST), LockedError, "is held by process")


def test_nothing_may_be_sent_without_a_transaction_that_has_renewed_the_lease(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as ledger:
        lease = ledger.store.lease
        assert lease is not None
        assert lease.until < time.monotonic()
        asked_at = time.monotonic()
        with ledger.transaction():
            assert lease.until < asked_at
        assert asked_at < lease.until < asked_at + 30
        until = lease.until
        with pytest.raises(ZeroDivisionError), ledger.transaction():
            1 / 0  # noqa: B018
        assert lease.until == until


def test_a_part_is_not_taken_from_a_run_that_renews_its_lease_at_that_moment(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as late, ThreadPoolExecutor(1) as threads:
        base = add_base(late)
        claim(late, base, (IDENTITY, FINGERPRINT))
        run_sql(postgres_url, EXPIRE)
        assert late.store.lease is not None
        with late.transaction():
            late.mark_intended(base, late.store.lease.run_key, [Intent(IDENTITY, FINGERPRINT, b"{}")])
            taking = threads.submit(check_refused, open_taken(postgres_url, FIRST), LockedError, "is held by process")
            until = time.monotonic() + 30
            while not run_sql(postgres_url, "SELECT 1 FROM pg_locks WHERE NOT granted"):
                assert time.monotonic() < until
                assert not taking.done()
        taking.result(timeout=30)
        with late.transaction():
            late.mark_answered(base, [(IDENTITY, 9)])


def test_what_another_part_is_sending_stays_as_it_is_when_a_part_is_taken_again(postgres_url: str) -> None:
    with open_taken(postgres_url, SECOND) as second:
        base = add_base(second)
        claim(second, base, (IDENTITY, FINGERPRINT))
        intend(second, base)
        for _ in range(2):
            with open_taken(postgres_url, FIRST) as first:
                end(first, is_well=False)
        assert read_state(second, base) is State.SENDING
        with second.transaction():
            second.mark_answered(base, [(IDENTITY, 9)])


def test_a_joint_run_ends_with_its_last_part_and_the_next_one_begins_without_claims(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as first:
        base = add_base(first)
        claim(first, base, (IDENTITY, FINGERPRINT))
        intend(first, base)
        end(first, is_well=True)
    check_refused(open_part(postgres_url, FIRST), LockedError, "the part has ended well")
    with open_taken(postgres_url, SECOND) as second:
        assert claim(second, base, (IDENTITY, FINGERPRINT)) == {IDENTITY: FINGERPRINT}
        assert read_state(second, base) is State.SENDING
        end(second, is_well=True)
    with open_taken(postgres_url, SECOND) as again:
        assert read_state(again, base) is State.UNKNOWN
        assert claim(again, base, (IDENTITY, FINGERPRINT)) == {}


def test_a_joint_run_that_was_left_gives_way_after_an_hour_to_another(postgres_url: str) -> None:
    other = Part(1, 3, "account", "shop")
    with open_taken(postgres_url, FIRST) as first:
        end(first, is_well=True)
        run_sql(postgres_url, "UPDATE part SET lease_until = now() - interval '61 minutes'")
    with open_taken(postgres_url, FIRST) as first:
        end(first, is_well=False)
    with open_taken(postgres_url, other):
        pass


def test_the_last_part_to_have_read_its_rows_knows_it(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as first, open_taken(postgres_url, SECOND) as second:
        for ledger, is_last in ((first, False), (second, True)):
            assert ledger.store.lease is not None
            with ledger.transaction():
                mark_read(ledger)
            assert ledger.store.lease.is_last is is_last


def test_what_no_part_has_claimed_is_one_parts_alone_even_when_parts_are_run_again(postgres_url: str) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(open_taken(postgres_url, part)) for part in (FIRST, SECOND))
        base = add_base(first)
        intend(first, base)
        with first.transaction():
            first.mark_lost(base, [IDENTITY])
            mark_read(first)
        with second.transaction():
            mark_read(second)
            assert [entry.identity for entry in find_own_unknown(second, base)] == [IDENTITY]
        end(first, is_well=False)
        with open_taken(postgres_url, FIRST) as again, again.transaction():
            mark_read(again)  # it is the last one now, too
            assert find_own_unknown(again, base) == []
        with second.transaction():
            assert second.store.lease is not None
            intent = Intent(IDENTITY, FINGERPRINT, b"{}")
            second.mark_absent(base, second.store.lease.run_key, [intent])
        end(second, is_well=False)
    with open_taken(postgres_url, SECOND) as next_run:
        assert read_state(next_run, base) is State.UNKNOWN


def test_one_part_lists_a_base_and_the_others_rely_on_that(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as first, open_taken(postgres_url, SECOND) as second:
        base = add_base(first)
        with first.transaction():
            assert find_listing(first, base) is None
            assert try_list_alone(first, base)
        with second.transaction():
            assert not try_list_alone(second, base)
        with first.transaction():
            record_listing(first, base, JointListing(5.0, 1200, 1200))
            stop_listing(first, base)
        with second.transaction():
            listing = find_listing(second, base)
            assert try_list_alone(second, base)
        assert listing is not None
        assert (listing.rows, listing.total_count) == (1200, 1200)
        assert 5.0 <= listing.age_s < 60


def test_a_listing_is_not_relied_on_after_another_command_has_had_the_ledger(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as first:
        base = add_base(first)
        with first.transaction():
            record_listing(first, base, JointListing(5.0, 1200, None))
    with open_ledger(postgres_url):
        pass  # `forget`, say
    with open_taken(postgres_url, SECOND) as second, second.transaction():
        assert find_listing(second, base) is None


def test_parts_hear_what_the_others_that_go_on_say(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as first, open_taken(postgres_url, SECOND) as second:
        with first.transaction():
            assert exchange_beats(first, "one") == {}
        with second.transaction():
            ((number, (said, age_s)),) = exchange_beats(second, "two").items()
        assert (number, said) == (1, "one")
        assert 0 <= age_s < 60
        end(first, is_well=True)
        with second.transaction():
            assert exchange_beats(second, "two") == {}


def test_a_transaction_that_the_server_undoes_for_a_deadlock_is_made_again(postgres_url: str) -> None:
    with open_taken(postgres_url, FIRST) as first, open_taken(postgres_url, SECOND) as second:
        base = add_base(first)
        identities = (b"a" * 16, b"b" * 16)
        for identity in identities:
            intend(first, base, identity)
        barrier = threading.Barrier(2, timeout=30)
        tries: list[int] = []

        def lock_both(ledger: Ledger, order: tuple[bytes, ...]) -> None:
            def step(ledger: Ledger) -> None:
                tries.append(1)
                for index, identity in enumerate(order):
                    ledger.store.connection.exec_driver_sql(
                        "SELECT 1 FROM entry WHERE identity = %s FOR UPDATE", (identity,)
                    )
                    if index == 0 and len(tries) <= 2:
                        barrier.wait()

            Commits(ledger).do(step)

        with ThreadPoolExecutor(2) as threads:
            both = [
                threads.submit(lock_both, first, identities),
                threads.submit(lock_both, second, identities[::-1]),
            ]
            for each in both:
                each.result(timeout=60)
        assert len(tries) >= 3  # what is made again may meet the other once more
