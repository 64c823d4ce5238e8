"""The vectorised checks against the slow ones that they stand in for."""

import json
from datetime import date, timedelta

import pyarrow as pa
import pycountry
import pytest
from email_validator import EmailNotValidError, validate_email
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.validation.cells import is_free_of_controls
from connector.validation.dates import is_date
from connector.validation.emails import is_email
from connector.validation.words import read_countries
from connector.validation.zips import is_sendable_zip

_part = st.text(alphabet="aZ0._+-'é", min_size=1, max_size=8)
_addresses = st.builds("{}@{}".format, _part, st.lists(_part, min_size=1, max_size=3).map(".".join)) | st.sampled_from(
    ["a@x.test", "a@x.local", "a@" + "b" * 63 + ".com", "a" * 64 + "@x.com", "a" * 65 + "@x.com", "a@1.2.3.com"]
)


def build_cells(texts: list[str] | list[str | None]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def is_valid(text: str) -> bool:
    try:
        validate_email(text, check_deliverability=False, allow_smtputf8=True, test_environment=True, strict=True)
    except EmailNotValidError:
        return False
    return True


@settings(deadline=None)  # a shared machine keeps none
@given(st.lists(_addresses, max_size=5))
def test_an_address_is_plain_only_if_email_validator_takes_it_too(texts: list[str]) -> None:
    assert is_email(build_cells(texts)).to_pylist() == [is_valid(text) for text in texts]


def test_a_missing_address_is_neither_right_nor_wrong() -> None:
    assert is_email(build_cells([None, "a@x.com", None, "é"])).to_pylist() == [None, True, None, False]
    assert is_email(build_cells([])).to_pylist() == []


def test_every_day_of_four_centuries_is_a_date_and_no_other_is() -> None:
    days = [date(1800, 1, 1) + timedelta(days=day) for day in range(400 * 366)]
    texts = [f"{year}-{month:02}-{day:02}" for year in range(1800, 2200) for month in range(14) for day in range(33)]
    real = {day.isoformat() for day in days}
    assert is_date(build_cells(texts)).to_pylist() == [text in real for text in texts]


@settings(deadline=None)  # a shared machine keeps none
@given(st.lists(st.none() | st.text(alphabet="0123456789-", max_size=11) | st.dates().map(date.isoformat), max_size=8))
def test_dates_are_what_python_says(texts: list[str | None]) -> None:
    assert is_date(build_cells(texts)).to_pylist() == [text if text is None else is_iso(text) for text in texts]


def is_iso(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


@settings(deadline=None)  # a shared machine keeps none
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.none(), max_size=8), st.integers(0, 3)
)
def test_controls_are_found_wherever_they_are(texts: list[str | None], start: int) -> None:
    expected = [text is None or not any(ord(sign) < 32 and sign not in "\t\n\r" for sign in text) for text in texts]
    found = is_free_of_controls(build_cells(texts).slice(start)).to_pylist()
    assert [one is None or one for one in found] == expected[start:]


@settings(deadline=None)  # a shared machine keeps none
@given(st.integers(-10, 2**64) | st.sampled_from([2**53 - 1, 2**53, 10**15, 10**16]))
def test_a_zip_is_sendable_if_any_reader_of_json_gives_it_back(number: int) -> None:
    survives = number >= 0 and str(int(float(number))) == str(number) and number < 2**53
    assert is_sendable_zip(build_cells([str(number)])).to_pylist() == [survives]
    if survives:
        assert json.loads(json.dumps(number)) == number


@pytest.mark.parametrize("case", [str.lower, str.upper, str.title])
def test_every_country_is_known_by_codes_and_names(case: object) -> None:
    assert callable(case)
    for country in pycountry.countries:
        words = [case(word) for word in (country.alpha_2, country.alpha_3, country.name)]
        assert read_countries(build_cells(words)).to_pylist() == [country.alpha_2] * 3
