"""Compares the checks of whole columns with slow checks of single values, and tests the schemas of the field table."""

import json
from datetime import date, timedelta

import pandas as pd
import pandera.errors
import pyarrow as pa
import pycountry
import pytest
from email_validator import EmailNotValidError, validate_email
from hypothesis import given, strategies as st

from connector.fields import FIELD_NAMES, FIELDS
from connector.subscribers.checks import (
    CONTROL_CHARACTER_PATTERN,
    CONTROL_CHARACTERS,
    LARGEST_TEXT_LENGTH,
    TEXT,
    mark_dates,
    mark_emails,
    mark_not_matching,
    mark_sendable_zips,
    mark_short_texts,
)
from connector.subscribers.countries import find_country, list_whole_names, simplify_name
from connector.subscribers.validation import build_listed_schema, read_phones

ADDRESS_PARTS = st.text(alphabet="aZ0._+-'é", min_size=1, max_size=8)
ADDRESSES = st.builds(
    "{}@{}".format, ADDRESS_PARTS, st.lists(ADDRESS_PARTS, min_size=1, max_size=3).map(".".join)
) | st.sampled_from(
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


@given(st.lists(ADDRESSES, max_size=5))
def test_an_address_is_valid_if_and_only_if_the_library_email_validator_accepts_it(texts: list[str]) -> None:
    assert mark_emails(build_cells(texts)).to_pylist() == [is_valid(text) for text in texts]


def test_the_check_of_a_missing_address_returns_null() -> None:
    assert mark_emails(build_cells([None, "a@x.com", None, "é"])).to_pylist() == [None, True, None, False]
    assert mark_emails(build_cells([])).to_pylist() == []


def test_only_days_that_exist_are_dates() -> None:
    days = [date(1890, 1, 1) + timedelta(days=day) for day in range(220 * 366)]
    texts = [f"{year}-{month:02}-{day:02}" for year in range(1890, 2110) for month in range(14) for day in range(33)]
    real_days = {day.isoformat() for day in days}
    assert mark_dates(build_cells(texts)).to_pylist() == [text in real_days for text in texts]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.none(), max_size=8), st.integers(0, 3)
)
def test_a_control_character_is_found_anywhere_in_a_text(texts: list[str | None], first_cell_index: int) -> None:
    expected_values = [
        text is None or not any(ord(character) < 32 and character not in "\t\n\r" for character in text)
        for text in texts
    ]
    valid_flags = mark_not_matching(
        build_cells(texts).slice(first_cell_index), CONTROL_CHARACTER_PATTERN, CONTROL_CHARACTERS
    ).to_pylist()
    assert [is_valid is None or is_valid for is_valid in valid_flags] == expected_values[first_cell_index:]


@given(st.integers(-10, 2**64) | st.sampled_from([2**53 - 1, 2**53, 10**15, 10**16]))
def test_a_zip_can_be_sent_if_every_json_reader_reads_the_same_number(zip_number: int) -> None:
    is_exact = zip_number >= 0 and str(int(float(zip_number))) == str(zip_number) and zip_number < 2**53
    assert mark_sendable_zips(build_cells([str(zip_number)])).to_pylist() == [is_exact]
    if is_exact:
        assert json.loads(json.dumps(zip_number)) == zip_number


@given(st.lists(st.none() | st.sampled_from(["x" * 10_000, "x" * 10_001, "é" * 10_000, "é" * 10_001, "", "a"])))
def test_the_length_of_a_text_is_its_number_of_characters(texts: list[str | None]) -> None:
    valid_flags = mark_short_texts(build_cells(texts)).to_pylist()
    assert [is_valid is not False for is_valid in valid_flags] == [
        text is None or len(text) <= LARGEST_TEXT_LENGTH for text in texts
    ]


@given(
    st.lists(st.none() | st.lists(st.sampled_from(["", "é" * 5_000, "x" * 5_001, "x"]), max_size=3)), st.integers(0, 2)
)
def test_the_length_limit_counts_all_tags_of_a_row_together(
    tag_lists: list[list[str] | None], first_cell_index: int
) -> None:
    valid_flags = mark_short_texts(pa.array(tag_lists, pa.list_(pa.string())).slice(first_cell_index)).to_pylist()
    assert [is_valid is not False for is_valid in valid_flags] == [
        sum(map(len, tags or [])) <= LARGEST_TEXT_LENGTH for tags in tag_lists[first_cell_index:]
    ]


def test_a_phone_is_converted_to_e164() -> None:
    texts_and_numbers: list[tuple[str | None, str | None]] = [
        ("030 1234567", "+49301234567"),
        ("+49 (0)30 / 1234567", "+49301234567"),
        ("0049 30 1234567", "+49301234567"),
        ("+1 212-555-2368", "+12125552368"),
        ("０３０ １２３４５６７", "+49301234567"),
        ("+49 30 1234567 ext. 8", None),
        ("+49", None),
        ("12", None),
        ("+999 1234567", None),
        ("call me", None),
        (None, None),
    ]
    for text, e164_number in texts_and_numbers:
        assert read_phones(build_cells([text, "x", text]), "DE").to_pylist() == [e164_number, None, e164_number]


@pytest.mark.parametrize("change_case", [str.lower, str.upper, str.title])
def test_a_country_is_read_from_its_codes_and_names(change_case: object) -> None:
    assert callable(change_case)
    for country in pycountry.countries:
        country_codes = [change_case(country.alpha_2), change_case(country.alpha_3)]
        country_names = [getattr(country, key, country.name) for key in ("name", "official_name", "common_name")]
        assert [find_country(text) for text in [*country_codes, *map(change_case, country_names)]] == [
            country.alpha_2
        ] * 5


def test_a_country_is_read_from_its_other_names() -> None:
    names_and_codes: list[tuple[str, str | None]] = [
        ("USA", "US"), ("U.S.A.", "US"), ("united states of america", "US"), ("United States (US)", "US"),
        ("Great Britain", "GB"), ("England", "GB"), ("Northern Ireland", "GB"), ("The Netherlands", "NL"),
        ("Holland", "NL"), ("South Korea", "KR"), ("Republic of Korea", "KR"), ("North Korea", "KP"),
        ("Cote d'Ivoire", "CI"), ("Côte d’Ivoire", "CI"), ("Curacao", "CW"), ("Bosnia & Herzegovina", "BA"),
        ("St. Lucia", "LC"), ("Bahamas", "BS"), ("the bahamas", "BS"), ("Tanzania", "TZ"), ("Congo", "CG"),
        ("Democratic Republic of the Congo", "CD"), ("Guinea-Bissau", "GW"), ("Guinea", "GN"), ("Niger", "NE"),
        ("Deutschland", "DE"), ("España", "ES"), ("Espana", "ES"), ("Türkiye", "TR"), ("Turkey", "TR"),
        ("Polen", "PL"), ("Italien", "IT"), ("Frankreich", "FR"), ("Bahamas, The", "BS"), ("Pays-Bas", "NL"),
        ("Democratic Republic of Congo", "CD"), ("République démocratique du Congo", "CD"), ("Republik Kongo", "CG"),
        ("Etats-Unis", "US"), ("EE.UU.", "US"), ("Reino Unido", "GB"), ("Wielka Brytania", "GB"), ("Włochy", "IT"),
        ("Russland", "RU"), ("Rosja", "RU"), ("Corea del Sur", "KR"), ("Tschechische Republik", "CZ"), ("Suisse", "CH"),
        ("Costa de Marfil", "CI"), ("Elfenbeinküste", "CI"), ("Griechenland", "GR"), ("Gambia (The)", "GM"),
        ("Repubblica Dominicana", "DO"), ("Dominica", "DM"), ("GUINÉE", "GN"), ("Österreich", "AT"), ("Nigeria", "NG"),
        ("Korea, South", "KR"), ("Korea (South)", "KR"), ("Korea, Rep.", "KR"), ("Korea, Dem. People’s Rep.", "KP"),
        ("Korea, North", "KP"), ("Congo, Dem. Rep.", "CD"), ("Congo, Rep.", "CG"),
        ("Congo (Democratic Republic)", "CD"), ("Iran, Islamic Rep.", "IR"),
        ("Cote D´Ivoire", "CI"), ("Côte d`Ivoire (Ivory Coast)", "CI"), ("U. K.", "GB"),
        ("England, UK", "GB"), ("Great Britain (UK)", "GB"), ("Pays de Galles", "GB"), ("EUA", "US"),
        ("Czechia", "CZ"), ("Czech Rep.", "CZ"), ("TÜRKİYE", "TR"), ("Turkey (Türkiye)", "TR"),
        ("Macedonia, FYR", "MK"), ("Macedónia do Norte", "MK"), ("Burma/Myanmar", "MM"), ("Swaziland (Eswatini)", "SZ"),
        ("East Timor", "TL"), ("Timor-Leste (East Timor)", "TL"), ("Palestine", "PS"), ("West Bank and Gaza", "PS"),
        ("Taiwan, China", "TW"), ("Hong Kong SAR, China", "HK"), ("Macao SAR, China", "MO"), ("Vatican", "VA"),
        ("Sudan, South", "SS"), ("Guinea, Equatorial", "GQ"), ("Ireland, Northern", "GB"), ("Egypt, Arab Rep.", "EG"),
        ("Georgia", "GE"), ("Republic of Georgia", "GE"), ("Jersey", "JE"), ("Dominica, Commonwealth of", "DM"),
        ("Georgia, USA", None), ("Jersey, NJ", None), ("Niger, Nigeria", None), ("China, Republic of", None),
        ("Dominica (Republic)", None), ("Korea, Japan", None), ("Yugoslavia", None), ("ROC", None),
        ("Korea", None), ("Virgin Islands", None), ("Kosovo", None), ("S.A.", None), ("the", None), ("Narnia", None),
    ]  # fmt: skip
    for name, code in names_and_codes:
        assert find_country(name) == code


def test_each_name_belongs_to_only_one_country() -> None:
    codes_by_name: dict[str, set[str]] = {}
    for name, code in list_whole_names():
        codes_by_name.setdefault(simplify_name(name), set()).add(code)
    assert {name: codes for name, codes in codes_by_name.items() if len(codes) > 1} == {}
    known_codes = {country.alpha_2 for country in pycountry.countries}
    assert set().union(*codes_by_name.values()) == known_codes


def build_frame_of_listed_subscribers(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([None], dtype=object) for name in FIELD_NAMES} | columns)


def test_listed_subscribers_get_the_types_of_the_field_table() -> None:
    frame = build_frame_of_listed_subscribers(
        id=[1], is_active=[True], tags=[["a"]], birthday=[date(2000, 1, 1)], address_zip=["02134"]
    )
    listed_rows = build_listed_schema().validate(frame)
    special_types = {"id": "Int64", "base_id": "Int64", "is_active": "boolean", "tags": "list<item: string>[pyarrow]",
               "birthday": "date32[day][pyarrow]"}  # fmt: skip
    assert {name: str(listed_rows[name].dtype) for name in FIELD_NAMES} == {
        field.name: special_types.get(field.name, str(TEXT)) for field in FIELDS
    }
    assert listed_rows["birthday"].tolist() == [date(2000, 1, 1)]
    assert listed_rows["address_zip"].tolist() == ["02134"]


def test_the_schema_of_listed_subscribers_refuses_a_wrong_type() -> None:
    with pytest.raises(pandera.errors.SchemaErrors):
        build_listed_schema().validate(build_frame_of_listed_subscribers(id=["seven"]), lazy=True)
    with pytest.raises(pandera.errors.SchemaErrors):
        build_listed_schema().validate(build_frame_of_listed_subscribers().drop(columns="email"), lazy=True)
