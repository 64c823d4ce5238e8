"""The reading of YAML: values stay texts, faults have line numbers, and `${NAME}` is replaced in values."""

import pytest

from connector.jobs.reader import parse_document, replace_references


def test_unquoted_values_of_the_yaml_stay_texts() -> None:
    document = parse_document("a: no\nb: 007\nc: 1e3\nd: true\ne: 2026-01-02\n1: x\nyes: y\n")
    assert document.values == {"a": "no", "b": "007", "c": "1e3", "d": "true", "e": "2026-01-02", "1": "x", "yes": "y"}
    assert document.faults == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [("a:", None), ("a: ~", None), ("a: null", None), ("a: ''", ""), ("a: '~'", "~"), ("a: 'null'", "null")],
)
def test_an_empty_value_is_none_and_a_quoted_value_is_text(text: str, value: str | None) -> None:
    assert parse_document(text).values == {"a": value}


FAULTY_DOCUMENTS = [
    ("", None, "the file is empty"),
    ("# only a comment\n", None, "the file is empty"),
    ("- a\n- b\n", 1, "the file must contain keys"),
    ("just text", 1, "the file must contain keys"),
    ("job: x\nload: {a: 1\n", 3, "this is not YAML"),
    ("job: x\n\tload: 1\n", 2, "this is not YAML"),
    ("job: x\nurl: {a: ${CRM_URL}}\n", 2, 'into quotes: "${NAME}"'),
    ("job: x\n---\njob: y\n", 2, "single document"),
    ("job: \x01\n", None, "a character that YAML does not allow"),
    ("job: x\nload: {a: 1}\njob: y\n", 3, "is set twice: first in line 1"),
    ("job: x\nload:\n  ? [a, b]\n  : c\n", 3, "a key must be a single text"),
    ("job: !secret x\n", 1, "the tag !secret is not known"),
    ("job: !!python/object:os.system x\n", None, ""),
    ("a: &x {b: 1}\nc:\n  d: *x\n", 3, "aliases (*name) are not allowed"),
    ("a: &x {b: *x}\n", 1, "aliases (*name) are not allowed"),
]


@pytest.mark.parametrize(("text", "line", "expected_text"), FAULTY_DOCUMENTS)
def test_the_message_about_a_fault_of_the_yaml_has_the_line(text: str, line: int | None, expected_text: str) -> None:
    faults = parse_document(text).faults
    if expected_text:
        assert [(fault.line, expected_text in fault.message) for fault in faults] == [(line, True)]
    else:  # a tag that only PyYAML knows has no effect, and is not a fault
        assert parse_document(text).values == {"job": "x"}


def test_a_document_with_too_much_nesting_is_refused() -> None:
    assert "nested too deeply" in parse_document("a: " + "[" * 1_000 + "]" * 1_000).faults[0].message


def test_the_repr_of_a_document_shows_no_text_of_the_file() -> None:
    document = parse_document("source: {url: postgresql://u:hunter2@db/x, ${OOPS}}\n")
    assert "hunter2" not in repr(document)
    assert "hunter2" not in repr(parse_document("url: postgresql://u:hunter2@db/x"))


TEXTS_WITH_REFERENCES = [
    ("a: ${X}", "one"),
    ("a: '${X} and ${Y}'", "one and two"),
    ("a: ${E}", ""),
    ("a: $X", "$X"),
    ("a: $${X}", "${X}"),
    ("a: $$${X}", "$${X}"),
    ("a: 'costs $5'", "costs $5"),
    ("a: ${NESTED}", "${X}"),
    ("a: ${KEYS}", "{b: [1, 2]}\nc: d"),
    ("a: {b: [x, '${X}'], '${X}': c}", {"b": ["x", "one"], "${X}": "c"}),
]
ENVIRON = {"X": "one", "Y": "two", "E": "", "NESTED": "${X}", "KEYS": "{b: [1, 2]}\nc: d"}


@pytest.mark.parametrize(("text", "value"), TEXTS_WITH_REFERENCES)
def test_a_reference_is_replaced_by_the_text_of_the_variable(text: str, value: object) -> None:
    document = replace_references(parse_document(text), ENVIRON)
    assert document.values == {"a": value}
    assert document.faults == ()


@pytest.mark.parametrize("text", ["a: ${}", "a: ${A-B}", "a: ${X", "a: ${ X }", "a: ${1X}"])
def test_a_reference_with_an_invalid_name_is_refused(text: str) -> None:
    (fault,) = replace_references(parse_document(text), ENVIRON).faults
    assert "starts the name of an environment variable" in fault.message
