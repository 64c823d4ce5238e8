"""`${NAME}` in values: replaced once, as text, and never silently empty."""

import pytest

from pipelines.jobs.reader import fill_in, parse_document

FILLED = [
    ("a: ${X}", "one"),
    ("a: '${X} and ${Y}'", "one and two"),
    ("a: ${E}", ""),
    ("a: $X", "$X"),
    ("a: $${X}", "${X}"),
    ("a: $$${X}", "$${X}"),
    ("a: 'costs $5'", "costs $5"),
    ("a: ${NESTED}", "${X}"),
    ("a: ${KEYS}", "{b: [1, 2]}\nc: d"),
]
ENVIRON = {"X": "one", "Y": "two", "E": "", "NESTED": "${X}", "KEYS": "{b: [1, 2]}\nc: d"}


@pytest.mark.parametrize(("text", "value"), FILLED)
def test_a_reference_becomes_the_variables_text_and_nothing_more(text: str, value: str) -> None:
    document = fill_in(parse_document(text), ENVIRON)
    assert document.values == {"a": value}
    assert document.faults == ()


def test_references_are_filled_in_at_any_depth_but_not_in_keys() -> None:
    document = fill_in(parse_document("a: {b: [x, '${X}']}\n'${X}': c\n"), ENVIRON)
    assert document.values == {"a": {"b": ["x", "one"]}, "${X}": "c"}


def test_a_variable_that_is_not_set_is_named_with_its_key_and_line() -> None:
    document = fill_in(parse_document("job: x\nsource:\n  url: ${CRM_URL}\n"), {})
    (fault,) = document.faults
    assert (fault.keys, fault.line) == (("source", "url"), 3)
    assert "set CRM_URL" in fault.message


@pytest.mark.parametrize("text", ["a: ${}", "a: ${A-B}", "a: ${X", "a: ${ X }", "a: ${1X}"])
def test_what_is_no_name_is_refused(text: str) -> None:
    (fault,) = fill_in(parse_document(text), ENVIRON).faults
    assert "begins the name of an environment variable" in fault.message
