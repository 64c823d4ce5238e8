"""Birthdays without a year, as address books have them: a day that cannot be sent, of a person who can be."""

from datetime import date

import pandas as pd
import pytest

from connector.subscribers import ValidationRules, ValidRows, validate_rows


def validate(birthdays: list[str | None], **rules: object) -> ValidRows:
    frame = pd.DataFrame({"email": [f"p{n}@x.com" for n in range(len(birthdays))], "birthday": birthdays}, dtype="str")
    return validate_rows(frame, ValidationRules(**rules), today=date(2026, 11, 22))  # type: ignore[arg-type] # as given


@pytest.mark.parametrize("day", ["--05-12", "--0512", "--02-29"])
def test_it_is_left_out_and_counted(day: str) -> None:
    validated = validate(["1980-02-29", day, None])
    assert validated.faults == ()
    assert validated.subscribers["birthday"].fillna("").tolist() == ["1980-02-29", "", ""]
    assert validated.yearless.tolist() == [1]


@pytest.mark.parametrize("day", ["-05-12", "05-12", "--5-12", "--05-12-1980", "1604-05-12", "--aa-bb", "12.05."])
def test_what_is_written_otherwise_is_a_fault_as_before(day: str) -> None:
    validated = validate([day])
    assert [fault.field for fault in validated.faults] == ["birthday"]
    assert validated.yearless.tolist() == []


def test_of_rows_with_a_fault_it_is_not_counted() -> None:
    frame = pd.DataFrame({"email": ["a@x.com", "nobody", "c@x.com"], "birthday": ["--05-12"] * 3}, dtype="str")
    validated = validate_rows(frame, ValidationRules(), today=date(2026, 11, 22))
    assert (len(validated.faults), validated.yearless.tolist()) == (1, [0, 2])


def test_a_job_that_requires_birthdays_requires_whole_ones() -> None:
    validated = validate(["--05-12"], required=frozenset({"birthday"}))
    assert [(fault.field, fault.code) for fault in validated.faults] == [("birthday", "required")]
    assert validated.yearless.tolist() == []
