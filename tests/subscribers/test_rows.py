"""The validation of rows: the rules of the fields, the faults of a row, and the columns of the valid rows."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from connector.errors import ConfigurationError
from connector.fields import SENT_FIELDS, Field, FieldKind
from connector.outcomes import Fault
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping, PhoneRule, ValidationRules
from connector.subscribers.validation import ValidRows, find_kind_rules, validate_rows
from tests.field_values import CELL_BY_KIND, CELLS_WITH_ONE_VALUE_BY_KIND, REFUSED_CELL_BY_KIND

TODAY = date(2026, 11, 21)
DEFAULT_RULES = ValidationRules()
RULES_WITH_CLIENT_USER_ID = ValidationRules(identity_field="client_user_id")


def build_frame(**columns: Sequence[object]) -> pd.DataFrame:
    """Return a frame like the result of `apply_mapping`, in which empty cells are missing values."""
    dtypes = {"tags": pd.ArrowDtype(pa.list_(pa.string()))}
    return pd.DataFrame(
        {
            name: pd.Series([None if cell == "" else cell for cell in cells], dtype=dtypes.get(name, "str"))
            for name, cells in columns.items()
        }
    )


def validate_columns(rules: ValidationRules = DEFAULT_RULES, /, **columns: Sequence[object]) -> ValidRows:
    return validate_rows(build_frame(**columns), rules, today=TODAY)


def validate_cells(
    field: str,
    cells: Sequence[object],
    *,
    zip_policy: str = "omit",
) -> tuple[list[list[str]], list[object]]:
    """Return the fault codes of each cell, and the value that is sent for each cell (None: no value)."""
    identity = "email" if field == "client_user_id" else "client_user_id"
    identities = [f"p{position}@x.org" if identity == "email" else f"p{position}" for position in range(len(cells))]
    validated_rows = validate_columns(
        ValidationRules(identity_field=identity, zip_policy=zip_policy), **{identity: identities, field: cells}
    )
    codes_by_cell: list[list[str]] = [[] for _ in cells]
    for fault in validated_rows.faults:
        codes_by_cell[fault.position].append(fault.code)
    sent_values: list[object] = [None] * len(cells)
    if field in validated_rows.subscribers:
        for position, value in validated_rows.subscribers[field].items():
            sent_values[int(str(position))] = None if isinstance(value, float) or value is pd.NA else value
    return codes_by_cell, sent_values


def map_cells(cells: Mapping[str, str]) -> pd.DataFrame:
    """Return a frame with one mapped row. `cells` has the cell of the source for each field."""
    mapping = FieldMapping({name: ColumnRule(column=name) for name in cells})
    return apply_mapping(pd.DataFrame([cells], dtype="str"), mapping).frame


def check_sent_values(field: str, cells: Sequence[object], sent_values: Sequence[object]) -> None:
    codes_by_cell, actual_values = validate_cells(field, cells)
    assert codes_by_cell == [[]] * len(cells)
    assert [list(value) if isinstance(value, np.ndarray) else value for value in actual_values] == list(sent_values)


def check_cells_refused(field: str, cells: Sequence[object], code: str) -> None:
    assert validate_cells(field, cells)[0] == [[code]] * len(cells)


def check_text_refused(field_names: str, cells: Sequence[str], code: str) -> None:
    """Check that each field refuses each cell. `field_names` is separated by spaces."""
    for field in field_names.split():
        check_cells_refused(field, [["ok", cell] if field == "tags" else cell for cell in cells], code)


def list_faults(faults: Sequence[Fault]) -> list[tuple[int, str, str]]:
    return [(fault.position, fault.field, fault.code) for fault in faults]


UNCHANGED_CELLS_BY_FIELD = {
    "email": "Ann.Doe+news@Example.COM | josé@münchen.de | o'hara!#$%@x-y.co.uk | 用户@例え.jp | a@xn--mnchen-3ya.de"
    " | a@try.test",
    "birthday": "2000-02-29 | 1900-01-01 | 2026-11-21",
    "first_name": "Ștefan\tO'Neil\r\n李",
    "phone": "007",
    "last_name": "True | False | Inf | Null",
    "address_state": "true",
}
CHANGED_CELLS: list[tuple[str, object, object]] = [
    ("email", " a@x.com ", "a@x.com"),
    ("email", "a@x.com\n", "a@x.com"),
    ("email", "jose\u0301@x.com", "jos\u00e9@x.com"),
    ("email", "x" * 64 + "@example.com", "x" * 64 + "@example.com"),
    ("gender", "MALE", "male"),
    ("gender", "Female", "female"),
    *(("is_active", word, True) for word in ("TRUE", "y", "1", "1.0")),
    *(("is_active", word, False) for word in ("No", "f", "0", "0.0")),
    *(("address_country", name, "DE") for name in ("de", "DEU", "germany")),
    ("address_country", "Korea, Republic of", "KR"),
    ("address_country", "côte d'ivoire", "CI"),
    ("address_country", "UK", "GB"),
    ("address_zip", "0", 0),
    ("address_zip", "3511", 3511),
    ("address_zip", "10115.0", 10115),
    ("address_zip", "90210.00", 90210),
    ("address_zip", str(2**53 - 1), 2**53 - 1),
    *((field, "", None) for field in ("gender", "address_state")),
    ("tags", ["a", "b, c"], ["a", "b, c"]),
]


def test_a_valid_cell_is_sent_in_the_form_of_its_field() -> None:
    for field, texts in UNCHANGED_CELLS_BY_FIELD.items():
        cells = texts.split(" | ")
        check_sent_values(field, cells, cells)
    for field in {field for field, _, _ in CHANGED_CELLS}:
        pairs = [(cell, sent_values) for name, cell, sent_values in CHANGED_CELLS if name == field]
        check_sent_values(field, [cell for cell, _ in pairs], [sent_values for _, sent_values in pairs])


REFUSED_CELLS_BY_FAULT = {
    "email: email": "ann | ann@ | @x.com | a@b@x.com | a b@x.com | a@localhost | a@test | a@TEST | a@x.invalid"
    " | ä@x.LOCAL | a@x.LOCAL"
    " | a..b@x.com | .a@x.com | a@x..com | a@-x.com | a@x.com. | a@x.123 | Ann <a@x.com> | a@x.com, b@x.com"
    ' | "a b"@x.com | a@xn--zzzzzz.de | a@[127.0.0.1] | a@[IPv6:::1] | (note)a@x.com | a@x.\ncom'
    f" | {'x' * 65}@example.com | a@{'x' * 64}.com",
    "email: code": "a%2Bx@x.com",
    "gender: gender": "m",
    "is_active: flag": "perhaps | 2",
    "address_country: country": "Narnia | XX",
    "birthday: date": "2001-02-29 | 1900-02-29 | 2001-04-31 | 2001-13-01 | 2001-00-01 | 2001-01-00 | 0000-01-01"
    " | 2001-1-1 | 05-12 | --5-12 | 01/02/2001 | 2001-02-03T00:00:00 | ２００１-02-03",
    "birthday: lifetime": "1899-12-31 | 2026-11-22",
    "first_name: control": "a\x00b | a\x1bb",
    "last_name: converted": "true | TRUE | false | 2026-05-02 | 2026-05-02T00:00:00",
    "client_user_id: id": "1001.0 | 42.00",
    "phone: answer": "yes | No | TRUE | ja | x",
}


def test_an_invalid_cell_has_a_fault_with_the_right_code() -> None:
    for fault, cells in REFUSED_CELLS_BY_FAULT.items():
        field, code = fault.split(": ")
        check_cells_refused(field, cells.split(" | "), code)
    check_cells_refused("tags", [["a", "b\x07"]], "control")


def test_each_field_refuses_a_cell_that_is_not_of_its_kind() -> None:
    for field in SENT_FIELDS:
        codes_by_cell, _ = validate_cells(field.name, [REFUSED_CELL_BY_KIND[field.kind]], zip_policy="reject")
        assert codes_by_cell != [[]], field.name


def test_two_cells_with_one_value_send_the_same_value() -> None:
    for field in SENT_FIELDS:
        codes_by_cell, sent_values = validate_cells(field.name, CELLS_WITH_ONE_VALUE_BY_KIND[field.kind])
        assert codes_by_cell == [[], []], field.name
        assert str(sent_values[0]) == str(sent_values[1]), field.name


def test_a_text_that_cannot_be_converted_for_its_field_is_refused() -> None:
    """If the connector converts the texts of a field, a check must refuse texts that cannot be converted.
    Otherwise values are lost."""
    texts = ["no such value", "0x1F", "½"]
    for field in SENT_FIELDS:
        reader = find_kind_rules(field.kind).reader
        if reader is not None:
            assert reader(pa.array(texts)).null_count == len(texts), field.name
            codes, _ = validate_cells(field.name, texts, zip_policy="reject")
            assert [] not in codes, field.name


def test_the_service_has_one_zip_field_and_one_date_field() -> None:
    """The code contains the names `address_zip` and `birthday`. A second zip or date field would need its own code."""
    fields_by_kind = {kind: [field.name for field in SENT_FIELDS if field.kind is kind] for kind in FieldKind}
    assert fields_by_kind[FieldKind.ZIP] == ["address_zip"]
    assert fields_by_kind[FieldKind.DATE] == ["birthday"]


def test_the_message_about_an_unknown_word_shows_the_job_key_and_not_the_word() -> None:
    faults = validate_columns(email=["a@x.com"], gender=["vrouw"], is_active=["geabonneerd"]).faults
    assert [fault.field for fault in faults] == ["is_active", "gender"]
    assert all("`values:` map" in fault.message for fault in faults)
    assert not any(word in fault.message for fault in faults for word in ("vrouw", "geabonneerd"))


def test_the_job_decides_what_happens_to_a_zip_that_is_not_a_number() -> None:
    codes = ["02134", "SW1A 1AA", "12345-6789", "-1", "1.5", "02134.0", "1e3", "９", str(2**53), "9" * 40]
    check_sent_values("address_zip", codes, [None] * len(codes))
    assert validate_cells("address_zip", codes, zip_policy="reject")[0] == [["zip"]] * len(codes)
    cells = [*codes, "123", ""]
    validated_rows = validate_columns(
        ValidationRules(zip_policy="custom_field2"),
        email=[f"p{index}@x.com" for index in range(len(cells))],
        address_zip=cells,
    )
    assert validated_rows.subscribers["custom_field2"].fillna("").tolist() == [*codes, "", ""]
    assert validated_rows.subscribers["address_zip"].tolist() == [*[pd.NA] * len(codes), 123, pd.NA]
    assert validated_rows.omitted_zip_positions.tolist() == []


@pytest.mark.parametrize("field", SENT_FIELDS, ids=lambda field: field.name)
def test_an_invisible_character_inside_a_cell_does_not_make_its_row_invalid(field: Field) -> None:
    cell = CELL_BY_KIND[field.kind]
    cells = {"email": "a@x.com", field.name: f"{cell[:1]}\u200b{cell[1:]}"}
    assert list_faults(validate_rows(map_cells(cells), DEFAULT_RULES, today=TODAY).faults) == []


def test_a_number_that_a_spreadsheet_has_shortened_is_refused() -> None:
    shortened_numbers = (
        "4.91512E+11 4,91512E+11 4.91512345678E11 1.0E5 1E+11 +4.9e+011 1.2E-05 1,234 491,511,234,567 10,115.00"
        " 1.234567890123457e+18 2026-02-03 1980-12-31T00:00:00"
    )
    check_text_refused("phone client_user_id address_zip", shortened_numbers.split(), "spoiled")
    similar_texts = [
        "12e4", "1E5", "4.91512", "e+11", "1e+", "12E+11", "49151234567", "1.234", "1,2", "1,2345", "A1,234",
    ]  # fmt: skip
    check_sent_values("client_user_id", similar_texts, similar_texts)


def test_a_text_with_lost_or_misread_letters_is_refused() -> None:
    misread_names = [
        "Zo\ufffd", "MÃ¼ller", "BjÃ¶rn", "O\u00e2\u20ac\u2122Neil", "Ann\x85", "a\x92s", "Å»aneta", "Ð\u009cÐ¸Ñ\u0085"
    ]  # fmt: skip
    check_text_refused("first_name address_city custom_field1 tags", misread_names, "decoding")
    correct_names = [
        "Müller", "NESTLÉ®", "São", "Ângela", "IRMÃ", "Ðorđe", "Åsa", "Žaneta", "Ñandú", "O’Neil", "😀", "Ä®ö",
    ]  # fmt: skip
    check_sent_values("last_name", correct_names, correct_names)


def test_an_error_value_of_a_spreadsheet_is_refused() -> None:
    errors = ["#REF!", "#VALUE!", "#DIV/0!", "#NAME?", "#WERT!", "#VALEUR!", "#¡VALOR!", "#¿NOMBRE?", "##", "####"]
    check_text_refused("first_name custom_field1 tags", errors, "error")
    texts = ["#1", "#", "#VIP", "#Ann!", "#VIP!", "#WIN!", "#A!", "#WHY?"]
    for field in ("last_name", "custom_field1"):
        check_sent_values(field, texts, texts)


TEXTS_WITH_CODE = [
    "b'Ann'", 'b"O\'Neil"', r"M\u00fcller", r"M\xfcller", "=?UTF-8?B?TcO8bGxlcg==?=", "M=C3=BCller", "Jos%C3%A9",
    "Ann%20Lee", "[object Object]", 'a:1:{i:0;s:3:"VIP";}', "System.String[]", "Ann_x000D_",
    "=PROPER(B2)", '=A2&" "&B2', "=B2",
    "array(['Ann'], dtype=object)", "Series([], )", "[ 98 117 108]", "Array",
    "Loading...", "{{contact.firstname}}", "*|FNAME|*", "${name}",
]  # fmt: skip


def test_a_text_with_code_of_another_program_is_refused() -> None:
    check_text_refused("first_name address_line1 phone tags", TEXTS_WITH_CODE, "code")
    check_sent_values("custom_field1", TEXTS_WITH_CODE, TEXTS_WITH_CODE)
    similar_texts = [
        "100% Ann", "a_x_b", "=) Ann", "R&D = fun", "C:\\Users", "[Ann]", "b'", "O'Neil", "50%25", "d'b'c",
        "=1+1",
    ]  # fmt: skip
    check_sent_values("address_line1", similar_texts, similar_texts)


def test_a_list_or_an_object_is_refused_for_a_field_with_one_text() -> None:
    texts_of_lists_and_objects = ['["a"]', "[]", '{"a": 1}', '[{"number": "1"}]', "[1]"]
    check_text_refused("first_name phone client_user_id address_city address_state", texts_of_lists_and_objects, "list")
    check_sent_values("custom_field1", texts_of_lists_and_objects, texts_of_lists_and_objects)
    similar_texts = ["[VIP]", "{x}", "[a", "a]", "(1)", "[1", "Ann [sic]"]
    check_sent_values("last_name", similar_texts, similar_texts)


def test_an_omitted_zip_code_is_counted_only_if_its_row_is_valid() -> None:
    validated_rows = validate_columns(
        email=["bad", "a@x.com", "b@x.com", "c@x.com", "d@x.com"], address_zip=["01", "01", "2", "x", None]
    )
    assert validated_rows.subscribers.index.tolist() == [1, 2, 3, 4]
    assert validated_rows.omitted_zip_positions.tolist() == [1, 3]
    assert validated_rows.omitted_zip_positions.dtype == np.int64


def test_the_faults_of_a_row_are_in_the_order_of_the_field_table() -> None:
    validated_rows = validate_columns(
        birthday=["x", "2000-01-01", "y"],
        gender=["?", "male", ""],
        email=["bad", "a@x.com", None],
        tags=[["\x00"], [], None],
    )
    assert list_faults(validated_rows.faults) == [
        (0, "email", "email"), (0, "gender", "gender"), (0, "tags", "control"), (0, "birthday", "date"),
        (2, "email", "required"), (2, "birthday", "date"),
    ]  # fmt: skip
    assert validated_rows.subscribers.index.tolist() == [1]


def test_the_message_of_a_fault_has_the_field_name_of_the_service_and_no_data_of_a_person() -> None:
    validated_rows = validate_columns(
        email=["secret"], address_country=["secret"], birthday=["secret"], gender=["secret"]
    )
    assert len(validated_rows.faults) == 4
    assert validated_rows.faults[0].message.startswith("email is not one complete email address")
    assert not any("secret" in fault.message for fault in validated_rows.faults)


def test_a_row_without_identity_or_required_field_is_refused() -> None:
    columns: Mapping[str, Sequence[object]] = {
        "email": ["a@x.com", "b@x.com"],
        "first_name": ["Ann", ""],
        "tags": [["a"], None],
    }
    rules = ValidationRules(required=frozenset({"first_name", "tags", "phone"}))
    assert list_faults(validate_columns(rules, **columns).faults) == [
        (0, "phone", "required"), (1, "first_name", "required"), (1, "phone", "required"), (1, "tags", "required"),
    ]  # fmt: skip
    assert list_faults(validate_columns(RULES_WITH_CLIENT_USER_ID, **columns).faults) == [
        (0, "client_user_id", "required"), (1, "client_user_id", "required"),
    ]  # fmt: skip


def test_an_email_that_is_not_the_identity_may_be_missing_but_not_invalid() -> None:
    validated_rows = validate_columns(RULES_WITH_CLIENT_USER_ID, client_user_id=["1", "2"], email=["", "bad"])
    assert list_faults(validated_rows.faults) == [(1, "email", "email")]


def test_the_valid_rows_have_the_types_of_their_fields() -> None:
    cells = {field.name: CELL_BY_KIND[field.kind] for field in SENT_FIELDS}
    subscribers = validate_rows(map_cells(cells), DEFAULT_RULES, today=TODAY).subscribers
    dtypes = {field.name: str(subscribers[field.name].dtype) for field in SENT_FIELDS}
    special_dtypes = {"is_active": "boolean", "tags": "list<item: string>[pyarrow]", "address_zip": "Int64"}
    assert dtypes == {field.name: special_dtypes.get(field.name, "str") for field in SENT_FIELDS}


@pytest.mark.parametrize("row_count", [0, 1])
def test_a_chunk_with_no_valid_row_keeps_its_columns_and_types(row_count: int) -> None:
    columns: Mapping[str, Sequence[object]] = {
        "email": ["bad"][:row_count], "is_active": [""][:row_count],
        "address_zip": [""][:row_count], "tags": [None][:row_count],
    }  # fmt: skip
    validated_rows = validate_columns(**columns)
    assert len(validated_rows.faults) == row_count
    assert {name: str(dtype) for name, dtype in validated_rows.subscribers.dtypes.items()} == {
        "is_active": "boolean", "email": "str", "tags": "list<item: string>[pyarrow]", "address_zip": "Int64",
    }  # fmt: skip


def test_positions_of_faults_count_from_the_start_of_the_chunk() -> None:
    frame = build_frame(email=["a@x.com", "bad", "c@x.com"], phone=["1", "2", "3"]).set_axis([10, 10, 12])
    validated_rows = validate_rows(frame, ValidationRules(), today=TODAY)
    assert validated_rows.subscribers.index.tolist() == [0, 2]
    assert list_faults(validated_rows.faults) == [(1, "email", "email")]


def test_the_mapped_frame_stays_unchanged() -> None:
    frame = build_frame(email=["jose\u0301@x.com"], gender=["MALE"])
    frame_before = frame.copy(deep=True)
    validate_rows(frame, ValidationRules(zip_policy="omit"), today=TODAY)
    pd.testing.assert_frame_equal(frame, frame_before)


def test_a_row_has_the_same_faults_alone_and_among_other_rows() -> None:
    cells = ["", "a@x.com", "bad", "male", "yes", "NL", "02134", "7", "2000-01-01", "\x00", "é", None]
    field_names = ["email", "first_name", "gender", "is_active", "address_zip", "birthday"]
    rows = [
        {name: cells[(row_index + 5 * column_index) % len(cells)] for column_index, name in enumerate(field_names)}
        for row_index in range(len(cells))
    ]
    joint_result = validate_columns(
        ValidationRules(zip_policy="omit"), **{name: [row[name] for row in rows] for name in field_names}
    )
    single_results = [
        validate_columns(ValidationRules(zip_policy="omit"), **{name: [cell] for name, cell in row.items()})
        for row in rows
    ]
    expected_faults = [
        (index, fault.field, fault.code) for index, result in enumerate(single_results) for fault in result.faults
    ]
    assert list_faults(joint_result.faults) == expected_faults
    assert joint_result.subscribers.index.tolist() == [
        index for index, result in enumerate(single_results) if len(result.subscribers)
    ]


def test_an_unknown_region_of_phones_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="e164"):
        PhoneRule("ZZ")


def test_a_cell_of_more_than_10000_characters_is_refused() -> None:
    long_texts = ["é" * 10_001, "a@x.com\n" * 1300]
    check_cells_refused("custom_field1", long_texts, "length")
    check_cells_refused("tags", [text.split("\n") * 2 for text in long_texts], "length")
    assert validate_cells("custom_field1", [text[:10_000] for text in long_texts])[0] == [[], []]


def test_a_phone_is_any_text_unless_the_job_requires_e164() -> None:
    phones = ["030 1234567", "+49301234567", "call me", "", "+49 30 1234567 x8"]
    columns = {"email": [f"{index}@x.com" for index in range(5)], "phone": phones}
    assert validate_columns(**columns).subscribers["phone"].fillna("").tolist() == phones
    strict_rows = validate_columns(ValidationRules(e164=PhoneRule("DE")), **columns)
    assert list_faults(strict_rows.faults) == [(2, "phone", "phone"), (4, "phone", "phone")]
    assert strict_rows.subscribers["phone"].fillna("").tolist() == ["+49301234567", "+49301234567", ""]
    lenient_rows = validate_columns(ValidationRules(e164=PhoneRule("DE", "keep")), **columns)
    assert lenient_rows.faults == ()
    assert lenient_rows.subscribers["phone"].fillna("").tolist() == ["+49301234567", "+49301234567", *phones[2:]]


def test_a_fault_of_the_mapping_is_reported_once() -> None:
    frame = build_frame(email=["a@x.com", None], first_name=[None, "Ann"], birthday=["x", "y"])
    template_faults = [Fault(0, "first_name", "template", "words"), Fault(1, "email", "template", "words")]
    validated_rows = validate_rows(
        frame, ValidationRules(required=frozenset({"first_name"})), today=TODAY, known_faults=template_faults
    )
    assert list_faults(validated_rows.faults) == [
        (0, "first_name", "template"), (0, "birthday", "date"), (1, "email", "template"), (1, "birthday", "date"),
    ]  # fmt: skip
    assert len(validated_rows.subscribers) == 0


def test_the_error_of_a_phone_rule_without_its_library_shows_the_extra() -> None:
    script = (
        "import sys\nsys.modules['phonenumbers'] = None  # as if it were not installed\n"
        "from connector.subscribers.rules import PhoneRule, ValidationRules\nValidationRules()\nPhoneRule('DE')"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'subscriber-connector[phone]'" in result.stderr.splitlines()[-1]


def test_a_birthday_without_a_year_is_omitted_and_counted() -> None:
    birthdays = ["1980-02-29", "--05-12", "--0512", "--02-29", None]
    validated_rows = validate_columns(email=[f"p{number}@x.com" for number in range(5)], birthday=birthdays)
    assert validated_rows.faults == ()
    assert validated_rows.subscribers["birthday"].fillna("").tolist() == ["1980-02-29", "", "", "", ""]
    assert validated_rows.yearless_positions.tolist() == [1, 2, 3]


def test_a_birthday_without_a_year_in_an_invalid_row_is_not_counted() -> None:
    validated_rows = validate_columns(email=["a@x.com", "nobody", "c@x.com"], birthday=["--05-12"] * 3)
    assert (len(validated_rows.faults), validated_rows.yearless_positions.tolist()) == (1, [0, 2])


def test_a_required_birthday_needs_a_year() -> None:
    rules = ValidationRules(required=frozenset({"birthday"}))
    validated_rows = validate_columns(rules, email=["a@x.com"], birthday=["--05-12"])
    assert list_faults(validated_rows.faults) == [(0, "birthday", "required")]
    assert validated_rows.yearless_positions.tolist() == []
