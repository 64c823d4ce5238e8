"""The token is masked in the words of the service, in any spelling."""

import html
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import given, strategies as st

from connector.service.answers import MASKED, build_mask
from connector.service.client import open_client
from connector.service.settings import Service, Token
from connector.service.wire import Ambiguous, ListQuery, Refused
from tests.service import faults
from tests.service.faults import response, serve

SECRET = 's3cr+et/TOK"EN='

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "percent-encoded": lambda text: quote(text, safe=""),
    "percent-encoded path": quote,
    "percent-encoded in small letters": lambda text: quote(text, safe="").lower(),
    "percent-encoded twice": lambda text: quote(quote(text, safe=""), safe=""),
    "percent-encoded to the last letter": lambda text: "".join(f"%{ord(sign):02X}" for sign in text),
    "form": quote_plus,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON with escaped slashes": lambda text: json.dumps(text)[1:-1].replace("/", r"\/"),
    "JSON safe in HTML": lambda text: "".join(f"\\u{ord(sign):04x}" if not sign.isalnum() else sign for sign in text),
    "JSON in JSON": lambda text: json.dumps(json.dumps(text))[3:-3],
    "HTML": html.escape,
    "HTML but for quotes": lambda text: html.escape(text, quote=False),
    "HTML by numbers": lambda text: "".join(f"&#{ord(sign)};" for sign in text),
    "HTML by hexadecimals": lambda text: "".join(f"&#x{ord(sign):X};" for sign in text),
    "HTML by names": lambda text: text.replace('"', "&quot;").replace("+", "&plus;").replace("/", "&sol;"),
    "HTML twice": lambda text: html.escape(html.escape(text)),
}


def test_a_spelling_of_the_token_is_masked() -> None:
    for spell in SPELLINGS.values():
        assert build_mask(SECRET)(f"the token {spell(SECRET)} is old") == f"the token {MASKED} is old"


PAGE_NUMBERS = {
    "JSON": response(json.dumps({"message": f"token {SECRET} is old"}).encode(), "401 Unauthorized"),
    "JSON with a link": response(json.dumps({"message": f"token {quote_plus(SECRET)} is old"}).encode(), "401 No"),
    "JSON in text": response(f"token {json.dumps(SECRET)[1:-1]} is old".encode(), "401 Unauthorized"),
    "HTML": response(f"<p>token {html.escape(SECRET)} is old".encode(), "401 No", Content_Type="text/html"),
    "HTML in JSON": response(json.dumps({"message": f"token {html.escape(SECRET)} is old"}).encode(), "401 No"),
}


async def test_an_answer_shows_no_token() -> None:
    for echo in PAGE_NUMBERS.values():
        async with (
            serve(faults.answers(echo)) as server,
            open_client(Service(server.base_url, Token(SECRET))) as client,
        ):
            refused = Refused(401, f"token {MASKED} is old", None)
            assert await client.create_subscriber(b"{}") == refused
            assert await client.list_subscribers(ListQuery()) == refused
            assert await client.send_email(b"{}") == refused


async def test_the_target_of_a_redirect_shows_no_token() -> None:
    moved = response(b"", "302 Found", Location=f"/login?token={quote(SECRET)}&next=/")
    async with serve(faults.answers(moved)) as server, open_client(Service(server.base_url, Token(SECRET))) as client:
        answer = await client.create_subscriber(b"{}")
        assert answer == Ambiguous(302, f"redirect to /login?token={MASKED}&next=/", None)


@pytest.mark.parametrize("secret", ["s3cret&amp;token", "s3cret&#38;token", r"s3cret\u0041token"])
@pytest.mark.parametrize("page", ["<p>token {} is old</p>", '{{"message": "token {} is old"}}'], ids=["HTML", "JSON"])
async def test_a_token_that_looks_escaped_is_masked(secret: str, page: str) -> None:
    echo = response(page.format(secret).encode(), "401 Unauthorized")
    async with serve(faults.answers(echo)) as server, open_client(Service(server.base_url, Token(secret))) as client:
        assert await client.create_subscriber(b"{}") == Refused(401, f"token {MASKED} is old", None)


PRINTABLE = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters="\\"), min_size=4, max_size=30
)


@given(PRINTABLE, st.sampled_from(sorted(SPELLINGS)))
def test_any_token_is_masked_plain_and_escaped(secret: str, spelling: str) -> None:
    if "twice" in spelling or spelling == "JSON in JSON":  # of these, what services do, not what a backslash may become
        spelling = "as it is"
    shown = build_mask(secret)(f"<{SPELLINGS[spelling](secret)}>")
    assert secret[:4] not in html.unescape(unquote(shown)).replace(MASKED, ""), "only escapes may be left"


def test_other_words_stay_unchanged() -> None:
    words = 'The token is old: ask for "another" one at https://example.com/?a=%2B&amp;b=\\u002b'
    assert build_mask(SECRET)(words) == words
    assert build_mask("abc")("abc") == "abc", "so short a token is no secret"


def test_long_words_are_masked() -> None:
    for secret in [SECRET, "\\" * 60, "%25" * 20, "&amp;" * 20, "\\u005c" * 10, " " * 3 + "a" * 9]:
        mask = build_mask(secret)
        for words in (
            "\\" * 20_000 + "x",
            "%25" * 7_000,
            "&amp;" * 4_000,
            secret[:-1] * (20_000 // len(secret)),
            secret[:-1] + "!",
            "0" * 20_000,
        ):
            assert secret not in mask(words)  # A pattern that tries every division does not end.
