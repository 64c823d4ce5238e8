"""What a job may demand of phone numbers, how long a text may be, and faults that mapping found."""

import subprocess
import sys

import pytest

from connector.errors import ConfigurationError
from connector.outcomes import Fault
from connector.subscribers import PhoneRule, ValidationRules, validate_rows
from tests.subscribers.test_rows import TODAY, build_frame, list_faults, validate, validate_one


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
        "from connector.subscribers import PhoneRule, ValidationRules\nValidationRules()\nPhoneRule('DE')"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'subscriber-connector[phone]'" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(("region", "otherwise"), [("ZZ", "reject"), ("", "keep"), ("DE", "drop")])
def test_a_phone_form_that_cannot_be_is_refused(region: str, otherwise: str) -> None:
    with pytest.raises(ConfigurationError, match="e164"):
        PhoneRule(region, otherwise)
