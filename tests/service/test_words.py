"""The service's words, whatever their shape, and what makes two refusals the same kind."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from connector.service import extract_words, refusal_kind

SAMPLES = Path(__file__).parent / "samples"
HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("refused_plain.json", "Subscriber already exists"),
        ("refused_nested.json", "Subscriber already exists"),
        ("refused_by_field.json", "Validation failed; Email: is taken; Email: is odd; Zip: is no number"),
        ("refused.html", "403 Forbidden You don't have access."),
    ],
)
def test_an_error_in_a_known_shape_is_shown_as_its_text(sample: str, words: str) -> None:
    assert extract_words(403, {}, (SAMPLES / sample).read_bytes()) == words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ""),
        (b"   \r\n ", ""),
        (b"null", ""),
        (b"{}", ""),
        (b'{"success": false}', ""),
        (b'"just text"', "just text"),
        (b"17", "17"),
        (b"Invalid address <a@b.c>, line\n 2\x00", "Invalid address <a@b.c>, line 2"),
        (b'["first", "second", "first"]', "first; second"),
        (b'{"error": "invalid_grant", "error_description": "Token is old"}', "invalid_grant; Token is old"),
        (b'{"ErrorMessage": "no"}', "no"),
        (b'{"errors": [{"field": "Email", "message": "is taken"}]}', "field: Email; is taken"),
        (b'{"code": "EMAIL_EXISTS", "success": false}', "code: EMAIL_EXISTS"),
        (b'{"a": {"b": [1, "two", null]}}', "a.b: 1; a.b: two"),
        (b'{"message": ""}', ""),
        ("{'message': 'née'}".encode("latin-1"), "{'message': 'n\ufffde'}"),
        (b"<h1>Bad gateway</h1>", "Bad gateway"),
        (b"<html><head><title>502 Bad Gateway</title></head><body></body></html>", "502 Bad Gateway"),
        (b"<?xml version='1.0'?><error><code>7</code><text>no &amp; no</text></error>", "7 no & no"),
    ],
)
def test_any_other_shape_is_shown_as_well_as_it_can_be(body: bytes, words: str) -> None:
    assert extract_words(400, {}, body) == words


def test_text_that_is_declared_html_loses_its_tags_and_other_text_keeps_its_angles() -> None:
    assert extract_words(400, HTML, b"no <b>such</b> list") == "no such list"
    assert extract_words(400, {"Content-Type": "text/plain"}, b"no <b>such</b> list") == "no <b>such</b> list"


def test_a_redirect_is_shown_with_its_target() -> None:
    headers = {"location": " https://other.example/login "}
    assert extract_words(302, headers, b"") == "redirect to https://other.example/login"
    assert extract_words(302, headers, b"Moved") == "redirect to https://other.example/login; Moved"
    assert extract_words(201, headers, b"Moved") == "Moved"


def test_an_error_of_megabytes_is_read_by_its_beginning() -> None:
    words = extract_words(500, {}, b'{"message": "' + b"x" * 2_000_000 + b'"}')
    assert words.startswith('{"message": "xxx')
    assert len(words) < 25_000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a@example.com is taken", "Zoë.B+x@mail.example.org is taken"),
        ("email ann@example.com: taken", "email bob@b.org: taken"),
        ('"Ann" is no name', "\"Bob 'the' Builder\" is no name"),
        ("“Ann” is no name", "“Bob” is no name"),
        ("'Ann' is no name", "'Bob O'Neill' is no name"),
        ("limit of 10 in 60 s", "limit of 9000 in 1 s"),
        ("request 3fa85f64-5717-4562-b3fc-2c963f66afa6 failed", "request 11111111-2222-4562-b3fc-aaaaaaaaaaaa failed"),
        ("trace 7d3fa1c0b2 failed", "trace 00ffee1122334455 failed"),
        ("ref k3J9sLq0Zx81mNbVc2 lost", "ref 9ZZtopQ7aLmNoP1234x lost"),
        ('bad value "cut in the mid', 'bad value "another that was cut'),
        ("too  long\n", "too long"),
    ],
)
def test_refusals_that_differ_only_in_a_rows_own_data_are_one_kind(one: str, other: str) -> None:
    assert refusal_kind(400, one) == refusal_kind(400, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Email is taken", "Email is invalid"),
        ("code: EMAIL_EXISTS", "code: BAD_ZIP"),
        ("Phone can't be used, it isn't one", "Zip can't be used, it isn't one"),
        ("CustomField1 is too long", "Line1 is too long"),
        ("Address.Country is unknown", "Address.City is unknown"),
    ],
)
def test_refusals_for_different_reasons_are_different_kinds(one: str, other: str) -> None:
    assert refusal_kind(400, one) != refusal_kind(400, other)


def test_the_status_is_part_of_the_kind() -> None:
    assert refusal_kind(400, "no") != refusal_kind(422, "no")
    assert refusal_kind(400, "") == "400"


def test_a_kind_holds_no_address() -> None:
    assert refusal_kind(409, "User <jose@example.com>, exists") == "409 User <@>, exists"


@given(st.integers(100, 599), st.text(max_size=600))
def test_a_kind_is_a_kind_of_its_own_for_any_text(status: int, message: str) -> None:
    kind = refusal_kind(status, message)
    assert kind.startswith(str(status))
    assert not any(character.isdecimal() for character in kind.removeprefix(str(status)))


@given(st.integers(100, 999), st.binary(max_size=400))
def test_words_are_one_line_for_any_bytes(status: int, body: bytes) -> None:
    words = extract_words(status, HTML, body)
    assert not any(character < " " for character in words)
