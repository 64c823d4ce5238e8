"""The mapping at work: text columns in, field columns out, each step of a rule alone and in their order."""

import json
import subprocess
import sys

import pandas as pd
import pytest
from hypothesis import given, strategies as st

from connector.errors import ConfigurationError
from connector.outcomes import Fault
from connector.subscribers.mapping import MappedChunk, apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping


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


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("template", "texts"),
    [
        ("{{ cell.partition(' ')[0] }}", ["Ann", "Madonna", None]),
        ("{{ cell.partition(' ')[2] }}", ["Mary  Lee", None, None]),
        ("{{ cell.rpartition(' ')[0] or cell }}", ["Ann Mary", "Madonna", None]),
        ("{{ cell.rpartition(' ')[2] if ' ' in cell else '' }}", ["Lee", None, None]),
        ("{{ [cell, '', row['cell'], '5'] | select | join(', ') }}", ["Ann Mary  Lee, Ann Mary  Lee, 5",
                                                                     "Madonna, Madonna, 5", "5"]),
    ],
)  # fmt: skip
def test_a_template_splits_and_joins_cells(template: str, texts: list[str | None]) -> None:
    assert apply_one([" Ann Mary  Lee ", "Madonna", None], "first_name", ColumnRule(template=template)) == texts


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        ("lower", ["ann o'neil-lee", "éa", None]),
        ("upper", ["ANN O'NEIL-LEE", "ÉA", None]),
        ("title", ["Ann O'Neil-Lee", "Éa", None]),
    ],
)
def test_case(case: str, texts: list[str | None]) -> None:
    rule = ColumnRule(column="cell", case=case)  # type: ignore[arg-type] # one of the three
    assert apply_one(["ANN o'neil-Lee", "éA", ""], "first_name", rule) == texts


def test_white_space_stays_where_the_rule_says_so() -> None:
    cells: list[str | None] = [" a ", "  ", "", None]
    assert apply_one(cells, "first_name", ColumnRule(column="cell", is_trimmed=False)) == [" a ", "  ", None, None]
    kept = ColumnRule(column="cell", is_trimmed=False, values={" a ": " b "})
    assert apply_one(cells, "first_name", kept) == [" b ", "  ", None, None]


@pytest.mark.parametrize(
    ("field", "rule", "expected"),
    [
        ("first_name", ColumnRule(column="cell", default=" friend "), ["x", "friend", "friend", "friend"]),
        ("first_name", ColumnRule(column="cell", values={"x": ""}, default="y"), ["y", "y", "y", "y"]),
        ("tags", ColumnRule(column="cell", default="a, b"), [["x"], ["a", "b"], ["a", "b"], ["a", "b"]]),
    ],
)
def test_a_default_stands_for_what_is_empty_in_the_end(field: str, rule: ColumnRule, expected: list[object]) -> None:
    assert apply_one(["x", "", "  ", None], field, rule) == expected


@pytest.mark.parametrize(
    ("cell", "date"),
    [
        ("05/06/1990", "1990-06-05"),
        ("1990-06-05", "1990-06-05"),
        ("5 Jun 1990", "1990-06-05"),
        ("31/31/90", "31/31/90"),
    ],
)
def test_of_several_ways_to_write_a_date_the_first_that_fits_counts(cell: str, date: str) -> None:
    rule = ColumnRule(column="cell", format=("%d/%m/%Y", "%m/%d/%Y", "%Y-%m-%d", "%d %b %Y"))
    assert apply_one([cell], "birthday", rule) == [date]


def test_the_steps_go_in_their_order() -> None:
    rule = ColumnRule(
        template="{{ cell.partition(':')[2] }}", case="lower", values={"m": "male", "f": "female"}, default="male"
    )
    assert apply_one(["sex: M ", "sex:F", "sex:", "none"], "gender", rule) == ["male", "female", "male", "male"]
    joined = ColumnRule(template="{{ y }}-{{ m }}-{{ d }}", format=("%Y-%m-%d",))
    frame = build_frame(y=["1990", "1990"], m=["2", "2"], d=["3", "31"])
    assert apply_mapping(frame, FieldMapping({"birthday": joined})).frame["birthday"].tolist() == [
        "1990-02-03",
        "1990-2-31",
    ]


@pytest.mark.parametrize(
    "rule",
    [ColumnRule(column="a", case="title", default="x"), ColumnRule(template="{{ a }}"),
     ColumnRule(column="a", is_trimmed=False)],
)  # fmt: skip
def test_a_chunk_without_rows_stays_one(rule: ColumnRule) -> None:
    mapped = apply_mapping(build_frame(a=[], b=[]), FieldMapping({"first_name": rule})).frame
    assert (len(mapped), str(mapped["first_name"].dtype)) == (0, "str")


LONGEST = 10_000
CELLS: dict[str, list[str | None]] = {
    "first": [" Ann "],
    "last": ["O'Neil <b>"],
    "First Name": ["Zoë"],
    "empty": [None],
}


def fill(template: str, **columns: list[str | None]) -> MappedChunk:
    return apply_mapping(build_frame(**(columns or CELLS)), FieldMapping({"first_name": ColumnRule(template=template)}))


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ first }} {{ last }}", "Ann O'Neil <b>"),
        ("{{ row['First Name'] }}", "Zoë"),
        ("{{ empty }}", None),
        ("  ", None),
        ("Hello\n", "Hello"),
        ("{{ first[:1] }}. {{ last.upper() }}", "A. O'NEIL <B>"),
        ("{{ empty|default('friend', true) }}", "friend"),
    ],
)
def test_a_template_is_filled_in_with_a_rows_columns(template: str, text: str | None) -> None:
    mapped = fill(template)
    assert (to_plain(mapped.frame["first_name"].iloc[0]), mapped.faults) == (text, ())


def test_each_row_has_its_own_text() -> None:
    mapped = fill("{{ a }}-{{ b }}", a=["1", None, ""], b=["x", "y", None])
    assert [to_plain(cell) for cell in mapped.frame["first_name"]] == ["1-x", "-y", "-"]


def test_the_columns_of_a_template_are_the_mappings() -> None:
    rule = ColumnRule(template="{{ a }} {{ row['b c'] }} {% if d %}{{ a }}{% endif %}")
    assert FieldMapping({"first_name": rule, "phone": ColumnRule(column="a")}).columns == ("a", "b c", "d")
    with pytest.raises(ConfigurationError, match="'b c'"):
        fill("{{ row['b c'] }}", a=["x"])


def test_a_template_of_more_than_10_000_characters_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at most 10,000"):
        ColumnRule(template="x" * (LONGEST + 1))


@pytest.mark.parametrize(
    ("template", "cell", "words"),
    [
        ("{{ a[6] }}", "secret", "asks in line 1 for something that this row does not have"),
        ("{% if a > 3 %}x{% endif %}", "secret", "fails in line 1 for this row (TypeError)"),
        (
            "{{ a }}{{ a }}",
            "s" * (LONGEST // 2 + 1),
            "has more than 10,000 characters to read or to write for this row",
        ),
        ("{{ a[:1] }}", "s" * (LONGEST + 1), "has more than 10,000 characters to read or to write for this row"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_a_row_for_which_a_template_fails_is_reported_without_its_data(template: str, cell: str, words: str) -> None:
    mapped = fill(template, a=[cell])
    assert mapped.frame["first_name"].isna().tolist() == [True]
    assert mapped.faults == (Fault(0, "first_name", "template", f"FirstName: the template {words}"),)


def test_a_row_for_which_a_template_fails_costs_that_row_alone() -> None:
    mapped = fill("{{ a[0] }}", a=["x1", "", "y2", None])
    assert [to_plain(cell) for cell in mapped.frame["first_name"]] == ["x", None, "y", None]
    assert [fault.position for fault in mapped.faults] == [1, 3]


def test_a_mapping_without_a_template_does_not_load_jinja() -> None:
    script = (
        "import sys\nfrom connector.subscribers.rules import ColumnRule\n"
        "ColumnRule(column='a')\nprint('jinja2' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
