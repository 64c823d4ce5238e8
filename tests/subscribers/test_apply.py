"""The mapping at work: text columns in, field columns out."""

import json

import pandas as pd
import pytest
from hypothesis import given, strategies as st

from connector.errors import ConfigurationError
from connector.subscribers import ColumnRule, FieldMapping, apply_mapping


def build_frame(**columns: list[str | None]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(cells, dtype="str") for name, cells in columns.items()})


def apply_one(cells: list[str | None], field: str, rule: ColumnRule) -> list[object]:
    mapped = apply_mapping(build_frame(cell=cells), FieldMapping({field: rule})).frame
    return [to_plain(cell) for cell in mapped[field]]


def to_plain(cell: object) -> object:
    if pd.api.types.is_list_like(cell):
        return list(cell)  # type: ignore[call-overload] # pandas says that it is one
    return None if pd.isna(cell) else cell  # type: ignore[call-overload] # a scalar, then


def test_columns_become_fields_in_the_order_of_the_field_table() -> None:
    frame = build_frame(Mail=["a@x.com"], Vorname=["Ann"], Rest=["x"])
    mapping = FieldMapping({"first_name": ColumnRule(column="Vorname"), "email": ColumnRule(column="Mail")})
    mapped = apply_mapping(frame, mapping).frame
    assert mapped.to_dict("list") == {"email": ["a@x.com"], "first_name": ["Ann"]}
    assert [str(dtype) for dtype in mapped.dtypes] == ["str", "str"]


def test_cells_are_trimmed_and_empty_ones_missing() -> None:
    cells = [" a ", "\u00a0b\u2003", "", "  ", None, "007", "NULL"]
    assert apply_one(cells, "first_name", ColumnRule(column="cell")) == ["a", "b", None, None, None, "007", "NULL"]


def test_a_constant_fills_every_row() -> None:
    assert apply_one(["x", None], "is_active", ColumnRule(value=" true ")) == ["true", "true"]
    assert apply_one(["x"], "tags", ColumnRule(value="a, b")) == [["a", "b"]]
    assert apply_one(["x"], "phone", ColumnRule(value="")) == [None]


def test_values_replace_whole_cells_and_leave_others_as_they_are() -> None:
    rule = ColumnRule(column="cell", values={" M ": "male", "F": "female", "-": ""})
    assert apply_one(["M", " F", "m", "-", "", None], "gender", rule) == ["male", "female", "m", None, None, None]


def test_an_empty_or_missing_cell_can_be_given_a_value() -> None:
    assert apply_one(["", None, "no"], "is_active", ColumnRule(column="cell", values={"": "true"})) == [
        "true", "true", "no",
    ]  # fmt: skip


def test_an_apostrophe_before_a_number_is_dropped_where_the_rule_says_so() -> None:
    cells: list[str | None] = ["'62", " '+31 6", "'10001-1", "''62", "'s-Gravenhage", "6'2", "'", "", None]
    dropping = ColumnRule(column="cell", is_apostrophe_dropped=True)
    kept = ["''62", "'s-Gravenhage", "6'2", "'", None, None]
    assert apply_one(cells, "phone", dropping) == ["62", "+31 6", "10001-1", *kept]
    assert apply_one(cells, "phone", ColumnRule(column="cell")) == ["'62", "'+31 6", "'10001-1", *kept]


@pytest.mark.parametrize(
    ("cell", "form", "date"),
    [
        ("29/02/2000", "%d/%m/%Y", "2000-02-29"),
        ("1.2.1999", "%d.%m.%Y", "1999-02-01"),
        ("2001-02-03T04:05:06", "%Y-%m-%dT%H:%M:%S", "2001-02-03"),
        ("31/02/2000", "%d/%m/%Y", "31/02/2000"),
        ("2000-02-29", "%d/%m/%Y", "2000-02-29"),
        ("soon", "%d/%m/%Y", "soon"),
        ("", "%d/%m/%Y", None),
        ("2000-02-29 00:00:00", "%d/%m/%Y", "2000-02-29"),
    ],
)
def test_dates_are_read_by_their_format_or_left_for_validation(cell: str, form: str, date: str | None) -> None:
    assert apply_one([cell], "birthday", ColumnRule(column="cell", format=(form,))) == [date]


@pytest.mark.parametrize(
    ("cell", "date"),
    [
        ("1980-02-29T00:00:00", "1980-02-29"),
        ("1980-02-29 00:00:00.000", "1980-02-29"),
        ("1980-02-29T00:00:00+00:00", "1980-02-29"),
        ("1980-02-29T00:00:00.000Z", "1980-02-29"),
        ("1980-02-29T00:00", "1980-02-29"),
        ("1980-02-29T00:00:00+01:00", "1980-02-29T00:00:00+01:00"),  # the day before, for whoever keeps it in UTC
        ("1980-02-29T23:00:00", "1980-02-29T23:00:00"),
    ],
)
def test_a_birthday_that_comes_as_its_midnight_is_that_day(cell: str, date: str) -> None:
    assert apply_one([cell], "birthday", ColumnRule(column="cell")) == [date]
    assert apply_one([cell], "first_name", ColumnRule(column="cell")) == [cell]


@pytest.mark.parametrize(
    ("cell", "split", "tags"),
    [
        ("a", None, ["a"]),
        ("a, b ,,c,", None, ["a", "b", "c"]),
        ("a|b, c", "|", ["a", "b, c"]),
        ("* myContacts ::: Friends", ":::", ["* myContacts", "Friends"]),
        ("", None, None),
        (" , ", None, None),
        (None, None, None),
        ('["a, b", " c ", ""]', None, ["a, b", "c"]),
        ('["a|b"]', "|", ["a|b"]),
        ("[]", None, []),
        ("[a], b", None, ["[a]", "b"]),
        ('["a", null, 7, 1.50, true]', None, ["a", "7", "1.5", "true"]),  # an array of a database
        ('[{"name": "a"}]', None, ['[{"name": "a"}]']),
        (r'["\ud800"]', None, [r'["\ud800"]']),
        ('"VIP","Paris, France"', None, ["VIP", "Paris, France"]),
        ('"half open, b', None, ["half open, b"]),
        ('"a" b\nc, d', None, ['"a" b\nc', "d"]),
        ('"', None, None),
    ],
)
def test_tags(cell: str | None, split: str | None, tags: list[str] | None) -> None:
    alone = apply_one([cell], "tags", ColumnRule(column="cell", split=split))
    among = apply_one(["x", cell, '["y"]', None, "z"], "tags", ColumnRule(column="cell", split=split))
    assert alone == [tags]
    assert among == [["x"], tags, ["y"], None, ["z"]]


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.strip).filter(bool))))
def test_tags_written_as_json_come_back_as_they_were(lists: list[list[str]]) -> None:
    cells: list[str | None] = [json.dumps(tags, ensure_ascii=len(tags) % 2 == 0) for tags in lists]
    assert apply_one(cells, "tags", ColumnRule(column="cell")) == lists


def test_an_empty_chunk_keeps_its_types() -> None:
    mapping = FieldMapping({"email": ColumnRule(column="a"), "tags": ColumnRule(column="a"),
                            "birthday": ColumnRule(column="a", format=("%Y",)), "gender": ColumnRule(value="male"),
                            "phone": ColumnRule(column="a", values={"x": "y"})})  # fmt: skip
    mapped = apply_mapping(build_frame(a=[]), mapping).frame
    assert len(mapped) == 0
    assert {str(dtype) for dtype in mapped.dtypes} == {"str", "list<item: string>[pyarrow]"}


def test_the_rows_keep_their_index() -> None:
    frame = build_frame(a=["x", "y, z"]).set_axis([7, 9])
    mapped = apply_mapping(frame, FieldMapping({"email": ColumnRule(column="a"), "tags": ColumnRule(column="a")})).frame
    assert mapped.index.tolist() == [7, 9]
    assert mapped["email"].tolist() == ["x", "y, z"]


def test_a_column_that_the_frame_lacks_is_told() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean email"):
        apply_mapping(build_frame(email=["a"]), FieldMapping({"email": ColumnRule(column="Email")}))
