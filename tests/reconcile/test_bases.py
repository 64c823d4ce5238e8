"""The listed bases to which a job refers, and the records of these bases in the ledger."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from connector.errors import ConfigurationError, RunAborted
from connector.fields import BaseRef
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, list_bases
from connector.reconcile import ListedBase
from pipelines.flows.reconcile_sides import ComparedBases

NEWS, SHOP = (7, "News"), (9, "Shop")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        yield ledger


def record_base(ledger: Ledger, base_id: int | None, name: str | None) -> None:
    with ledger.transaction() as connection:
        find_or_add_base(connection, "main", base_id, name)


def list_recorded_bases(ledger: Ledger) -> list[tuple[int | None, str | None]]:
    with ledger.transaction() as connection:
        return [(base.service_id, base.name) for base in list_bases(connection, "main")]


def find_base(
    ledger: Ledger, base_ref: BaseRef, listed_bases: Sequence[ListedBase]
) -> tuple[tuple[int | None, str | None], list[int]]:
    """Find the base with this id or name. Return its id and name, and the indexes of its records in `listed_bases`."""
    compared_bases = ComparedBases(listed_bases, ledger, "main")
    assert compared_bases.find_base_number(base_ref) == 0
    return (compared_bases.bases[0].service_id, compared_bases.bases[0].name), [
        index for index, _ in compared_bases.listed_base_numbers
    ]


@pytest.mark.parametrize("base_ref", [BaseRef(7), BaseRef(name="News")])
def test_the_ledger_records_the_id_and_the_name_of_a_listed_base(ledger: Ledger, base_ref: BaseRef) -> None:
    assert find_base(ledger, base_ref, [SHOP, NEWS]) == (NEWS, [1])
    assert list_recorded_bases(ledger) == [NEWS]


def test_two_spellings_of_the_name_of_a_base_are_one_base(ledger: Ledger) -> None:
    compared_bases = ComparedBases([SHOP, NEWS, (7, "news ")], ledger, "main")
    base_refs = (BaseRef(name="News"), BaseRef(name="Shop"), BaseRef(name="news"), BaseRef(name="News"))
    assert [compared_bases.find_base_number(base_ref) for base_ref in base_refs] == [0, 1, 0, 0]
    assert compared_bases.listed_base_numbers == [(1, 0), (2, 0), (0, 1)]


def test_a_record_with_the_name_and_a_record_with_the_id_are_merged(ledger: Ledger) -> None:
    record_base(ledger, None, "News")
    record_base(ledger, 7, None)
    find_base(ledger, BaseRef(7), [NEWS])
    assert list_recorded_bases(ledger) == [NEWS]


def test_a_name_that_two_listed_bases_have_is_not_recorded(ledger: Ledger) -> None:
    record_base(ledger, None, "News")
    assert find_base(ledger, BaseRef(7), [NEWS, (8, "News")]) == ((7, None), [0])
    with pytest.raises(ConfigurationError, match="several bases are called News"):
        find_base(ledger, BaseRef(name="News"), [NEWS, (8, "News")])


def test_a_renamed_base_ends_the_run(ledger: Ledger) -> None:
    record_base(ledger, 7, "News")
    with pytest.raises(RunAborted, match="no longer called News"):
        find_base(ledger, BaseRef(name="News"), [(7, "Letters")])


def test_an_unlisted_base_keeps_its_record_in_the_ledger(ledger: Ledger) -> None:
    assert find_base(ledger, BaseRef(name="News"), [SHOP]) == ((None, "News"), [])
