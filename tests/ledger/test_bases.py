"""A base is one line, by its id and by its name, on SQLite and on PostgreSQL."""

from itertools import product

import pytest

from connector.errors import ConfigurationError
from connector.ledger.entries import Ledger
from connector.ledger.records import (
    count_unsettled_elsewhere,
    find_or_add_base,
    learn_base,
    list_bases,
)
from connector.states import State
from tests.ledger.moves import INTENT, add_base, bring_to, read_body, read_state


def test_a_base_is_one_line_by_id_and_by_name(ledger: Ledger) -> None:
    by_name = add_base(ledger, None, "News")
    with ledger.transaction() as connection:
        learned = learn_base(connection, by_name, 7, "News")
        assert list_bases(connection, "account") == [learned]
        assert list_bases(connection, "other") == []
    assert add_base(ledger, 7) == learned
    assert add_base(ledger, None, "News") == learned
    assert learned.service_id == 7


STRONGEST_FIRST = (State.CONFIRMED, State.UNKNOWN, State.HELD, State.REJECTED, State.NONE)


def test_a_learned_id_merges_the_lines_of_a_base(ledger: Ledger) -> None:
    for number, (under_name, under_id) in enumerate(product(STRONGEST_FIRST, repeat=2)):
        expected = min(under_name, under_id, key=STRONGEST_FIRST.index)
        by_name, by_id = add_base(ledger, None, f"News {number}"), add_base(ledger, number)
        bring_to(ledger, by_name, under_name)
        bring_to(ledger, by_id, under_id)
        with ledger.transaction() as connection:
            learned = learn_base(connection, by_name, number, f"News {number}")
        assert read_state(ledger, learned) is expected, (under_name, under_id)
        assert read_body(ledger, learned) == (None if expected in (State.CONFIRMED, State.NONE) else INTENT.body)


def test_a_base_that_was_renamed_in_the_service_is_still_the_same(ledger: Ledger) -> None:
    base = add_base(ledger, 7)
    with ledger.transaction() as connection:
        learn_base(connection, base, 7, "News")
        renamed = learn_base(connection, base, 7, "Letters")
        assert list_bases(connection, "account") == [renamed]
    assert add_base(ledger, None, "Letters").key == base.key


def test_bases_of_two_accounts_are_two(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        one, other = (find_or_add_base(connection, account, 7, None) for account in ("one", "other"))
    assert one.key != other.key


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
        assert count_unsettled_elsewhere(connection, by_id) == 1
        assert count_unsettled_elsewhere(connection, by_name) == 0
        whole = learn_base(connection, by_name, 7, "News")
        assert count_unsettled_elsewhere(connection, whole) == 0


@pytest.mark.parametrize("name", ["a\0b", "half \ud83d of a pair"])
def test_a_base_whose_name_is_stored_escaped_is_found(ledger: Ledger, name: str) -> None:
    base = add_base(ledger, None, name)
    assert add_base(ledger, None, name) == base
    with ledger.transaction() as connection:
        learned = learn_base(connection, base, 7, name)
    assert add_base(ledger, None, name) == learned
