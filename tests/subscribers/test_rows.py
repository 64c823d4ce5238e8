"""Rows validated: every rule of every field, every fault of a row, and what becomes of the valid ones."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from connector.errors import ConfigurationError
from connector.fields import SENT, Kind
from connector.outcomes import Fault
from connector.subscribers.rules import PhoneRule, ValidationRules
from connector.subscribers.validation import ValidRows, validate_rows

TODAY = date(2026, 11, 21)
RULES = ValidationRules()
NO_IDENTITY = ValidationRules(identity="client_user_id")


def build_frame(**columns: Sequence[object]) -> pd.DataFrame:
    """As `apply_mapping` makes it: what is empty is missing."""
    types = {"tags": pd.ArrowDtype(pa.list_(pa.string()))}
    return pd.DataFrame(
        {
            name: pd.Series([None if cell == "" else cell for cell in cells], dtype=types.get(name, "str"))
            for name, cells in columns.items()
        }
    )


def validate(rules: ValidationRules = RULES, /, **columns: Sequence[object]) -> ValidRows:
    return validate_rows(build_frame(**columns), rules, today=TODAY)


def validate_one(field: str, cell: object, *, zip: str = "omit") -> tuple[list[str], object]:  # noqa: A002 - the rule's word
    """The codes of the faults of one cell, and the value that is sent (None: nothing)."""
    identity = "email" if field == "client_user_id" else "client_user_id"
    columns: dict[str, Any] = {identity: ["a@x.org" if identity == "email" else "7"], field: [cell]}
    validated = validate(ValidationRules(identity=identity, zip=zip), **columns)
    codes = [fault.code for fault in validated.faults]
    values = validated.subscribers[field].tolist() if field in validated.subscribers else []
    return codes, next((None if isinstance(value, float) or value is pd.NA else value for value in values), None)


def list_faults(faults: Sequence[Fault]) -> list[tuple[int, str, str]]:
    return [(fault.position, fault.field, fault.code) for fault in faults]


SENT_AS_THEY_ARE = {
    "email": "Ann.Doe+news@Example.COM | josé@münchen.de | o'hara!#$%@x-y.co.uk | 用户@例え.jp | a@xn--mnchen-3ya.de"
    " | a@try.test",
    "birthday": "2000-02-29 | 1900-01-01 | 2026-11-21",
    "first_name": "Ștefan\tO'Neil\r\n李",
    "phone": "007",
    "last_name": "True | False | Inf | Null",
    "address_state": "true",
}
SENT_CHANGED: list[tuple[str, object, object]] = [
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
    ("address_zip", str(2**53 - 1), 2**53 - 1),
    *((field, "", None) for field in ("gender", "address_state")),
    ("tags", ["a", "b, c"], ["a", "b, c"]),
]


@pytest.mark.parametrize(
    ("field", "cell", "sent"),
    [*((field, cell, cell) for field, cells in SENT_AS_THEY_ARE.items() for cell in cells.split(" | ")), *SENT_CHANGED],
)
def test_what_may_be_sent(field: str, cell: object, sent: object) -> None:
    codes, value = validate_one(field, cell)
    assert codes == []
    assert (list(value) if isinstance(value, np.ndarray) else value) == sent


NOT_SENT = {
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
}


@pytest.mark.parametrize(
    ("field", "code", "cell"),
    [
        *((*fault.split(": "), cell) for fault, cells in NOT_SENT.items() for cell in cells.split(" | ")),
        ("tags", "control", ["a", "b\x07"]),
    ],
)
def test_what_may_not_be_sent(field: str, code: str, cell: object) -> None:
    assert validate_one(field, cell)[0] == [code]


def test_words_that_can_be_translated_are_refused_with_the_way_to_do_so_and_not_shown() -> None:
    faults = validate(email=["a@x.com"], gender=["vrouw"], is_active=["geabonneerd"]).faults
    assert [fault.field for fault in faults] == ["is_active", "gender"]
    assert all("`values:` map" in fault.message for fault in faults)
    assert not any(word in fault.message for fault in faults for word in ("vrouw", "geabonneerd"))


@pytest.mark.parametrize(
    "zip_code", ["02134", "SW1A 1AA", "12345-6789", "-1", "1.5", "02134.0", "1e3", "９", str(2**53), "9" * 40]
)
def test_a_zip_that_is_no_number_goes_the_way_of_the_job(zip_code: str) -> None:
    assert validate_one("address_zip", zip_code) == ([], None)
    assert validate_one("address_zip", zip_code, zip="reject")[0] == ["zip"]
    columns = {"email": ["a@x.com", "b@x.com", "c@x.com"], "address_zip": [zip_code, "123", ""]}
    kept = validate(ValidationRules(zip="custom_field2"), **columns)
    assert kept.subscribers["custom_field2"].fillna("").tolist() == [zip_code, "", ""]
    assert kept.subscribers["address_zip"].tolist() == [pd.NA, 123, pd.NA]
    assert kept.omitted_zips.tolist() == []


@pytest.mark.parametrize(("cell", "zip_code"), [("10115", 10115), ("10115.0", 10115), ("90210.00", 90210), ("0", 0)])
def test_a_zip_with_zeros_as_decimals_is_the_number(cell: str, zip_code: int) -> None:
    assert validate_one("address_zip", cell, zip="reject") == ([], zip_code)


@pytest.mark.parametrize(
    "cell",
    [
        "4.91512E+11",
        "4,91512E+11",
        "4.91512345678E11",
        "1.0E5",
        "1E+11",
        "+4.9e+011",
        "1.2E-05",
        "1,234",
        "491,511,234,567",
        "10,115.00",
        "1.234567890123457e+18",
        "2026-02-03",
        "1980-12-31T00:00:00",
    ],
)
@pytest.mark.parametrize("field", ["phone", "client_user_id", "address_zip"])
def test_a_number_that_a_spreadsheet_has_shortened_is_refused(field: str, cell: str) -> None:
    assert validate_one(field, cell)[0] == ["spoiled"]


@pytest.mark.parametrize(
    "cell", ["12e4", "1E5", "4.91512", "e+11", "1e+", "12E+11", "49151234567", "1.234", "1,2", "1,2345", "A1,234"]
)
def test_an_id_that_only_looks_like_a_shortened_number_is_sent(cell: str) -> None:
    assert validate_one("client_user_id", cell) == ([], cell)


@pytest.mark.parametrize(
    "cell",
    ["Zo\ufffd", "MÃ¼ller", "BjÃ¶rn", "O\u00e2\u20ac\u2122Neil", "Ann\x85", "a\x92s", "Å»aneta", "Ð\u009cÐ¸Ñ\u0085"],
)
@pytest.mark.parametrize("field", ["first_name", "address_city", "custom_field1", "tags"])
def test_a_text_with_lost_or_misread_letters_is_refused(field: str, cell: str) -> None:
    assert validate_one(field, ["ok", cell] if field == "tags" else cell)[0] == ["decoding"]


@pytest.mark.parametrize(
    "cell",
    ["Müller", "NESTLÉ®", "São", "Ângela", "IRMÃ", "Ðorđe", "Åsa", "Žaneta", "Ñandú", "O’Neil", "Ann 😀", "王", "Ä®ö"],
)
def test_a_text_in_any_language_is_well_decoded(cell: str) -> None:
    assert validate_one("last_name", cell) == ([], cell)


@pytest.mark.parametrize(
    "cell", ["#REF!", "#VALUE!", "#DIV/0!", "#NAME?", "#WERT!", "#VALEUR!", "#¡VALOR!", "#¿NOMBRE?", "##", "####"]
)
@pytest.mark.parametrize("field", ["first_name", "custom_field1", "tags"])
def test_an_error_of_a_spreadsheet_is_refused(field: str, cell: str) -> None:
    assert validate_one(field, ["ok", cell] if field == "tags" else cell)[0] == ["error"]


CODES = [
    "b'Ann'", 'b"O\'Neil"', r"M\u00fcller", r"M\xfcller", "=?UTF-8?B?TcO8bGxlcg==?=", "M=C3=BCller", "Jos%C3%A9",
    "Ann%20Lee", "[object Object]", 'a:1:{i:0;s:3:"VIP";}', "System.String[]", "Ann_x000D_",
    "=PROPER(B2)", '=A2&" "&B2', "=B2",
    "array(['Ann'], dtype=object)", "Series([], )", "[ 98 117 108]", "Array",
    "Loading...", "{{contact.firstname}}", "*|FNAME|*", "${name}",
]  # fmt: skip


@pytest.mark.parametrize("cell", CODES)
@pytest.mark.parametrize("field", ["first_name", "address_line1", "phone", "tags"])
def test_a_text_in_the_code_of_another_program_is_refused(field: str, cell: str) -> None:
    assert validate_one(field, ["ok", cell] if field == "tags" else cell)[0] == ["code"]
    assert validate_one("custom_field1", cell)[0] == []


@pytest.mark.parametrize(
    "cell", ["100% Ann", "a_x_b", "=) Ann", "R&D = fun", "C:\\Users", "[Ann]", "b'", "O'Neil", "50%25", "d'b'c", "=1+1"]
)
def test_a_text_that_only_looks_like_code_is_sent(cell: str) -> None:
    assert validate_one("address_line1", cell) == ([], cell)


@pytest.mark.parametrize("cell", ["#1", "#", "#VIP", "#Ann!", "#VIP!", "#WIN!", "#A!", "#WHY?"])
@pytest.mark.parametrize("field", ["last_name", "custom_field1"])
def test_a_text_with_a_number_sign_is_a_text(field: str, cell: str) -> None:
    assert validate_one(field, cell) == ([], cell)


@pytest.mark.parametrize("cell", ['["a"]', "[]", '{"a": 1}', '[{"number": "1"}]', "[1]"])
@pytest.mark.parametrize("field", ["first_name", "phone", "client_user_id", "address_city", "address_state"])
def test_a_list_or_an_object_is_refused_where_one_text_is_sent(field: str, cell: str) -> None:
    assert validate_one(field, cell)[0] == ["list"]


@pytest.mark.parametrize("cell", ["[VIP]", "{x}", "[a", "a]", "(1)", "[1", "Ann [sic]"])
def test_a_text_in_brackets_is_a_text(cell: str) -> None:
    assert validate_one("last_name", cell) == ([], cell)
    assert validate_one("custom_field1", '["a"]') == ([], '["a"]')


def test_omitted_zips_are_told_by_the_positions_of_valid_rows() -> None:
    validated = validate(
        email=["bad", "a@x.com", "b@x.com", "c@x.com", "d@x.com"], address_zip=["01", "01", "2", "x", None]
    )
    assert validated.subscribers.index.tolist() == [1, 2, 3, 4]
    assert validated.omitted_zips.tolist() == [1, 3]
    assert validated.omitted_zips.dtype == np.int64


def test_every_fault_of_a_row_is_found_in_the_order_of_the_field_table() -> None:
    validated = validate(
        birthday=["x", "2000-01-01", "y"],
        gender=["?", "male", ""],
        email=["bad", "a@x.com", None],
        tags=[["\x00"], [], None],
    )
    assert list_faults(validated.faults) == [
        (0, "email", "email"), (0, "gender", "gender"), (0, "tags", "control"), (0, "birthday", "date"),
        (2, "email", "required"), (2, "birthday", "date"),
    ]  # fmt: skip
    assert validated.subscribers.index.tolist() == [1]


def test_faults_name_the_field_as_the_service_does_and_show_no_persons_data() -> None:
    validated = validate(email=["secret"], address_country=["secret"], birthday=["secret"], gender=["secret"])
    assert len(validated.faults) == 4
    assert validated.faults[0].message.startswith("Email is not an email address: write")
    assert not any("secret" in fault.message for fault in validated.faults)


def test_the_identity_and_required_fields_must_be_there() -> None:
    columns: Mapping[str, Sequence[object]] = {
        "email": ["a@x.com", "b@x.com"],
        "first_name": ["Ann", ""],
        "tags": [["a"], None],
    }
    rules = ValidationRules(required=frozenset({"first_name", "tags", "phone"}))
    assert list_faults(validate(rules, **columns).faults) == [
        (0, "phone", "required"), (1, "first_name", "required"), (1, "phone", "required"), (1, "tags", "required"),
    ]  # fmt: skip
    assert list_faults(validate(NO_IDENTITY, **columns).faults) == [
        (0, "client_user_id", "required"), (1, "client_user_id", "required"),
    ]  # fmt: skip


def test_an_email_that_is_not_the_identity_may_be_missing_but_not_wrong() -> None:
    validated = validate(NO_IDENTITY, client_user_id=["1", "2"], email=["", "bad"])
    assert list_faults(validated.faults) == [(1, "email", "email")]


def test_the_valid_rows_have_the_types_of_their_fields() -> None:
    cells: dict[Kind, object] = {Kind.EMAIL: "a@x.com", Kind.FLAG: "yes", Kind.GENDER: "male", Kind.TAGS: ["a"],
                                 Kind.COUNTRY: "nl", Kind.ZIP: "1", Kind.DATE: "2000-01-01"}  # fmt: skip
    subscribers = validate(**{field.name: [cells.get(field.kind, "text")] for field in SENT}).subscribers
    types = {field.name: str(subscribers[field.name].dtype) for field in SENT}
    special = {"is_active": "boolean", "tags": "list<item: string>[pyarrow]", "address_zip": "Int64"}
    assert types == {field.name: special.get(field.name, "str") for field in SENT}


@pytest.mark.parametrize("rows", [0, 1])
def test_a_chunk_with_no_valid_row_keeps_its_columns_and_types(rows: int) -> None:
    columns: Mapping[str, Sequence[object]] = {
        "email": ["bad"][:rows], "is_active": [""][:rows], "address_zip": [""][:rows], "tags": [None][:rows],
    }  # fmt: skip
    validated = validate(**columns)
    assert len(validated.faults) == rows
    assert {name: str(dtype) for name, dtype in validated.subscribers.dtypes.items()} == {
        "is_active": "boolean", "email": "str", "tags": "list<item: string>[pyarrow]", "address_zip": "Int64",
    }  # fmt: skip


def test_positions_count_from_the_chunks_beginning_whatever_its_index() -> None:
    frame = build_frame(email=["a@x.com", "bad", "c@x.com"], phone=["1", "2", "3"]).set_axis([10, 10, 12])
    validated = validate_rows(frame, ValidationRules(), today=TODAY)
    assert validated.subscribers.index.tolist() == [0, 2]
    assert list_faults(validated.faults) == [(1, "email", "email")]


def test_the_mapped_frame_is_left_as_it_was() -> None:
    frame = build_frame(email=["jose\u0301@x.com"], gender=["MALE"])
    before = frame.copy(deep=True)
    validate_rows(frame, ValidationRules(zip="omit"), today=TODAY)
    pd.testing.assert_frame_equal(frame, before)


def test_a_row_is_judged_the_same_alone_and_among_others() -> None:
    cells = ["", "a@x.com", "bad", "male", "yes", "NL", "02134", "7", "2000-01-01", "\x00", "é", None]
    names = ["email", "first_name", "gender", "is_active", "address_zip", "birthday"]
    rows = [
        {name: cells[(row + 5 * each) % len(cells)] for each, name in enumerate(names)} for row in range(len(cells))
    ]
    together = validate(ValidationRules(zip="omit"), **{name: [row[name] for row in rows] for name in names})
    alone = [validate(ValidationRules(zip="omit"), **{name: [cell] for name, cell in row.items()}) for row in rows]
    found = [(index, fault.field, fault.code) for index, one in enumerate(alone) for fault in one.faults]
    assert list_faults(together.faults) == found
    assert together.subscribers.index.tolist() == [index for index, one in enumerate(alone) if len(one.subscribers)]


@pytest.mark.parametrize("rules", [{"identity": "phone"}, {"required": frozenset({"id"})}, {"zip": "keep"}])
def test_rules_that_cannot_be_are_refused(rules: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(rules))):
        ValidationRules(**rules)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize("cell", ["é" * 10_001, "a@x.com\n" * 1300])
def test_a_whole_file_in_one_cell_is_no_text_of_a_persons(cell: str) -> None:
    assert validate_one("custom_field1", cell) == (["length"], None)
    assert validate_one("tags", cell.split("\n") * 2) == (["length"], None)
    assert validate_one("custom_field1", cell[:10_000])[0] == []


def test_a_phone_is_any_text_unless_the_job_asks_for_a_form() -> None:
    phones = ["030 1234567", "+49301234567", "call me", "", "+49 30 1234567 x8"]
    columns = {"email": [f"{place}@x.com" for place in range(5)], "phone": phones}
    assert validate(**columns).subscribers["phone"].fillna("").tolist() == phones
    strict = validate(ValidationRules(e164=PhoneRule("de")), **columns)
    assert list_faults(strict.faults) == [(2, "phone", "phone"), (4, "phone", "phone")]
    assert strict.subscribers["phone"].fillna("").tolist() == ["+49301234567", "+49301234567", ""]
    kept = validate(ValidationRules(e164=PhoneRule("DE", "keep")), **columns)
    assert kept.faults == ()
    assert kept.subscribers["phone"].fillna("").tolist() == ["+49301234567", "+49301234567", *phones[2:]]


def test_what_mapping_found_is_one_of_a_rows_faults_and_told_once() -> None:
    frame = build_frame(email=["a@x.com", None], first_name=[None, "Ann"], birthday=["x", "y"])
    known = [Fault(0, "first_name", "template", "words"), Fault(1, "email", "template", "words")]
    found = validate_rows(frame, ValidationRules(required=frozenset({"first_name"})), today=TODAY, known=known)
    assert list_faults(found.faults) == [
        (0, "first_name", "template"), (0, "birthday", "date"), (1, "email", "template"), (1, "birthday", "date"),
    ]  # fmt: skip
    assert len(found.subscribers) == 0


def test_without_the_library_phone_forms_say_what_to_install() -> None:
    script = (
        "import sys\nsys.modules['phonenumbers'] = None  # as if it were not installed\n"
        "from connector.subscribers.rules import PhoneRule, ValidationRules\nValidationRules()\nPhoneRule('DE')"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'subscriber-connector[phone]'" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(("region", "otherwise"), [("ZZ", "reject"), ("", "keep"), ("DE", "drop")])
def test_a_phone_form_that_cannot_be_is_refused(region: str, otherwise: str) -> None:
    with pytest.raises(ConfigurationError, match="e164"):
        PhoneRule(region, otherwise)


def validate_birthdays(birthdays: list[str | None], **rules: object) -> ValidRows:
    frame = pd.DataFrame({"email": [f"p{n}@x.com" for n in range(len(birthdays))], "birthday": birthdays}, dtype="str")
    return validate_rows(frame, ValidationRules(**rules), today=date(2026, 11, 22))  # type: ignore[arg-type] # as given


@pytest.mark.parametrize("day", ["--05-12", "--0512", "--02-29"])
def test_it_is_left_out_and_counted(day: str) -> None:
    validated = validate_birthdays(["1980-02-29", day, None])
    assert validated.faults == ()
    assert validated.subscribers["birthday"].fillna("").tolist() == ["1980-02-29", "", ""]
    assert validated.yearless.tolist() == [1]


def test_of_rows_with_a_fault_it_is_not_counted() -> None:
    frame = pd.DataFrame({"email": ["a@x.com", "nobody", "c@x.com"], "birthday": ["--05-12"] * 3}, dtype="str")
    validated = validate_rows(frame, ValidationRules(), today=date(2026, 11, 22))
    assert (len(validated.faults), validated.yearless.tolist()) == (1, [0, 2])


def test_a_job_that_requires_birthdays_requires_whole_ones() -> None:
    validated = validate_birthdays(["--05-12"], required=frozenset({"birthday"}))
    assert [(fault.field, fault.code) for fault in validated.faults] == [("birthday", "required")]
    assert validated.yearless.tolist() == []
