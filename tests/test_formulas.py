"""Cells that a spreadsheet would carry out."""

import pytest

from connector.formulas import guard_formula


@pytest.mark.parametrize("text", ["=1+1", "+49 30", "-5", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_a_formula_stands_behind_an_apostrophe(text: str) -> None:
    assert guard_formula(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "Ann", "'=1", "a=1", " =1", "5"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert guard_formula(text) == text
