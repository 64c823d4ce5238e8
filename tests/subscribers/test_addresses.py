"""Addresses are judged as email-validator judges those of its own tests; docs/reference/sources.md says where not."""

import pyarrow as pa
import pytest
from email_validator import EmailNotValidError, validate_email

from connector.subscribers.checks import is_email
from tests.subscribers.addresses import INVALID, INVALID_HERE_ALONE, VALID, VALID_HERE_ALONE
from tests.subscribers.test_rows import validate_one


def judge(text: str) -> bool:
    (verdict,) = is_email(pa.array([text], pa.large_string())).to_pylist()
    return bool(verdict)


def judge_there(text: str) -> bool:
    """By email-validator as it is when nothing is asked of it."""
    try:
        validate_email(text, check_deliverability=False)
    except EmailNotValidError:
        return False
    return True


def test_each_address_is_judged_as_there_alone_and_in_one_column() -> None:
    good, bad = [*VALID, *VALID_HERE_ALONE], [*INVALID, *INVALID_HERE_ALONE]
    assert [text for text in good if not judge(text)] == []
    assert [text for text in bad if judge(text)] == []
    verdicts = is_email(pa.array([*good, *bad], pa.large_string())).to_pylist()
    assert verdicts == [True] * len(good) + [False] * len(bad)
    assert len({*good, *bad}) == len(good) + len(bad)


def test_where_we_differ_from_email_validator_the_table_says_so() -> None:
    assert [text for text in (*VALID, *INVALID_HERE_ALONE) if not judge_there(text)] == []
    assert [text for text in (*INVALID, *VALID_HERE_ALONE) if judge_there(text)] == []


@pytest.mark.parametrize("text", [" test@iana.org", "test@iana.org ", "test@iana.org\r\n", "\r\n test@iana.org"])
def test_blanks_around_an_address_are_dropped_before_it_is_judged(text: str) -> None:
    assert validate_one("email", text) == ([], "test@iana.org")
