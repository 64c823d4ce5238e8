"""The base of each row, read from a column."""

import pandas as pd
import pytest

from connector.errors import ConfigurationError
from connector.fields import BaseRef
from connector.subscribers.rules import BaseColumn, RowBases, read_bases

NEWS, SHOP = BaseRef(service_id=7), BaseRef(service_id=9)


def read_row_bases(rule: BaseColumn, *cells: str | None) -> tuple[list[BaseRef | None], list[tuple[int, str, str]]]:
    """Return the base of each row (None: the row has a fault), and the faults without their messages."""
    bases, faults = read_bases(pd.DataFrame({"list": pd.array(cells, dtype="str")}), rule)
    row_bases = [bases.bases[index] if index >= 0 else None for index in bases.base_indices]
    return row_bases, [(fault.position, fault.field, fault.code) for fault in faults]


def test_a_cell_that_the_map_lacks_is_a_fault() -> None:
    rule = BaseColumn("list", {"news": NEWS, " shop ": SHOP, "letter": NEWS})
    row_bases, faults = read_row_bases(rule, "news", " shop", "letter", "News", "", None, "7")
    assert row_bases == [NEWS, SHOP, NEWS, None, None, None, None]
    assert faults == [
        (3, "base_id", "base"), (4, "base_id", "required"), (5, "base_id", "required"), (6, "base_id", "base")
    ]  # fmt: skip


def test_digits_are_a_base_id_and_other_text_is_a_base_name_if_the_job_has_no_map() -> None:
    row_bases, faults = read_row_bases(
        BaseColumn("list"), " 7 ", "007", "Shop 9", "7a", "-3", "0", "9" * 19, "9" * 5000, "a\x07b", "", "٣"
    )
    names_of_bases = ("Shop 9", "7a", "-3")
    assert row_bases == [NEWS, NEWS, *(BaseRef(name=name) for name in names_of_bases), *[None] * 5, BaseRef(name="٣")]
    assert faults == [
        (5, "base_id", "base"), (6, "base_id", "base"), (7, "base_id", "base"),
        (8, "base_name", "base"), (9, "base_name", "required"),
    ]  # fmt: skip


def test_the_message_of_a_fault_shows_the_allowed_values() -> None:
    rule = BaseColumn("list", {f"list{index}": BaseRef(service_id=index + 1) for index in range(12)})
    _, faults = read_bases(pd.DataFrame({"list": ["?"]}), rule)
    assert "a cell of the column list must be one of list0, list1, " in faults[0].message
    assert faults[0].message.endswith("list9 and 2 more")


def test_rows_are_grouped_by_base_in_the_order_of_the_first_row_of_each_base() -> None:
    bases, _ = read_bases(pd.DataFrame({"list": ["9", "", "7", "9", "Shop", "7"]}), BaseColumn("list"))
    bases_and_positions = [(base, positions.tolist()) for base, positions in bases.split_by_base()]
    assert bases_and_positions == [(SHOP, [0, 3]), (NEWS, [2, 5]), (BaseRef(name="Shop"), [4])]
    assert [base for base, _ in bases.select(slice(2, 4)).split_by_base()] == [NEWS, SHOP]
    assert list(RowBases(bases.base_indices[:0], bases.bases).split_by_base()) == []


def test_a_map_with_ids_and_names_of_bases_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"column list .* by its id \(7\) and another by its name \(Shop\)"):
        BaseColumn("list", {"news": NEWS, "shop": BaseRef(name="Shop")})
