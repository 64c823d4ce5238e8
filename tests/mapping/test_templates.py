"""Templates: what they make of a row, what they cannot hold, and that a row they fail for costs that row alone."""

import subprocess
import sys

import pytest

from connector.errors import ConfigurationError
from connector.mapping import ColumnRule, FieldMapping, Mapped, apply_mapping
from connector.mapping.templates import LONGEST
from connector.outcomes import Fault
from tests.mapping.test_apply import build_frame, to_plain

COLUMNS: dict[str, list[str | None]] = {
    "first": [" Ann "],
    "last": ["O'Neil <b>"],
    "First Name": ["Zoë"],
    "empty": [None],
}


def fill(template: str, **columns: list[str | None]) -> Mapped:
    return apply_mapping(
        build_frame(**(columns or COLUMNS)), FieldMapping({"first_name": ColumnRule(template=template)})
    )


def fill_one(template: str, **columns: list[str | None]) -> object:
    mapped = fill(template, **columns)
    assert mapped.faults == ()
    return to_plain(mapped.frame["first_name"].iloc[0])


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ first }} {{ last }}", "Ann O'Neil <b>"),
        ("{{ row['First Name'] }}", "Zoë"),
        ("{{ row['first'] ~ '/' ~ last }}", "Ann/O'Neil <b>"),
        ("{{ empty }}", None),
        ("  ", None),
        ("Hello", "Hello"),
        ("{{ first[:1] }}. {{ last }}", "A. O'Neil <b>"),
        ("{{ first[0] }}", "A"),
        ("{{ first[-1] }}{{ first[-2:] }}", "nnn"),
        ("{{ first|upper|replace('NN', 'x') }}", "Ax"),
        ("{{ empty|default('friend', true) }}", "friend"),
        ("{% if empty %}a{% elif last|length > 3 and not empty %}b{% else %}c{% endif %}", "b"),
        ("{{ 'Ms' if first == 'Ann' else 'Mr' }}", "Ms"),
    ],
)
def test_a_template_is_filled_in_with_a_rows_columns(template: str, text: str | None) -> None:
    assert fill_one(template) == text


@pytest.mark.parametrize("times", [20, 36, 37, 38, 39, 60])
@pytest.mark.parametrize(
    ("before", "core", "after"),
    [("not ", "a", ""), ("-", "1", ""), ("", "a", "|upper"), ("", "a", "[:1]"), ("(a~", "a", ")"), ("a > ", "a", ""),
     ("a if a else ", "a", "")],
)  # fmt: skip
def test_a_template_is_either_refused_or_can_be_filled_in(before: str, core: str, after: str, times: int) -> None:
    text = "{{ " + before * times + core + after * times + " }}"
    try:
        ColumnRule(template=text)
    except ConfigurationError as error:
        assert "nested too deeply" in str(error)  # noqa: PT017 - either will do
        return
    fill(text, a=["x"])


def test_each_row_has_its_own_text() -> None:
    mapped = fill("{{ a }}-{{ b }}", a=["1", None, ""], b=["x", "y", None])
    assert [to_plain(cell) for cell in mapped.frame["first_name"]] == ["1-x", "-y", "-"]


def test_the_columns_of_a_template_are_the_mappings() -> None:
    rule = ColumnRule(template="{{ a }} {{ row['b c'] }} {% if d %}{{ a }}{% endif %}")
    assert FieldMapping({"first_name": rule, "phone": ColumnRule(column="a")}).columns == ("a", "b c", "d")
    with pytest.raises(ConfigurationError, match="'b c'"):
        fill("{{ row['b c'] }}", a=["x"])


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ a", "cannot be read"),
        ("{{ a|nosuch }}", "no filter"),
        ("{{ a|attr('x') }}", "no filter 'attr'"),
        ("{{ a.upper() }}", "a call"),
        ("{{ a.__class__ }}", "an attribute, .__class__"),
        ("{{ row.__class__ }}", "an attribute, .__class__"),
        ("{{ row[a] }}", "must name its column as a text"),
        ("{{ row }}", "must name its column as a text"),
        ("{{ a['upper'] }}", "by number"),
        ("{{ a[b] }}", "by number"),
        ("{{ a[b:] }}", "by number"),
        ("{{ range(9) }}", "a call"),
        ("{% for x in a %}{{ x }}{% endfor %}", "a loop"),
        ("{{ a * 1000000000 }}", "Mul"),
        ("{{ '%999999999d' % 1 }}", "Mod"),
        ("{{ 9 ** 99999999 }}", "Pow"),
        ("{% set a = 1 %}", "an assignment"),
        ("{% include 'x' %}", "Include"),
        ("{% import 'x' as y %}", "Import"),
        ("{% macro f() %}{% endmacro %}", "Macro"),
        ("{{ a is defined }}", "a test"),
        ("{{ [a, a] }}", "List"),
        ("{{ a }}" * 400, "at most 2,000 characters"),
        ("{{ " + "(" * 900 + "a" + ")" * 900 + " }}", "nested too deeply"),
        ("{{ " + "not " * 480 + "a }}", "nested too deeply"),
        ("{{ " + "-" * 900 + "1 }}", "nested too deeply"),
        ("{{ a" + "|upper" * 300 + " }}", "nested too deeply"),
        ("{{ a" + "[0]" * 400 + " }}", "nested too deeply"),
        ("{{ self }}", "a column of that name is"),
        ("{{ '\ud800' }}", "half a character"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_what_could_reach_out_or_run_long_is_no_template(template: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words.replace("(", r"\(")):
        ColumnRule(template=template)


@pytest.mark.parametrize(
    ("template", "cell", "words"),
    [
        ("{{ a[0] }}", "", "asks for something that this row does not have"),
        ("{{ a|first }}", "", "asks for something that this row does not have"),
        ("{{ a[6] }}", "secret", "asks for something that this row does not have"),
        ("{% if a > 3 %}x{% endif %}", "secret", "fails for this row (TypeError)"),
        ("{{ a|replace('a', a) }}", "a" * 200, "makes more than 10,000 characters of this row"),
        ("{{ a }}{{ a }}", "s" * (LONGEST // 2 + 1), "makes more than 10,000 characters of this row"),
        ("{{ a[:1] }}", "s" * (LONGEST + 1), "reads a cell of more than 10,000 characters"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_a_row_for_which_a_template_fails_is_told_without_its_data(template: str, cell: str, words: str) -> None:
    mapped = fill(template, a=[cell])
    assert mapped.frame["first_name"].isna().tolist() == [True]
    assert mapped.faults == (Fault(0, "first_name", "template", f"FirstName: the template {words}"),)


def test_a_row_for_which_a_template_fails_costs_that_row_alone() -> None:
    mapped = fill("{{ a[0] }}", a=["x1", "", "y2", None])
    assert [to_plain(cell) for cell in mapped.frame["first_name"]] == ["x", None, "y", None]
    assert [fault.position for fault in mapped.faults] == [1, 3]


@pytest.mark.parametrize("length", [LONGEST, LONGEST + 1])
def test_a_replacement_is_bounded_before_it_is_made(length: int) -> None:
    mapped = fill("{{ a|replace('', 'x' ~ a)|length }}", a=["y" * 98])  # 98 + 99 * 99 characters
    assert mapped.frame["first_name"].tolist() == ["9899"]
    assert bool(fill("{{ a }}", a=["x" * length]).faults) == (length > LONGEST)


def test_without_the_library_a_template_says_what_to_install() -> None:
    script = (
        "import sys\nsys.modules['jinja2'] = None  # as if it were not installed\n"
        "from connector.mapping import ColumnRule\nColumnRule(column='a')\nColumnRule(template='x')"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'subscriber-connector[template]'" in ended.stderr.splitlines()[-1]
