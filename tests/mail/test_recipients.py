"""Recipients as people write them."""

import pytest
from hypothesis import given, strategies as st

from connector.mail import MessageError, parse_recipient


@pytest.mark.parametrize(
    ("text", "email", "name"),
    [
        ("ann@example.com", "ann@example.com", None),
        (" ann@example.com ", "ann@example.com", None),
        ("<ann@example.com>", "ann@example.com", None),
        ("Ann <ann@example.com>", "ann@example.com", "Ann"),
        ("  Ann Lee<ann@example.com> ", "ann@example.com", "Ann Lee"),
        ('"Lee, Ann" <ann@example.com>', "ann@example.com", "Lee, Ann"),
        (r'"Ann \"A\" Lee" <ann@example.com>', "ann@example.com", 'Ann "A" Lee'),
        ("Änne Ö <ann@example.com>", "ann@example.com", "Änne Ö"),
        ("Lee, Ann <ann@example.com>", "ann@example.com", "Lee, Ann"),
    ],
)
def test_an_address_with_its_name_or_without(text: str, email: str, name: str | None) -> None:
    recipient = parse_recipient(text, "Email.To[0]")
    assert (recipient.email, recipient.name) == (email, name)


@pytest.mark.parametrize(
    "text", ["", "Ann", "ann@", "@x.org", "<>", "Ann <ann>", "a@x.org b@y.org", "<a@x.org> <b@y.org>"]
)
def test_what_is_no_address_is_told_by_its_field_and_not_by_itself(text: str) -> None:
    with pytest.raises(MessageError) as raised:
        parse_recipient(text, "Email.To[0]")
    assert raised.value.field == "Email.To[0].Email"
    assert text == "" or text not in str(raised.value)


def test_a_name_with_a_line_break_is_refused() -> None:
    with pytest.raises(MessageError) as raised:
        parse_recipient("Ann\r\nBcc: eve <ann@example.com>", "Email.Cc[1]")
    assert raised.value.field == "Email.Cc[1].Name"


@given(st.text(max_size=40))
def test_any_text_is_a_recipient_or_a_message_error(text: str) -> None:
    try:
        recipient = parse_recipient(text, "To")
    except MessageError:
        return
    assert "@" in recipient.email
    assert not set("\r\n\0") & set(recipient.email + (recipient.name or ""))
