"""`--map` above the guess, and rules that cannot be."""

import pytest

from connector.errors import ConfigurationError
from connector.subscribers import ColumnRule, FieldMapping, guess_mapping, override_mapping, require_columns

COLUMNS = ["Email", "Phone", "Mail", "Labels"]


def test_an_override_changes_its_field_and_no_other() -> None:
    mapping = override_mapping(guess_mapping(COLUMNS), {"email": "Mail", "custom_field1": "Phone"}, COLUMNS)
    assert {name: rule.column for name, rule in mapping.rules.items()} == {
        "email": "Mail", "phone": "Phone", "tags": "Labels", "custom_field1": "Phone",
    }  # fmt: skip


def test_an_override_keeps_what_its_header_tells_of_tags() -> None:
    mapping = override_mapping(guess_mapping(["Email"]), {"tags": "Labels"}, COLUMNS)
    assert mapping.rules["tags"].split == ":::"


def test_an_override_keeps_what_the_headers_tell_of_apostrophes() -> None:
    columns = ["Email", "Customer ID", "Accepts Email Marketing"]
    mapping = override_mapping(guess_mapping(columns), {"phone": "Customer ID"}, columns)
    assert mapping.rules["phone"].is_apostrophe_dropped
    assert not mapping.rules["email"].is_apostrophe_dropped


def test_an_empty_column_unmaps_a_field() -> None:
    mapping = override_mapping(guess_mapping(COLUMNS), {"phone": ""}, COLUMNS)
    assert "phone" not in mapping.rules


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"emial": "Mail"}, ["field 'emial'", "Did you mean email?", "client_user_id"]),
        ({"base_id": "Mail"}, ["field 'base_id'"]),
        ({"email": "mial"}, ["column 'mial'", "Did you mean", "Mail", "Email, Phone, Mail, Labels"]),
        ({"email": "mail"}, ["Did you mean Mail"]),
    ],
)
def test_what_does_not_exist_is_told_with_what_does(overrides: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        override_mapping(guess_mapping(COLUMNS), overrides, COLUMNS)
    assert all(word in str(caught.value) for word in words)


def test_every_missing_column_is_told_at_once() -> None:
    mapping = FieldMapping({"email": ColumnRule(column="A"), "phone": ColumnRule(column="B")})
    with pytest.raises(ConfigurationError, match=r"'A'.*'B'"):
        require_columns(mapping, COLUMNS)


@pytest.mark.parametrize(
    "given",
    [{}, {"column": "a", "value": "b"}, {"column": "a", "split": ""}, {"value": "\ud800"}],
)
def test_a_rule_that_cannot_be_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        ColumnRule(column=given.get("column"), value=given.get("value"), split=given.get("split"))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("id", ColumnRule(column="a")),
        ("base_name", ColumnRule(value="a")),
        ("nothing", ColumnRule(column="a")),
        ("email", ColumnRule(column="a", split="|")),
        ("email", ColumnRule(column="a", format=("%Y",))),
    ],
)
def test_a_rule_that_does_not_fit_its_field_is_refused(name: str, rule: ColumnRule) -> None:
    with pytest.raises(ConfigurationError, match=name):
        FieldMapping({name: rule})


def test_a_mapping_stays_as_it_was_made() -> None:
    values = {"M": "male"}
    rules = {"gender": ColumnRule(column="sex", values=values)}
    mapping = FieldMapping(rules)
    values["M"] = "female"
    rules.clear()
    assert dict(mapping.rules["gender"].values or {}) == {"M": "male"}
