"""Guesses of `init` about columns by headers and cells, and the drafted job."""

from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import example, given, strategies as st

from connector.jobs.build import build_mapping
from connector.jobs.draft import GuessedField, draft_job, guess_fields
from connector.jobs.reader import load_job
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping

TODAY = date(2026, 11, 21)
EMAILS = ["ann@x.org", "bo@x.org", "cy@x.org", "di@x.org"]


def guess(**columns: list[str]) -> dict[str, GuessedField]:
    frame = pd.DataFrame({name.replace("_", " "): pd.Series(cells, dtype="str") for name, cells in columns.items()})
    return {guess_field.name: guess_field for guess_field in guess_fields(frame, TODAY)}


def guess_one(header: str, cells: list[str]) -> GuessedField | None:
    """Return the guess about a column beside a column of addresses."""
    found = guess(email=(EMAILS * len(cells))[: len(cells)], **{header: cells})
    return next((each for name, each in found.items() if name != "email"), None)


@pytest.mark.parametrize(
    ("header", "cells", "name", "rule", "sureness"),
    [
        ("First Name", ["Ann", "Bo"], "first_name", {}, "sure"),
        ("Phone", ["", ""], "phone", {}, "sure"),
        ("Tags", ["a|b", "c|d", "e,f|g"], "tags", {"split": "|"}, "sure"),
        ("Tags", ["a,b", "c"], "tags", {}, "sure"),
        ("Gender", ["M", "F", ""], "gender", {"values": {"M": "male", "F": "female"}}, "sure"),
        ("Gender", ["male", "Female"], "gender", {}, "sure"),
        ("Gender", ["m", "f", "?"], "gender", {"values": {"m": "male", "f": "female"}}, "likely"),
        ("Sexo", ["H", "M"], "gender", {"values": {"M": "male"}}, "unsure"),
        ("Geslacht", ["V", "M"], "gender", {"values": {"V": "female", "M": "male"}}, "likely"),
        ("x", ["m", "f"], "gender", {"values": {"m": "male", "f": "female"}}, "likely"),
        ("Birthday", ["1990-01-31"], "birthday", {}, "sure"),
        ("Birthday", ["31.01.1990", "1.2.1985"], "birthday", {"format": ("%d.%m.%Y",)}, "sure"),
        ("Birthday", ["01/31/1990", "02/03/1985"], "birthday", {"format": ("%m/%d/%Y",)}, "sure"),
        ("Birthday", ["02/03/1985", "04/05/1986"], "birthday", {"format": ("%d/%m/%Y",)}, "unsure"),
        ("Birthday", ["May 5, 1985"], "birthday", {"format": ("%b %d, %Y",)}, "sure"),
        ("Birthday", ["02/28", "03/01"], "birthday", {}, "unsure"),
        ("dob", ["31-01-1990"], "birthday", {"format": ("%d-%m-%Y",)}, "likely"),
        ("Land", ["Germany", "NL", "Duitsland"], "address_country", {}, "likely"),
        ("tel", ["030 1234567", "(030) 765-4321"], "phone", {}, "sure"),
        ("x", ["+49 30 1234567", "030 7654321"], "phone", {}, "likely"),
    ],
)  # fmt: skip
def test_a_column_is_mapped_by_its_header_and_its_cells(
    header: str, cells: list[str], name: str, rule: dict[str, object], sureness: str
) -> None:
    found = guess_one(header, cells)
    assert found is not None
    assert (found.name, found.sureness) == (name, sureness)
    assert found.rule == ColumnRule(column=header, **rule)  # type: ignore[arg-type] # as it is written above


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("created", ["2024-01-02", "2025-03-04"]),
        ("x", ["1990-01-31", "1970-12-01"]),
        ("lang", ["de", "nl"]),
        ("x", ["0012345", "0012346"]),
        ("note", ["she called", "no answer"]),
        ("total", ["12.50", "0"]),
        ("id", ["0035g", "0036h"]),
        ("empty", ["", ""]),
    ],
)
def test_a_column_of_other_values_is_not_mapped(header: str, cells: list[str]) -> None:
    assert guess_one(header, cells) is None


def test_addresses_are_found_under_any_header() -> None:
    found = guess(Kontakt=[*EMAILS, "none"], Plan=["a"] * 5)
    assert list(found) == ["email"]
    assert (found["email"].rule.column, found["email"].sureness) == ("Kontakt", "likely")
    assert found["email"].reason == "by its cells; 4 of 5 cells fit"
    assert found["email"].samples == tuple(EMAILS[:3])


def test_cells_overrule_a_header_that_they_contradict() -> None:
    found = guess(Email=["yes", "no", "yes", "no"], Kontakt=EMAILS)
    assert (found["email"].rule.column, found["email"].sureness) == ("Kontakt", "likely")
    assert guess(Email=["yes", "no"])["email"].sureness == "unsure"


@pytest.mark.parametrize("header", ["Name", "Full Name", "\"Name'", "{{Name}}"])
def test_whole_names_are_mapped_unsplit_with_two_unsure_templates_that_split_them(header: str) -> None:
    cells = ["Ann Mary Lee", "Dr. Bo Vos", "Cher"]
    frame = pd.DataFrame({"email": EMAILS[:3], header: cells}, dtype="str")
    _, whole, *split = guess_fields(frame, TODAY)
    assert (whole.name, whole.rule, whole.sureness) == ("first_name", ColumnRule(column=header), "likely")
    names = apply_mapping(frame, FieldMapping({each.name: each.rule for each in split})).frame
    assert names.fillna("").to_numpy().tolist() == [["Ann Mary Lee", ""], ["Bo", "Vos"], ["Cher", ""]]
    assert [each.sureness for each in split] == ["unsure", "unsure"]
    assert [each.samples[1] for each in split] == ["Dr. Bo Vos → Bo", "Dr. Bo Vos → Vos"]
    assert len(guess_fields(frame.assign(first_name="a"), TODAY)) == 2


# The drafted job

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
WORD = TEXT.map(str.strip).filter(bool)  # blanks at their ends apart, each must be another
RULES = (
    st.builds(ColumnRule, column=TEXT)
    | st.builds(ColumnRule, column=TEXT, values=st.none() | st.dictionaries(WORD, TEXT, min_size=1, max_size=3))
    | st.builds(ColumnRule, template=TEXT.filter(lambda text: not set(text) & set("{}#%")))
)


def draft(guesses: list[GuessedField], unmapped: list[str], name: str = "x") -> str:
    source = [("file", ""), ("path", "a.csv")]
    return draft_job(name, "job.yaml", source, ("id", "7"), "email", guesses, unmapped)


def load(text: str) -> FieldMapping:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(text, encoding="utf-8")
        subscriber = load_job(path, {}).subscriber
    assert subscriber is not None
    mapping = build_mapping(subscriber)
    assert mapping is not None
    return mapping


@example("${A}", ColumnRule(template="{{ row['a\\\\'] }}"), '"', ["#", "a: b", "\x85\u2028\x7f"])
@given(TEXT, RULES, TEXT, st.lists(TEXT, max_size=2))
def test_a_drafted_job_with_any_headers_is_read_back_unchanged(
    email: str, rule: ColumnRule, tag: str, unmapped: list[str]
) -> None:
    rules = {
        "email": ColumnRule(column=email),
        "first_name": rule,
        "tags": ColumnRule(column=tag, split="|"),
        "birthday": ColumnRule(column=tag, format=("%d.%m.%Y",)),
    }
    guesses = [GuessedField(name, each, "likely", "by its header", ("secret",)) for name, each in rules.items()]
    text = draft(guesses, unmapped)
    assert load(text) == FieldMapping(rules)
    assert "secret" not in text


def test_an_unsure_guess_is_a_comment_and_the_draft_holds_no_cell() -> None:
    frame = pd.DataFrame({"email": ["ann@x.org"], "Birthday": ["02/03/1990"], "Phone": ["+49 30 1234567"]}, dtype="str")
    text = draft(list(guess_fields(frame, TODAY)), ["Birthday"])
    assert list(load(text).rules) == ["email", "phone"]
    assert '# birthday: {column: Birthday, format: "%d/%m/%Y"}  # unsure: by its header; 1 of 1 cells fit; ' in text
    assert '"%d/%m/%Y"' in text
    assert not any(cell in text for cell in ("ann@", "02/03", "1234567"))
