"""The base of a row by the cell of a column."""

import pandas as pd
import pytest

from connector.errors import ConfigurationError
from connector.fields import BaseRef
from connector.subscribers.rules import BaseColumn, RowBases, parse_base, read_bases

NEWS, SHOP = BaseRef(service_id=7), BaseRef(service_id=9)


def read(rule: BaseColumn, *cells: str | None) -> tuple[list[BaseRef | None], list[tuple[int, str, str]]]:
    """Each row's base (None: it has a fault), and the faults without their words."""
    bases, faults = read_bases(pd.DataFrame({"list": pd.array(cells, dtype="str")}), rule)
    rows = [bases.bases[index] if index >= 0 else None for index in bases.indices]
    return rows, [(fault.position, fault.field, fault.code) for fault in faults]


def test_a_cell_is_the_base_of_the_map_or_a_fault() -> None:
    rule = BaseColumn("list", {"news": NEWS, " shop ": SHOP, "letter": NEWS})
    rows, faults = read(rule, "news", " shop", "letter", "News", "", None, "7")
    assert rows == [NEWS, SHOP, NEWS, None, None, None, None]
    assert faults == [
        (3, "base_id", "base"), (4, "base_id", "required"), (5, "base_id", "required"), (6, "base_id", "base")
    ]  # fmt: skip


def test_without_a_map_digits_are_an_id_and_other_cells_a_name() -> None:
    rows, faults = read(BaseColumn("list"), " 7 ", "007", "Shop", "7a", "-3", "0", "9" * 19, "9" * 5000, "a\x07b", "")
    assert rows[:5] == [NEWS, NEWS, *(BaseRef(name=name) for name in ("Shop", "7a", "-3"))]
    assert faults == [
        (5, "base_id", "base"), (6, "base_id", "base"), (7, "base_id", "base"),
        (8, "base_name", "base"), (9, "base_name", "required"),
    ]  # fmt: skip


def test_a_fault_names_the_allowed_values() -> None:
    rule = BaseColumn("list", {f"list{number}": BaseRef(service_id=number + 1) for number in range(12)})
    _, faults = read_bases(pd.DataFrame({"list": ["?"]}), rule)
    assert "the column list must hold one of list0, list1, " in faults[0].message
    assert faults[0].message.endswith("list9 and 2 more")


@pytest.mark.parametrize(
    ("text", "base"), [(" 7 ", NEWS), ("Shop 9", BaseRef(name="Shop 9")), ("٣", BaseRef(name="٣"))]
)
def test_a_text_names_a_base(text: str, base: BaseRef) -> None:
    assert parse_base(text) == base


def test_rows_are_split_in_the_order_in_which_their_bases_first_appear() -> None:
    bases, _ = read_bases(pd.DataFrame({"list": ["9", "", "7", "9", "Shop", "7"]}), BaseColumn("list"))
    split = [(asked, places.tolist()) for asked, places in bases.split()]
    assert split == [(SHOP, [0, 3]), (NEWS, [2, 5]), (BaseRef(name="Shop"), [4])]
    assert [asked for asked, _ in bases.select(slice(2, 4)).split()] == [NEWS, SHOP]
    assert list(RowBases(bases.indices[:0], bases.bases).split()) == []


def test_a_map_that_names_one_base_by_its_id_and_another_by_its_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"column list .* by its id \(7\) and another by its name \(Shop\)"):
        BaseColumn("list", {"news": NEWS, "shop": BaseRef(name="Shop")})
