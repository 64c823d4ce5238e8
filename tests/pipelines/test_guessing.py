"""`init` guesses the field of each column from its header and its cells, and drafts a job."""

from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import example, given, strategies as st

from connector.jobs.draft import GuessedField, draft_job, guess_fields
from connector.jobs.load_planner import build_mapping
from connector.jobs.reader import load_job
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping

TODAY = date(2026, 11, 21)
EMAILS = ["ann@x.org", "bo@x.org", "cy@x.org", "di@x.org"]


def guess_columns(**columns: list[str]) -> dict[str, GuessedField]:
    frame = pd.DataFrame({name.replace("_", " "): pd.Series(cells, dtype="str") for name, cells in columns.items()})
    return {guessed_field.name: guessed_field for guessed_field in guess_fields(frame, TODAY)}


def guess_field_of_column(header: str, cells: list[str]) -> GuessedField | None:
    """Return the guess for this column in a table that also has a column of email addresses."""
    guessed_fields = guess_columns(email=(EMAILS * len(cells))[: len(cells)], **{header: cells})
    return next((guessed_field for name, guessed_field in guessed_fields.items() if name != "email"), None)


@pytest.mark.parametrize(
    ("header", "cells", "name", "rule", "confidence"),
    [
        ("First Name", ["Ann", "Bo"], "first_name", {}, "sure"),
        ("Phone", ["", ""], "phone", {}, "sure"),
        ("Tags", ["a|b", "c|d", "e,f|g"], "tags", {"split": "|"}, "sure"),
        ("Tags", ["a,b", "c"], "tags", {}, "sure"),
        ("Gender", ["M", "F", ""], "gender", {"values": {"M": "male", "F": "female"}}, "sure"),
        ("Gender", ["m", "f", "divers"], "gender", {"values": {"m": "male", "f": "female"}}, "likely"),
        ("Sexo", ["H", "M"], "gender", {"values": {"M": "male"}}, "unsure"),
        ("x", ["m", "f"], "gender", {"values": {"m": "male", "f": "female"}}, "likely"),
        ("Birthday", ["1990-01-31"], "birthday", {}, "sure"),
        ("Birthday", ["31.01.1990", "1.2.1985"], "birthday", {"format": ("%d.%m.%Y",)}, "sure"),
        ("Birthday", ["01/31/1990", "02/03/1985"], "birthday", {"format": ("%m/%d/%Y",)}, "sure"),
        ("Birthday", ["02/03/1985", "04/05/1986"], "birthday", {"format": ("%d/%m/%Y",)}, "unsure"),
        ("Birthday", ["02/28", "03/01"], "birthday", {}, "unsure"),
        ("dob", ["31-01-1990"], "birthday", {"format": ("%d-%m-%Y",)}, "likely"),
        ("Land", ["Germany", "NL", "Duitsland"], "address_country", {}, "likely"),
        ("tel", ["030 1234567", "(030) 765-4321"], "phone", {}, "sure"),
        ("x", ["+49 30 1234567", "030 7654321"], "phone", {}, "likely"),
    ],
)  # fmt: skip
def test_a_column_is_mapped_by_its_header_and_its_cells(
    header: str, cells: list[str], name: str, rule: dict[str, object], confidence: str
) -> None:
    guessed_field = guess_field_of_column(header, cells)
    assert guessed_field is not None
    assert (guessed_field.name, guessed_field.confidence) == (name, confidence)
    assert guessed_field.rule == ColumnRule(column=header, **rule)  # type: ignore[arg-type] # as it is written above


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("created", ["2024-01-02", "2025-03-04"]),
        ("x", ["1990-01-31", "1970-12-01"]),
        ("x", ["0012345", "0012346"]),
        ("note", ["she called", "no answer"]),
        ("empty", ["", ""]),
    ],
)
def test_a_column_whose_header_and_cells_fit_no_field_is_not_mapped(header: str, cells: list[str]) -> None:
    assert guess_field_of_column(header, cells) is None


def test_addresses_are_found_under_any_header() -> None:
    guessed_fields = guess_columns(Kontakt=[*EMAILS, "none"], Plan=["a"] * 5)
    assert list(guessed_fields) == ["email"]
    assert (guessed_fields["email"].rule.column, guessed_fields["email"].confidence) == ("Kontakt", "likely")
    assert guessed_fields["email"].reason == "by its cells; 4 of 5 cells fit"
    assert guessed_fields["email"].samples == tuple(EMAILS[:3])


def test_dates_of_subscriptions_do_not_decide_who_is_active() -> None:
    dates = ["2024-01-01", "2024-01-02"]
    guess = guess_columns(email=EMAILS[:2], Subscribed=dates, Unsubscribed=["", "2024-02-01"])["is_active"]
    assert (guess.confidence, guess.rule.columns) == ("sure", ("Unsubscribed",))


def test_cells_have_precedence_over_a_contradicting_header() -> None:
    guessed_fields = guess_columns(Email=["yes", "no", "yes", "no"], Kontakt=EMAILS)
    assert (guessed_fields["email"].rule.column, guessed_fields["email"].confidence) == ("Kontakt", "likely")
    assert guess_columns(Email=["yes", "no"])["email"].confidence == "unsure"


@pytest.mark.parametrize("header", ["Name", "Full Name", "\"Name'", "{{Name}}"])
def test_a_drafted_job_proposes_two_templates_for_a_column_of_whole_names(header: str) -> None:
    cells = ["Ann Mary Lee", "Dr. Bo Vos", "Cher"]
    frame = pd.DataFrame({"email": EMAILS[:3], header: cells}, dtype="str")
    _, unsplit_field, *split_fields = guess_fields(frame, TODAY)
    assert unsplit_field.name == "first_name"
    assert unsplit_field.rule == ColumnRule(column=header)
    assert unsplit_field.confidence == "likely"
    names = apply_mapping(
        frame, FieldMapping({guessed_field.name: guessed_field.rule for guessed_field in split_fields})
    ).frame
    assert names.fillna("").to_numpy().tolist() == [["Ann Mary Lee", ""], ["Bo", "Vos"], ["Cher", ""]]
    assert [guessed_field.confidence for guessed_field in split_fields] == ["unsure", "unsure"]
    assert [guessed_field.samples[1] for guessed_field in split_fields] == ["Dr. Bo Vos → Bo", "Dr. Bo Vos → Vos"]
    assert len(guess_fields(frame.assign(first_name="a"), TODAY)) == 2


# The drafted job

TEXT_STRATEGY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
WORD_STRATEGY = TEXT_STRATEGY.map(str.strip).filter(bool)  # values must differ after blanks at their ends are removed
RULE_STRATEGY = (
    st.builds(ColumnRule, column=TEXT_STRATEGY)
    | st.builds(
        ColumnRule,
        column=TEXT_STRATEGY,
        values=st.none() | st.dictionaries(WORD_STRATEGY, TEXT_STRATEGY, min_size=1, max_size=3),
    )
    | st.builds(ColumnRule, template=TEXT_STRATEGY.filter(lambda text: not set(text) & set("{}#%")))
)


def write_draft(guessed_fields: list[GuessedField], unmapped_columns: list[str], name: str = "x") -> str:
    source = [("file", ""), ("path", "a.csv")]
    return draft_job(name, "job.yaml", source, ("id", "7"), "email", guessed_fields, unmapped_columns)


def load_mapping(text: str) -> FieldMapping:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(text, encoding="utf-8")
        subscriber = load_job(path, {}).subscriber
    assert subscriber is not None
    mapping = build_mapping(subscriber)
    assert mapping is not None
    return mapping


@example("${A}", ColumnRule(template="{{ row['a\\\\'] }}"), '"', ["#", "a: b", "\x85\u2028\x7f"])
@given(TEXT_STRATEGY, RULE_STRATEGY, TEXT_STRATEGY, st.lists(TEXT_STRATEGY, max_size=2))
def test_a_drafted_job_with_any_headers_is_read_back_unchanged(
    email_column: str, rule: ColumnRule, tag_column: str, unmapped_columns: list[str]
) -> None:
    rules = {
        "email": ColumnRule(column=email_column),
        "first_name": rule,
        "tags": ColumnRule(column=tag_column, split="|"),
        "birthday": ColumnRule(column=tag_column, format=("%d.%m.%Y",)),
    }
    guessed_fields = [
        GuessedField(name, field_rule, "likely", "by its header", ("secret",)) for name, field_rule in rules.items()
    ]
    text = write_draft(guessed_fields, unmapped_columns)
    assert load_mapping(text) == FieldMapping(rules)
    assert "secret" not in text


def test_an_unsure_guess_is_a_comment_in_the_drafted_job() -> None:
    frame = pd.DataFrame({"email": ["ann@x.org"], "Birthday": ["02/03/1990"], "Phone": ["+49 30 1234567"]}, dtype="str")
    text = write_draft(list(guess_fields(frame, TODAY)), ["Birthday"])
    assert list(load_mapping(text).rules) == ["email", "phone"]
    assert '# birthday: {column: Birthday, format: "%d/%m/%Y"}  # unsure: by its header; 1 of 1 cells fit; ' in text
    assert '"%d/%m/%Y"' in text
    assert not any(cell in text for cell in ("ann@", "02/03", "1234567"))
