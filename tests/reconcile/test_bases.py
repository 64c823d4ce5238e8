"""The listed bases that a job means, and their records in the ledger."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from connector.errors import ConfigurationError, RunAborted
from connector.fields import BaseRef
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, list_bases
from connector.reconcile import ListedBase
from pipelines.flows.reconcile_sides import Sides

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


def find(
    ledger: Ledger, asked: BaseRef, listed: Sequence[ListedBase]
) -> tuple[tuple[int | None, str | None], list[int]]:
    """Return the base that is asked for, and its indexes among the listed bases."""
    sides = Sides(listed, ledger, "main")
    assert sides.find(asked) == 0
    return (sides.bases[0].service_id, sides.bases[0].name), [index for index, _ in sides.listed_sides]


@pytest.mark.parametrize("asked", [BaseRef(7), BaseRef(name="News")])
def test_the_ledger_records_the_id_and_the_name_of_a_listed_base(ledger: Ledger, asked: BaseRef) -> None:
    assert find(ledger, asked, [SHOP, NEWS]) == (NEWS, [1])
    assert list_known(ledger) == [NEWS]


def test_a_base_named_in_two_ways_is_one_side(ledger: Ledger) -> None:
    sides = Sides([SHOP, NEWS, (7, "news ")], ledger, "main")
    asked = (BaseRef(name="News"), BaseRef(name="Shop"), BaseRef(name="news"), BaseRef(name="News"))
    assert [sides.find(each) for each in asked] == [0, 1, 0, 0]
    assert sides.listed_sides == [(1, 0), (2, 0), (0, 1)]


def test_a_record_with_the_name_and_a_record_with_the_id_are_merged(ledger: Ledger) -> None:
    add(ledger, None, "News")
    add(ledger, 7, None)
    find(ledger, BaseRef(7), [NEWS])
    assert list_known(ledger) == [NEWS]


def test_a_name_of_two_bases_is_recorded_for_neither(ledger: Ledger) -> None:
    add(ledger, None, "News")
    assert find(ledger, BaseRef(7), [NEWS, (8, "News")]) == ((7, None), [0])
    with pytest.raises(ConfigurationError, match="several bases are called News"):
        find(ledger, BaseRef(name="News"), [NEWS, (8, "News")])


def test_a_renamed_base_ends_the_run(ledger: Ledger) -> None:
    add(ledger, 7, "News")
    with pytest.raises(RunAborted, match="no longer called News"):
        find(ledger, BaseRef(name="News"), [(7, "Letters")])


def test_an_unlisted_base_keeps_its_record_in_the_ledger(ledger: Ledger) -> None:
    assert find(ledger, BaseRef(name="News"), [SHOP]) == ((None, "News"), [])
