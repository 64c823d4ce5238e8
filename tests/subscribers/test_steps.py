"""What becomes of a cell on its way into a field: each step alone, and their order."""

import pandas as pd
import pytest
from hypothesis import given, strategies as st

from connector.errors import ConfigurationError
from connector.subscribers import ColumnRule, FieldMapping, JoinRule, apply_mapping
from tests.subscribers.test_apply import apply_one, build_frame, to_plain

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def join(separator: str, *columns: list[str | None], is_trimmed: bool = True) -> list[object]:
    names = [f"c{place}" for place in range(len(columns))]
    frame = pd.DataFrame({name: pd.Series(cells, dtype="str") for name, cells in zip(names, columns, strict=True)})
    rule = ColumnRule(join=JoinRule(tuple(names), separator), is_trimmed=is_trimmed)
    return [
        to_plain(cell) for cell in apply_mapping(frame, FieldMapping({"address_line1": rule})).frame["address_line1"]
    ]


@pytest.mark.parametrize(
    ("cell", "split_at", "parts"),
    [  # first, rest, start, last
        ("Ann Lee", " ", ("Ann", "Lee", "Ann", "Lee")),
        ("Ann Mary Lee", " ", ("Ann", "Mary Lee", "Ann Mary", "Lee")),
        ("Madonna", " ", ("Madonna", None, "Madonna", None)),
        (" Ann  Lee ", " ", ("Ann", "Lee", "Ann", "Lee")),
        ("Lee, Ann", ",", ("Lee", "Ann", "Lee", "Ann")),
        (",Ann", ",", (None, "Ann", None, "Ann")),
        ("Lee,", ",", ("Lee", None, "Lee", None)),
        ("a--b--c", "--", ("a", "b--c", "a--b", "c")),
        ("Zoë·Ünal", "·", ("Zoë", "Ünal", "Zoë", "Ünal")),
        ("a.b", ".", ("a", "b", "a", "b")),
        ("", " ", (None, None, None, None)),
        (None, " ", (None, None, None, None)),
    ],
)
def test_a_cell_that_holds_two_values_gives_either(
    cell: str | None, split_at: str, parts: tuple[str | None, ...]
) -> None:
    for part, expected in zip(("first", "rest", "start", "last"), parts, strict=True):
        rule = ColumnRule(column="cell", split_at=split_at, part=part)  # type: ignore[arg-type] # one of the four
        assert apply_one([cell], "first_name", rule) == [expected]
        assert apply_one(["x", cell, None, "y z"], "first_name", rule)[1] == expected


@given(st.lists(st.text(alphabet="ab -é", max_size=9), max_size=5), st.sampled_from([" ", "-", "ab", "é"]))
def test_the_two_parts_are_all_there_was(cells: list[str | None], split_at: str) -> None:
    for head, tail in (("first", "rest"), ("start", "last")):
        ahead, behind = (
            apply_one(cells, "phone", ColumnRule(column="cell", split_at=split_at, part=part, is_trimmed=False))  # type: ignore[arg-type] # one of the four
            for part in (head, tail)
        )
        for cell, one, other in zip(cells, ahead, behind, strict=True):
            assert cell is not None
            whole = f"{one or ''}{split_at}{other or ''}" if split_at in cell else f"{one or ''}"
            assert whole == cell


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("Main St", "5", "b"), "Main St 5 b"),
        (("Main St", "", "b"), "Main St b"),
        ((None, " 5 ", None), "5"),
        (("", None, "  "), None),
    ],
)
def test_a_join_leaves_out_what_is_empty(cells: tuple[str | None, ...], expected: str | None) -> None:
    assert join(" ", *([cell] for cell in cells)) == [expected]
    assert join(" ", *([cell, "x"] for cell in cells)) == [expected, "x x x"]


def test_a_join_may_have_any_separator_and_name_a_column_twice() -> None:
    assert join(", ", ["a"], ["b"]) == ["a, b"]
    assert join("", ["a"], ["b"]) == ["ab"]
    rule = ColumnRule(join=JoinRule(("a", "a"), "-"))
    assert rule.columns == ("a",)
    assert apply_mapping(build_frame(a=["x"]), FieldMapping({"phone": rule})).frame["phone"].tolist() == ["x-x"]


@given(st.lists(st.tuples(TEXT, TEXT), max_size=6), st.sampled_from([" ", "", " / "]))
def test_a_join_is_what_python_joins(rows: list[tuple[str, str]], separator: str) -> None:
    first, second = [one for one, _ in rows], [other for _, other in rows]
    expected = [separator.join(cell for cell in row if cell) or None for row in rows]
    assert join(separator, list(first), list(second), is_trimmed=False) == expected


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


def test_a_part_that_is_not_there_is_given_the_default() -> None:
    rule = ColumnRule(column="cell", split_at=" ", part="rest", default="-")
    assert apply_one(["Ann Lee", "Madonna", None], "last_name", rule) == ["Lee", "-", "-"]


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
        column="cell", split_at=":", part="rest", case="lower", values={"m": "male", "f": "female"}, default="male"
    )
    assert apply_one(["sex: M ", "sex:F", "sex:", "none"], "gender", rule) == ["male", "female", "male", "male"]
    joined = ColumnRule(join=JoinRule(("y", "m", "d"), "-"), format=("%Y-%m-%d",))
    frame = build_frame(y=["1990", "1990"], m=["2", "2"], d=["3", "31"])
    assert apply_mapping(frame, FieldMapping({"birthday": joined})).frame["birthday"].tolist() == [
        "1990-02-03",
        "1990-2-31",
    ]


@pytest.mark.parametrize(
    "given",
    [{}, {"column": "a", "join": JoinRule(("a", "b"))}, {"column": "a", "part": "middle", "split_at": " "},
     {"column": "a", "case": "Title"}, {"column": "a", "split_at": " "}, {"column": "a", "default": ""},
     {"value": "a", "default": "b"}, {"column": "a", "values": {" ": "x"}, "default": "b"},
     {"column": "a", "default": "\ud800"}, {"column": "a", "values": {"M": "male", "M ": "female"}},
     {"column": "a", "case": "lower", "values": {"M": "male"}}, {"column": "a", "case": "upper", "values": {"m": "x"}}],
    ids=str,
)  # fmt: skip
def test_a_rule_that_makes_no_sense_cannot_be_made(given: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        ColumnRule(**given)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize(
    "rule",
    [ColumnRule(column="a", split_at=" ", part="last"), ColumnRule(column="a", case="title", default="x"),
     ColumnRule(join=JoinRule(("a", "b"))), ColumnRule(template="{{ a }}"), ColumnRule(column="a", is_trimmed=False)],
)  # fmt: skip
def test_a_chunk_without_rows_stays_one(rule: ColumnRule) -> None:
    mapped = apply_mapping(build_frame(a=[], b=[]), FieldMapping({"first_name": rule})).frame
    assert (len(mapped), str(mapped["first_name"].dtype)) == (0, "str")
