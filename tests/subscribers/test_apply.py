"""A mapping converts columns of text to fields: each step of a rule, and the order of the steps."""

import json
import re
from datetime import date
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, strategies as st

from connector.errors import ConfigurationError
from connector.fields import SENT_FIELDS
from connector.outcomes import Fault
from connector.subscribers.mapping import MappedChunk, apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping
from tests.field_values import IS_DASH_MISSING_BY_KIND


def build_frame(**columns: list[str | None]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(cells, dtype="str") for name, cells in columns.items()})


def apply_rule(cells: list[str | None], field: str, rule: ColumnRule) -> list[object]:
    mapped_rows = apply_mapping(build_frame(cell=cells), FieldMapping({field: rule})).frame
    return [convert_to_python(cell) for cell in mapped_rows[field]]


def convert_to_python(cell: object) -> object:
    if pd.api.types.is_list_like(cell):
        return list(cell)  # type: ignore[call-overload] # pandas has checked that the cell is a list
    return None if pd.isna(cell) else cell  # type: ignore[call-overload] # the cell is a scalar here


def test_columns_become_fields_in_the_order_of_the_field_table() -> None:
    frame = build_frame(Mail=["a@x.com"], Vorname=["Ann"], Rest=["x"])
    mapping = FieldMapping({"first_name": ColumnRule(column="Vorname"), "email": ColumnRule(column="Mail")})
    mapped_rows = apply_mapping(frame, mapping).frame
    assert mapped_rows.to_dict("list") == {"email": ["a@x.com"], "first_name": ["Ann"]}
    assert [str(dtype) for dtype in mapped_rows.dtypes] == ["str", "str"]


APOSTROPHES = ["'62", " '+31 6", "'10001-1", "''62", "'s-Gravenhage", "6'2", "'", "", None]
DATE_FORMATS = ("%d/%m/%Y", "%m/%d/%Y", "%Y-%m-%d", "%d %b %Y")
RULES_AND_CELLS: list[tuple[str, dict[str, Any], list[str | None], list[object]]] = [
    # Each case: the field, the options of the rule, the cells, and the expected values.
    ("phone", {}, [" a ", "\u00a0b\u2003", "", "  ", None, "007", "NA", "-"],
     ["a", "b", None, None, None, "007", None, None]),
    ("client_user_id", {}, ["-", "?", "NA", "A-7"], [None, None, None, "A-7"]),
    ("address_country", {}, ["-", "NA"], [None, "NA"]),
    ("birthday", {}, ["-", "NA", "1990-02-28"], [None, None, "1990-02-28"]),
    ("phone", {"is_trimmed": False}, [" a ", "  ", "", None], [" a ", "  ", None, None]),
    ("phone", {"is_trimmed": False, "values": {" a ": " b "}}, [" a ", "a", "  "], [" b ", "a", "  "]),
    ("phone", {}, APOSTROPHES, ["62", "+31 6", "10001-1", "''62", "'s-Gravenhage", "6'2", "'", None, None]),
    ("address_city", {}, APOSTROPHES, ["'62", "+31 6", "'10001-1", "''62", "'s-Gravenhage", "6'2", "'", None, None]),
    ("custom_field1", {}, ["'=1+1", "''=1", "'@a", "'-5", "'n Huis", "=1"],
     ["=1+1", "'=1", "@a", "-5", "'n Huis", "=1"]),
    ("last_name", {}, ["NULL", "None", " nan ", "N/A", "\\N", "<NA>", "#N/A", "#N/D", "Null", "Nan", "NA", "none"],
     [*[None] * 8, "Null", "Nan", "NA", "none"]),
    ("last_name", {"values": {"N/A": "?"}, "default": "-"}, ["NULL", "N/A"], ["-", "?"]),
    ("last_name", {"values": {"None": "None", "nan": "Nan"}}, ["NULL", " None", "nan"], [None, "None", "Nan"]),
    ("first_name", {}, ["True", "Inf", "Infinity", "NONE", "none", "Na"],
     ["True", "Inf", "Infinity", "NONE", "none", "Na"]),
    ("last_name", {}, ["M&uuml;ller", "O&#39;Brien", "AT&amp;T", "O&amp;#x27;Neil", "&nbsp;Lee&nbsp;", "R&D;x", "&"],
     ["Müller", "O'Brien", "AT&T", "O'Neil", "Lee", "R&D;x", "&"]),
    ("email", {}, ["o&#39;brien@x.org"], ["o'brien@x.org"]),
    ("last_name", {}, [r"O\'Brien", r'Ann \"Bo\" Lee', r"O\\'Neil", r"C:\x"],
     ["O'Brien", 'Ann "Bo" Lee', "O'Neil", r"C:\x"]),
    ("last_name", {}, ['"Ann"', '"Ann" "Bo"', '"', '""'], ["Ann", '"Ann" "Bo"', '"', None]),
    ("custom_field1", {}, ['"Ann"'], ['"Ann"']),
    ("tags", {}, [r'["a\"b", "R&amp;D"]', r"O\'Brien"], [['a"b', "R&D"], ["O'Brien"]]),
    ("phone", {}, ["p:+49151", "tel:+49 151", "49151123456,0", "00:49"], ["+49151", "+49 151", "49151123456", "00:49"]),
    ("address_zip", {}, ["z:10115"], ["10115"]),
    ("birthday", {}, ["0000-00-00", "0000-00-00 00:00:00"], [None, None]),
    ("birthday", {"format": ["%m/%d/%y"]}, ["0/0/00", "2/28/90"], [None, "1990-02-28"]),
    ("gender", {}, ["Unspecified", "Prefer not to say", "male"], [None, None, "male"]),
    ("gender", {"values": {"Unspecified": "female"}}, ["Unspecified"], ["female"]),
    ("custom_field1", {}, ["Unspecified", "0/0/00"], ["Unspecified", "0/0/00"]),
    ("tags", {}, ["R&amp;D, VIP"], [["R&D", "VIP"]]),
    ("custom_field1", {}, ["<b>R&amp;D</b>"], ["<b>R&amp;D</b>"]),
    ("client_user_id", {}, ["a&amp;b"], ["a&amp;b"]),
    ("tags", {}, ["[2024.0, 2.5, -0.125, 7, true]"], [["2024", "2.5", "-0.125", "7", "true"]]),
    ("tags", {}, ["NULL", "None, a"], [None, ["None", "a"]]),
    ("custom_field1", {}, ["NULL", "None"], ["NULL", "None"]),
    ("phone", {}, ['="0151"', '="', "491511234567.0", "1234.0", "+49151.0", "49151.00", "030.1234"],
     ["0151", '="', "491511234567", "1234.0", "+49151", "49151", "030.1234"]),
    ("client_user_id", {}, ['="007"', "42.0", "1\u200b2", "\ufeff7", "\uff17"], ["007", "42.0", "12", "7", "7"]),
    ("email", {}, ["'ann'@x.org", "''ann'@x.org'", "'o'neil@x.org'"], ["'ann'@x.org", "''ann'@x.org'", "o'neil@x.org"]),
    ("email", {},
     ["'a@x.org", "'a@x.org'", "a\u200b@x.org", "\ufeffa@x.org", "\uff41@x.org", "o'neil@x.org", "\u00a0a@x.org"],
     ["a@x.org", "a@x.org", "a@x.org", "a@x.org", "a@x.org", "o'neil@x.org", "a@x.org"]),
    ("phone", {}, ["\u202a+49 151\u202c", "\uff0b\uff14\uff19", "+49\u00ad151", "\u200e"],
     ["+49 151", "+49", "+49151", None]),
    ("first_name", {}, ["\u200bAnn\u200e\u00a0", "می\u200cخواهم", "\ufeff", "An\u00adn", "\u202eAnn\u202c"],
     ["Ann", "می\u200cخواهم", None, "An\u00adn", "Ann"]),
    ("first_name", {}, ["\u0d2e\u0d4b\u0d39\u0d28\u0d4d\u200d ", "Ann\u200d", "\u200d"],
     ["\u0d2e\u0d4b\u0d39\u0d28\u0d4d\u200d", "Ann", None]),
    ("first_name", {"is_trimmed": False}, ["\u200bAnn"], ["\u200bAnn"]),
    ("address_city", {"case": "lower"}, ["ANN o'neil-Lee", "éA", ""], ["ann o'neil-lee", "éa", None]),
    ("address_city", {"case": "upper"}, ["ANN o'neil-Lee", "éA", ""], ["ANN O'NEIL-LEE", "ÉA", None]),
    ("address_city", {"case": "title"}, ["ANN o'neil-Lee", "éA", ""], ["Ann O'Neil-Lee", "Éa", None]),
    ("last_name", {"case": "title"}, ["MU\u0308LLER", "A\u030aNGSTRO\u0308M"], ["Müller", "Ångström"]),
    # A null word is recognised before the case changes.
    ("last_name", {"case": "title"}, ["NULL", "nan", "Null", "ann"], [None, None, "Null", "Ann"]),
    ("last_name", {"case": "upper"}, ["NULL", "nan", "Null", "ann"], [None, None, "NULL", "ANN"]),
    ("last_name", {"case": "lower"}, ["NULL", "nan", "Null", "ann"], [None, None, "null", "ann"]),
    ("last_name", {"case": "title", "values": {"Null": "Null"}}, ["NULL"], ["Null"]),
    ("last_name", {"case": "lower"}, ["E\u0301A"], ["éa"]),
    ("last_name", {"case": "upper"}, ["e\u0301a"], ["ÉA"]),
    ("last_name", {}, ["Mu\u0308ller"], ["Mu\u0308ller"]),
    ("gender", {"values": {" M ": "male", "F": "female", "-": ""}}, ["M", " F", "m", "-", "", None],
     ["male", "female", "m", None, None, None]),
    ("phone", {"values": {}}, ["a"], ["a"]),
    ("is_active", {"values": {"": "true"}}, ["", None, "no"], ["true", "true", "no"]),
    ("address_city", {"default": " friend "}, ["x", "", "  ", None], ["x", "friend", "friend", "friend"]),
    ("address_city", {"values": {"x": ""}, "default": "y"}, ["x", ""], ["y", "y"]),
    ("tags", {"default": "a, b"}, ["x", None], [["x"], ["a", "b"]]),
    ("birthday", {"format": ("%d/%m/%Y",)},
     ["29/02/2000", "31/02/2000", "2000-02-29", "soon", "", "2000-02-29 00:00:00"],
     ["2000-02-29", "31/02/2000", "2000-02-29", "soon", None, "2000-02-29"]),
    ("birthday", {"format": ("%d.%m.%Y",)}, ["1.2.1999"], ["1999-02-01"]),
    ("birthday", {"format": ("%Y-%m-%dT%H:%M:%S",)}, ["2001-02-03T04:05:06"], ["2001-02-03"]),
    ("birthday", {"format": DATE_FORMATS}, ["05/06/1990", "1990-06-05", "5 Jun 1990", "31/31/90"],
     ["1990-06-05", "1990-06-05", "1990-06-05", "31/31/90"]),
    ("birthday", {},  # timestamps: midnight at +01:00 is the day before in UTC
     ["1980-02-29T00:00:00", "1980-02-29 00:00:00.000", "1980-02-29T00:00:00+00:00", "1980-02-29T00:00:00.000Z",
      "1980-02-29 00:00:00+00", "1980-02-29 00:00:00 UTC", "1980-02-29T00:00",
      "1980-02-29T00:00:00+01:00", "1980-02-29T23:00:00"],
     [*["1980-02-29"] * 7, "1980-02-29T00:00:00+01:00", "1980-02-29T23:00:00"]),
    ("address_city", {}, ["1980-02-29T00:00:00"], ["1980-02-29T00:00:00"]),
]  # fmt: skip


def test_a_rule_converts_the_cells_of_its_column() -> None:
    for field, rule_options, cells, expected_values in RULES_AND_CELLS:
        assert apply_rule(cells, field, ColumnRule(column="cell", **rule_options)) == expected_values


def test_a_dash_is_a_missing_value_in_the_fields_of_some_kinds() -> None:
    for field in SENT_FIELDS:
        is_missing = apply_rule(["-"], field.name, ColumnRule(column="cell")) == [None]
        assert is_missing is (field.content.is_digits or IS_DASH_MISSING_BY_KIND[field.kind]), field.name


@pytest.mark.parametrize(
    ("field", "value", "expected_value"),
    [("is_active", " true ", "true"), ("tags", "a, b", ["a", "b"]), ("phone", "", None)],
)
def test_a_constant_is_the_value_of_every_row(field: str, value: str, expected_value: object) -> None:
    assert apply_rule(["x", None], field, ColumnRule(value=value)) == [expected_value] * 2


def test_a_cell_of_tags_is_read_as_a_list() -> None:
    cells_and_tags: list[tuple[str | None, str | None, list[str] | None]] = [
        ("a", None, ["a"]),
        ("a, b ,,c,", None, ["a", "b", "c"]),
        ("a|b, c", "|", ["a", "b, c"]),
        ("* myContacts ::: Friends", ":::", ["* myContacts", "Friends"]),
        ("", None, None),
        (" , ", None, None),
        (None, None, None),
        ('["a, b", " c ", ""]', None, ["a, b", "c"]),
        ('["a|b"]', "|", ["a|b"]),
        ("('vip', 'news')", None, ["vip", "news"]),
        ("{'vip', 'news'}", None, ["vip", "news"]),
        ("(old) VIP", None, ["(old) VIP"]),
        ("a;b|c\nd", ",", ["a;b|c\nd"]),
        ('["a;b"]', None, ["a;b"]),
        ("[]", None, []),
        ("[a], b", None, ["[a]", "b"]),
        ("[VIP]", None, ["[VIP]"]),
        ("[VIP], [news]", None, ["[VIP]", "[news]"]),
        ("[VIP];[O'Neil]", ";", ["[VIP]", "[O'Neil]"]),
        ("{VIP}, {news}", None, ["{VIP}", "{news}"]),
        ("[WIP] Feature, VIP [old]", None, ["[WIP] Feature", "VIP [old]"]),
        ('["a", null, 7, 1.50, true]', None, ["a", "7", "1.5", "true"]),  # an array of a database
        ("['vip', \"d'or\", None, 7]", None, ["vip", "d'or", "7"]),  # a list that Python wrote as text
        # An array that PostgreSQL wrote as text.
        ('{vip,"news, weekly",NULL,"a\\"b", "NULL"}', None, ["vip", "news, weekly", 'a"b', "NULL"]),
        ("{}", None, []),
        ("{a}", None, ["a"]),
        ('"VIP","Paris, France"', None, ["VIP", "Paris, France"]),
        ('"Paris, France"', None, ["Paris, France"]),
        ('"VIP [old, new]","b"', None, ["VIP [old, new]", "b"]),
        ('"half open, b', None, ["half open, b"]),
        ('"a" b\nc, d', None, ['"a" b\nc', "d"]),
        ('"', None, None),
    ]
    for cell, delimiter, expected_tags in cells_and_tags:
        tags_of_single_cell = apply_rule([cell], "tags", ColumnRule(column="cell", split=delimiter))
        tags_among_other_cells = apply_rule(
            ["x", cell, '["y"]', None, "z"], "tags", ColumnRule(column="cell", split=delimiter)
        )
        assert tags_of_single_cell == [expected_tags]
        assert tags_among_other_cells == [["x"], expected_tags, ["y"], None, ["z"]]


def map_tags(*cells: str | None) -> MappedChunk:
    return apply_mapping(build_frame(cell=[*cells]), FieldMapping({"tags": ColumnRule(column="cell")}))


def test_a_list_with_nested_or_broken_values_is_a_fault_and_has_no_tags() -> None:
    for cell in [
        '[{"id": 1, "name": "VIP"}]', '[["a"], ["b"]]', '{"name": "VIP"}', r'["\ud800"]', "[vip, news]",
        "[12345678901234567890123]", "[1e999]",
        "['a', {'b': 1}]", "{{a},{b}}", "{a,{b}}", '{a"b}', "[(1, 2)]",
        '[{"id":1', '"name":"VIP"}]', '"id":1', 'id":1},"x"]', '{"a":1}, {"b":2}', '["VIP","ne', "['a', 'b", "[VIP, ne",
        "['vip' 'news']", "['vip'\n 'news']", "{'vip': 1}", "('vip', 1, (2,))",
        "{vip,new", '["a"], ["b"]', "[VIP, news] x", 'x, ["a"',
    ]:  # fmt: skip
        mapped_rows = map_tags("x", cell, None)
        assert [convert_to_python(tags) for tags in mapped_rows.frame["tags"]] == [["x"], None, None]
        assert [(fault.position, fault.field, fault.code) for fault in mapped_rows.faults] == [(1, "tags", "list")]


def test_tags_with_an_unknown_separator_are_a_fault_whose_message_shows_the_option() -> None:
    for cell in ["VIP;News", "VIP|News", "VIP\nNews", "VIP;"]:
        mapped_rows = map_tags("x", cell, None)
        assert [(fault.position, fault.field, fault.code) for fault in mapped_rows.faults] == [(1, "tags", "split")]
        assert 'split: ";"' in mapped_rows.faults[0].message


_TAGS = (
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
    .map(str.strip)
    .filter(lambda tag: tag and not re.search(r"""&|\\['"]""", tag))
)
"""Tags without `&`, and without a quote after a backslash: the connector would decode these characters."""


@given(st.lists(st.lists(_TAGS)))
def test_tags_in_json_are_read_unchanged(tag_lists: list[list[str]]) -> None:
    cells: list[str | None] = [json.dumps(tags, ensure_ascii=len(tags) % 2 == 0) for tags in tag_lists]
    assert apply_rule(cells, "tags", ColumnRule(column="cell")) == tag_lists


def test_a_birthday_with_a_year_of_two_digits_is_not_in_the_future() -> None:
    cells_and_days: list[tuple[str, str, str]] = [
        ("31.12.45", "%d.%m.%y", "1945-12-31"),
        ("31.12.26", "%d.%m.%y", "1926-12-31"),
        ("24.11.26", "%d.%m.%y", "2026-11-24"),
        ("1/2/68", "%m/%d/%y", "1968-01-02"),
        ("1/2/69", "%m/%d/%y", "1969-01-02"),
        ("01.01.2045", "%d.%m.%Y", "2045-01-01"),
    ]
    for cell, date_format, day in cells_and_days:
        mapping = FieldMapping({"birthday": ColumnRule(column="cell", format=(date_format,))})
        assert apply_mapping(build_frame(cell=[cell]), mapping, today=date(2026, 11, 25)).frame[
            "birthday"
        ].tolist() == [day]


def test_the_fields_of_a_chunk_without_rows_have_their_types() -> None:
    mapping = FieldMapping({"email": ColumnRule(column="a"), "tags": ColumnRule(column="a"),
                            "birthday": ColumnRule(column="a", format=("%Y",)), "gender": ColumnRule(value="male"),
                            "phone": ColumnRule(column="a", values={"x": "y"})})  # fmt: skip
    mapped_rows = apply_mapping(build_frame(a=[]), mapping).frame
    assert len(mapped_rows) == 0
    assert {str(dtype) for dtype in mapped_rows.dtypes} == {"str", "list<item: string>[pyarrow]"}


def test_the_mapping_keeps_the_index_of_the_rows() -> None:
    frame = build_frame(a=["x", "y, z"]).set_axis([7, 9])
    mapped_rows = apply_mapping(
        frame, FieldMapping({"email": ColumnRule(column="a"), "tags": ColumnRule(column="a")})
    ).frame
    assert mapped_rows.index.tolist() == [7, 9]
    assert mapped_rows["email"].tolist() == ["x", "y, z"]


def test_a_column_that_the_frame_lacks_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean email"):
        apply_mapping(build_frame(email=["a"]), FieldMapping({"email": ColumnRule(column="Email")}))


def test_the_steps_of_a_rule_are_applied_in_their_order() -> None:
    rule = ColumnRule(
        template="{{ cell.partition(':')[2] }}", case="lower", values={"m": "male", "f": "female"}, default="male"
    )
    assert apply_rule(["sex: M ", "sex:F", "sex:", "none"], "gender", rule) == ["male", "female", "male", "male"]
    joined_rule = ColumnRule(template="{{ y }}-{{ m }}-{{ d }}", format=("%Y-%m-%d",))
    frame = build_frame(y=["1990", "1990"], m=["2", "2"], d=["3", "31"])
    assert apply_mapping(frame, FieldMapping({"birthday": joined_rule})).frame["birthday"].tolist() == [
        "1990-02-03",
        "1990-2-31",
    ]


def test_a_row_with_a_single_null_word_has_a_fault() -> None:
    """A null word is for example "None", "NULL" or "nan". Several null words in one row are missing values."""
    frame = build_frame(
        first=["Ann", "None", "None", "Eve", "None"],
        last=["None", "Lee", "None", "NULL", "Lee"],
        city=["Bonn", "Bonn", "Bonn", "None", "Bonn"],
        other=["x", None, "", "", " nan "],
    )
    rules = {"first_name": "first", "last_name": "last", "address_city": "city"}
    mapping = FieldMapping({field: ColumnRule(column=column) for field, column in rules.items()})
    mapped_rows = apply_mapping(frame, mapping)
    assert [(fault.position, fault.field, fault.code) for fault in mapped_rows.faults] == [
        (1, "first_name", "null"), (0, "last_name", "null"),
    ]  # fmt: skip
    assert 'values: {"None": ""}' in mapped_rows.faults[0].message
    assert [convert_to_python(cell) for cell in mapped_rows.frame["first_name"]] == ["Ann", None, None, "Eve", None]


def test_several_na_cells_of_one_row_are_missing_values_even_in_names_and_countries() -> None:
    frame = pd.DataFrame(
        {
            "first": ["NA", "NA", "Ann", "Eve"],
            "country": ["DE", "NA", "NA", "NA"],
            "shipping country": ["DE", "NA", "NA", "NA"],
            "note": ["", "", "", "NULL"],
        },
        dtype="str",
    )
    mapping = FieldMapping({"first_name": ColumnRule(column="first"), "address_country": ColumnRule(column="country")})
    mapped_chunk = apply_mapping(frame, mapping)
    assert mapped_chunk.frame["first_name"].fillna("").tolist() == ["NA", "", "Ann", "Eve"]
    assert mapped_chunk.frame["address_country"].fillna("").tolist() == ["DE", "", "NA", "NA"]
    assert mapped_chunk.null_positions == {1}


def apply_template(template: str, **columns: list[str | None]) -> MappedChunk:
    return apply_mapping(build_frame(**columns), FieldMapping({"first_name": ColumnRule(template=template)}))


def test_the_columns_of_a_mapping_include_the_columns_in_its_templates() -> None:
    rule = ColumnRule(template="{{ a }} {{ row['b c'] }} {% if d %}{{ a }}{% endif %}")
    assert FieldMapping({"first_name": rule, "phone": ColumnRule(column="a")}).columns == ("a", "b c", "d")
    with pytest.raises(ConfigurationError, match="'b c'"):
        apply_template("{{ row['b c'] }}", a=["x"])


def test_a_template_that_fails_for_a_row_makes_only_that_row_faulty() -> None:
    mapped_rows = apply_template("{{ a[0] }}", a=["x1", "", "y2", None])
    assert [convert_to_python(cell) for cell in mapped_rows.frame["first_name"]] == ["x", None, "y", None]
    message = "first_name: the template uses in line 1 a value that this row does not have"
    assert mapped_rows.faults == tuple(Fault(row, "first_name", "template", message) for row in (1, 3))
