"""The URL of the service and the token. URLs that would show the token to a network are refused."""

import copy
import pickle
import traceback
from collections.abc import Callable

import pytest

from connector.errors import ConfigurationError
from connector.service.settings import Service, Token, parse_base_url

TOKEN = Token("s3cret-token")


def test_an_https_or_loopback_url_is_normalised() -> None:
    cases: list[tuple[str, str]] = [
        ("https://api.example.com", "https://api.example.com"),
        ("https://api.example.com:8443/v1//", "https://api.example.com:8443/v1"),
        ("HTTPS://API.Example.COM/V1", "https://api.example.com/V1"),
        ("https://[2001:db8::1]:443", "https://[2001:db8::1]"),
        ("https://api.example.com:80/v1/", "https://api.example.com:80/v1"),
        ("https://bücher.example", "https://bücher.example"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://localhost:1", "http://localhost:1"),
        ("http://[::1]:5", "http://[::1]:5"),
    ]
    for url, expected_url in cases:
        assert parse_base_url(url) == expected_url
        assert Service(url, TOKEN).base_url == expected_url


def test_the_error_of_a_refused_url_shows_the_reason() -> None:
    cases: list[tuple[str, str]] = [
        ("", "empty"),
        ("api.example.com", "begin with https"),
        ("ftp://example.com", "begin with https"),
        ("https://", "a host, such as"),
        ("https://:443", "a host, such as"),
        ("https://host:port", "is not a URL"),
        ("https://host:99999", "is not a URL"),
        ("https://api.example.com?x=1", "query"),
        ("https://api.example.com#x", "fragment"),
        ("https://api.example.com/a b", "blank"),
        ("https://api.exam\tple.com", "blank"),
        ("https:\\\\api.example.com", "backslash"),
        ("http://api.example.com", "plain http to api.example.com"),
        ("http://0.0.0.0", "plain http"),
        ("http://localhost.example.com", "plain http"),
        ("http://127.0.0.1.example.com", "plain http"),
        ("http://2130706433", "plain http"),
        ("http://[::ffff:10.0.0.1]", "plain http"),
    ]
    for url, reason in cases:
        with pytest.raises(ConfigurationError, match=reason) as error_info:
            parse_base_url(url)
        assert str(error_info.value).startswith("The base URL (CONNECTOR_BASE_URL, or service.base_url in the job) ")


@pytest.mark.parametrize("url", ["https://user:s3cret@host", "http://s3cret@127.0.0.1", "https://s3cret@"])
def test_credentials_in_a_url_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="user name or password") as error_info:
        parse_base_url(url)
    assert "s3cret" not in str(error_info.value)


@pytest.mark.parametrize("url", ["https://user:s3cret", "https://user:s3cret/@host", "http://[s3cret:x@host"])
def test_the_traceback_of_an_unreadable_url_shows_no_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a URL") as error_info:
        parse_base_url(url)
    assert "s3cret" not in "".join(traceback.format_exception(error_info.value))


def test_the_authorization_is_the_template_with_the_token() -> None:
    assert Service("https://h", TOKEN).reveal_authorization() == "s3cret-token"
    assert Service("https://h", TOKEN, "Bearer {token}").reveal_authorization() == "Bearer s3cret-token"
    assert Service("https://h", TOKEN, 'Token {id}="{token}"').reveal_authorization() == 'Token {id}="s3cret-token"'


def test_a_template_of_an_invalid_header_is_refused() -> None:
    for template in ["", "Bearer", "{token} {token}", "Bearer\n{token}", "Bearér {token}"]:
        with pytest.raises(ConfigurationError, match=r"service\.authorization"):
            Service("https://h", TOKEN, template)


def test_a_timeout_outside_of_the_allowed_range_is_refused() -> None:
    for timeout_s in [0, -1, float("nan"), float("inf"), 3601]:
        with pytest.raises(ConfigurationError, match="timeout"):
            Service("https://h", TOKEN, timeout_s=timeout_s)


# A token is shown only by `reveal`

TOKEN_TEXT = "s3cret-token"


def test_a_token_is_masked_in_any_text() -> None:
    token = Token(TOKEN_TEXT)
    service = Service("https://api.example.com", token)
    texts = [repr(token), str(token), f"{token}", f"{token!s:>20}", "%s" % token, repr([token]), repr(service)]  # noqa: UP031 - logging formats in this way
    assert not [text for text in texts if TOKEN_TEXT in text]
    assert not hasattr(token, "__dict__")


@pytest.mark.parametrize("serialise", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_token_cannot_be_pickled_or_copied(serialise: Callable[[Token], object]) -> None:
    with pytest.raises(TypeError, match="cannot be pickled") as error_info:
        serialise(Token(TOKEN_TEXT))
    assert TOKEN_TEXT not in str(error_info.value)


def test_the_error_of_a_token_with_an_invalid_character_hides_the_token() -> None:
    for text in [
        "",
        " ",
        f" {TOKEN_TEXT}",
        f"{TOKEN_TEXT}\n",
        f"{TOKEN_TEXT}\r\nX: y",
        f"s3cret\x00{TOKEN_TEXT}",
        f"s3cret\x7f{TOKEN_TEXT}",
        f"{TOKEN_TEXT}é",
    ]:
        with pytest.raises(ConfigurationError) as error_info:
            Token(text)
        assert "s3cret" not in str(error_info.value)
