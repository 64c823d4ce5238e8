"""Which of the listed bases are those that a job asks for, and what the ledger learns of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.errors import ConfigurationError, RunAborted
from connector.fields import BaseRef
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, list_bases
from connector.subscribers.row_bases import BaseColumn
from pipelines.flows.reconcile_sides import build_wanted, find_base, list_asked

NEWS, SHOP = (7, "News"), (9, "Shop")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        yield ledger


def add(ledger: Ledger, service_id: int | None, name: str | None) -> None:
    with ledger.transaction() as connection:
        find_or_add_base(connection, "main", service_id, name)


def list_known(ledger: Ledger) -> list[tuple[int | None, str | None]]:
    with ledger.transaction() as connection:
        return [(base.service_id, base.name) for base in list_bases(connection, "main")]


def test_the_bases_that_a_job_names_are_known_before_its_rows() -> None:
    assert list_asked(BaseRef(7)) == [BaseRef(7)]
    assert list_asked(BaseColumn("list", {"a": BaseRef(7), "b": BaseRef(9), "c": BaseRef(7)})) == [
        BaseRef(7), BaseRef(9),
    ]  # fmt: skip
    assert list_asked(BaseColumn("list")) is None


def test_of_the_list_those_are_wanted_who_may_be_of_a_base(ledger: Ledger) -> None:
    add(ledger, 11, "Club")
    is_wanted = build_wanted([BaseRef(7), BaseRef(name="Shop"), BaseRef(name="Club")], ledger, "main")
    assert [is_wanted(each) for each in (NEWS, (7, None), SHOP, (11, "renamed"), (8, "News"), (None, None))] == [
        True, True, True, True, False, False,
    ]  # fmt: skip
    assert build_wanted(None, ledger, "main")((None, None))


@pytest.mark.parametrize("asked", [BaseRef(7), BaseRef(name="News")])
def test_the_ledger_learns_of_a_base_what_the_list_tells(ledger: Ledger, asked: BaseRef) -> None:
    base, mine = find_base(ledger, "main", asked, "email", [SHOP, NEWS])
    assert ((base.service_id, base.name), mine) == (NEWS, [NEWS])
    assert list_known(ledger) == [NEWS]


def test_a_line_of_the_name_alone_and_one_of_the_id_become_one(ledger: Ledger) -> None:
    add(ledger, None, "News")
    add(ledger, 7, None)
    find_base(ledger, "main", BaseRef(7), "email", [NEWS])
    assert list_known(ledger) == [NEWS]


def test_a_name_that_two_bases_bear_is_learnt_for_neither(ledger: Ledger) -> None:
    add(ledger, None, "News")
    base, mine = find_base(ledger, "main", BaseRef(7), "email", [NEWS, (8, "News")])
    assert ((base.service_id, base.name), mine) == ((7, None), [NEWS])
    with pytest.raises(ConfigurationError, match="several bases are called News"):
        find_base(ledger, "main", BaseRef(name="News"), "email", [NEWS, (8, "News")])


def test_a_base_that_is_called_otherwise_by_now_ends_it(ledger: Ledger) -> None:
    add(ledger, 7, "News")
    with pytest.raises(RunAborted, match="no longer called News"):
        find_base(ledger, "main", BaseRef(name="News"), "email", [(7, "Letters")])


def test_a_base_that_nobody_is_in_is_what_the_ledger_knows_of_it(ledger: Ledger) -> None:
    base, mine = find_base(ledger, "main", BaseRef(name="News"), "email", [SHOP])
    assert ((base.service_id, base.name), mine) == ((None, "News"), [])
