"""Kinds of refusal: what the ledger remembers of them, by account; on SQLite and on PostgreSQL."""

import pytest

from connector.ledger.entries import Ledger
from connector.ledger.records import (
    RefusalKind,
    find_or_add_base,
    learn_base,
    mark_refusal_checked,
    mark_refusal_created,
    read_refusal_kinds,
    record_refusal,
)
from tests.ledger.moves import IDENTITY, add_base

OTHER = b"j" * 16


def test_a_kind_that_is_met_is_still_to_be_checked(ledger: Ledger) -> None:
    base = add_base(ledger)
    with ledger.transaction() as connection:
        record_refusal(connection, base, "422 no", IDENTITY)
        assert read_refusal_kinds(connection, "account") == [
            RefusalKind("422 no", base.key, IDENTITY, has_created=False, is_checked=False)
        ]


def test_a_kind_that_is_met_again_is_checked_again_by_its_latest_identity_in_that_base(ledger: Ledger) -> None:
    base, elsewhere = add_base(ledger), add_base(ledger, 8)
    with ledger.transaction() as connection:
        record_refusal(connection, base, "422 no", IDENTITY)
        mark_refusal_checked(connection, base, "422 no")
        record_refusal(connection, elsewhere, "422 no", OTHER)
        checked, kind = read_refusal_kinds(connection, "account")
        record_refusal(connection, base, "422 no", OTHER)
        again, _ = read_refusal_kinds(connection, "account")
    assert checked == RefusalKind("422 no", base.key, IDENTITY, has_created=False, is_checked=True)
    assert kind == RefusalKind("422 no", elsewhere.key, OTHER, has_created=False, is_checked=False)
    assert again == RefusalKind("422 no", base.key, OTHER, has_created=False, is_checked=False)


def test_a_kind_that_has_created_in_one_base_has_in_all(ledger: Ledger) -> None:
    base, elsewhere, third = (add_base(ledger, number) for number in (7, 8, 9))
    with ledger.transaction() as connection:
        record_refusal(connection, base, "422 no", IDENTITY)
        record_refusal(connection, elsewhere, "422 no", OTHER)
        mark_refusal_created(connection, "account", "422 no")
        record_refusal(connection, third, "422 no", OTHER)
        kinds = read_refusal_kinds(connection, "account")
    assert [(each.base_key, each.has_created) for each in kinds] == [
        (each.key, True) for each in (base, elsewhere, third)
    ]


def test_a_kind_that_has_created_stays_so_however_often_it_is_met(ledger: Ledger) -> None:
    base = add_base(ledger)
    with ledger.transaction() as connection:
        record_refusal(connection, base, "422 no", IDENTITY)
        mark_refusal_created(connection, "account", "422 no")
        record_refusal(connection, base, "422 no", OTHER)
        mark_refusal_checked(connection, base, "422 no")
        assert read_refusal_kinds(connection, "account") == [
            RefusalKind("422 no", base.key, OTHER, has_created=True, is_checked=True)
        ]


def test_kinds_are_those_of_the_account_in_an_order_that_no_locale_changes(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        here, there = (find_or_add_base(connection, account, 7, None) for account in ("here", "there"))
        for kind in ("b", "a", "B", "é", "_"):
            record_refusal(connection, here, kind, IDENTITY)
        record_refusal(connection, there, "a", OTHER)
        mark_refusal_created(connection, "there", "a")
        mark_refusal_created(connection, "here", "b")
        mark_refusal_checked(connection, here, "B")
        kinds = read_refusal_kinds(connection, "here")
    assert [each.kind for each in kinds] == ["B", "_", "a", "b", "é"]
    assert [each.kind for each in kinds if each.has_created] == ["b"]
    assert [each.kind for each in kinds if each.is_checked] == ["B"]


def test_a_kind_whose_identity_a_listing_has_shown_since_says_so(ledger: Ledger) -> None:
    base = add_base(ledger)
    with ledger.transaction() as connection:
        record_refusal(connection, base, "422 no", IDENTITY)
        ledger.record_listed(base, "email", [(IDENTITY, 7)])
        assert [each.is_found for each in read_refusal_kinds(connection, "account")] == [True]


@pytest.mark.parametrize("kind", ["400 a\0b", "400 half \ud83d of a pair"])
def test_a_kind_that_cannot_be_kept_as_it_is_is_found_again(ledger: Ledger, kind: str) -> None:
    base = add_base(ledger)
    with ledger.transaction() as connection:
        record_refusal(connection, base, kind, IDENTITY)
        record_refusal(connection, base, kind, OTHER)
        mark_refusal_checked(connection, base, kind)
        mark_refusal_created(connection, "account", kind)
        (known,) = read_refusal_kinds(connection, "account")
    assert (known.identity, known.has_created, known.is_checked) == (OTHER, True, True)


def test_of_two_lines_that_become_one_base_the_kind_stays_that_is_still_to_be_checked(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        by_name = find_or_add_base(connection, "account", None, "News")
        by_id = find_or_add_base(connection, "account", 7, None)
        record_refusal(connection, by_id, "422 no", IDENTITY)
        mark_refusal_checked(connection, by_id, "422 no")
        record_refusal(connection, by_name, "422 no", OTHER)
        learn_base(connection, by_name, 7, "News")
        (kind,) = read_refusal_kinds(connection, "account")
    assert (kind.base_key, kind.identity, kind.is_checked) == (by_id.key, OTHER, False)
