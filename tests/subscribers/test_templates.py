"""A field made by a template: of the row's columns, and a row that it fails for costs that row alone."""

import subprocess
import sys

import pytest

from connector.errors import ConfigurationError
from connector.outcomes import Fault
from connector.subscribers import ColumnRule, FieldMapping, MappedChunk, apply_mapping
from tests.subscribers.test_apply import build_frame, to_plain

LONGEST = 10_000
COLUMNS: dict[str, list[str | None]] = {
    "first": [" Ann "],
    "last": ["O'Neil <b>"],
    "First Name": ["Zoë"],
    "empty": [None],
}


def fill(template: str, **columns: list[str | None]) -> MappedChunk:
    return apply_mapping(
        build_frame(**(columns or COLUMNS)), FieldMapping({"first_name": ColumnRule(template=template)})
    )


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


@pytest.mark.parametrize(
    ("template", "words"),
    [("{{ a", "line 1, cannot be read"), ("x" * (LONGEST + 1), "at most 10,000"), ("{{ row[a] }}", "name the column")],
)
def test_what_is_no_template_is_no_rule(template: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        ColumnRule(template=template)


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
        "import sys\nfrom connector.subscribers import ColumnRule\n"
        "ColumnRule(column='a')\nprint('jinja2' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
