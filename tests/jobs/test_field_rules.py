"""Contradictory rules in `subscriber.fields`: the message has the key, and the source is not read."""

import re
import textwrap
from pathlib import Path

import pytest

from connector.jobs.load_planner import build_mapping
from tests.jobs.test_loading import read_faulty_job, read_job

JOB = """\
job: x
source: {file: {path: people.csv}}
subscriber:
  base: {id: 7}
  fields:
    email: mail
"""

RULE_FAULTS = [  # the rule of first_name, and a part of the message
    ("{}", "needs exactly one of column, value and template"),
    ("{column: a, value: b}", "needs exactly one of column, value and template"),
    ("{template: '{{ a }}', column: c}", "needs exactly one of column, value and template"),
    ("{value: a, values: {a: b}}", "value is a constant, so there is no cell to read: leave out values"),
    ("{value: a, case: upper, default: b}", "so there is no cell to read: leave out case and default"),
    ("{value: a, trim: false}", "value is a constant, so there is no cell to read: leave out trim"),
    ("{column: a, trim: perhaps}", "first_name.trim: must be true or false, not 'perhaps'"),
    ("{column: a, case: camel}", "first_name.case: must be lower, upper or title, not 'camel'"),
    ('{value: "\\ud800"}', "one text holds half a character"),
    ('{column: a, default: "\\ud800"}', "first_name.default: "),
    ("{column: a, case: lower, values: {M: male}}", "no cell can be 'M', because case: lower is applied first"),
    ("{column: a, case: upper, values: {m: x}}", "no cell can be 'm', because case: upper is applied first"),
    ("{column: a, values: {'': b}, default: c}", "both replace an empty cell; keep one of them"),
    ("{column: a, default: ''}", "first_name.default: must not be empty"),
    ("{column: a, values: {a: \"\\ud800\"}}", "one text holds half a character"),
    ("{column: a, split: ','}", "split is for tags; to use a part of a cell, write a template"),
    ("{column: a, format: ['%Y-%m-%d', '%d/%m']}", "format must give year, month and day, such as %d/%m/%Y"),
    ("{column: a, e164: DE}", "first_name: e164 is for phone"),
    ("{template: '{{ a'}", "the template, line 1, cannot be read: "),
    ("{template: '{{ row[a] }}'}", "the template, line 1, must name the column after row, in quotes"),
]  # fmt: skip

FIELD_FAULTS = [  # the text of the fields, and a part of the message
    (
        "email: {column: e, default: a@x.com}",
        "email: this field identifies a subscriber, and one default for many rows",
    ),
    ("email: {value: a@x.com}", "email: this field identifies a subscriber, and one value for many rows"),
    ("email: {column: e, trim: false}", "email: trim: false is for texts only; remove it"),
    ("email: e\n    tags: {column: t, split: ''}", "tags.split: must not be empty"),
    ("email: e\n    tags: {column: t, trim: false}", "tags: trim: false is for texts"),
    ("email: e\n    phone: {column: t, e164: Germany}", "phone.e164.region: must be two letters, such as DE"),
    ("email: e\n    phone: {column: t, e164: {region: DE, otherwise: drop}}", "otherwise: must be reject or keep, not"),
]


@pytest.mark.parametrize(("rule", "expected_text"), RULE_FAULTS, ids=[rule for rule, _ in RULE_FAULTS])
def test_a_contradictory_rule_is_refused(tmp_path: Path, rule: str, expected_text: str) -> None:
    message = read_faulty_job(tmp_path, f"{JOB}    first_name: {rule}\n")
    assert (expected_text in message, "faults" in message) == (True, False)  # the message about one fault is not a list


@pytest.mark.parametrize(
    ("fields", "expected_text"), FIELD_FAULTS, ids=[expected_text for _, expected_text in FIELD_FAULTS]
)
def test_a_rule_that_does_not_fit_its_field_is_refused(tmp_path: Path, fields: str, expected_text: str) -> None:
    assert expected_text in read_faulty_job(tmp_path, JOB.replace("email: mail", fields))


def test_the_documented_rules_can_be_loaded(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "sources.md").read_text(encoding="utf-8")
    (fields,) = re.findall(r"```yaml\n(fields:.*?)```", page, re.DOTALL)
    subscriber = read_job(tmp_path, JOB.partition("  fields:")[0] + textwrap.indent(fields, "  ")).subscriber
    assert subscriber is not None
    mapping = build_mapping(subscriber)
    assert mapping is not None
    assert {"name", "street", "first", "Last Name"} <= set(mapping.columns)
