"""A token shows itself only when asked to."""

import copy
import pickle
from dataclasses import asdict

import pytest

from connector.errors import ConfigurationError
from connector.service import Service, Token

TEXT = "s3cret-token"


def test_a_token_is_revealed_when_asked() -> None:
    assert Token(TEXT).reveal() == TEXT


def test_a_token_is_masked_wherever_it_is_written() -> None:
    token = Token(TEXT)
    service = Service("https://api.example.com", token)
    written = [repr(token), str(token), f"{token}", f"{token!s:>20}", f"{token:>20}", "%s" % token, repr([token])]  # noqa: UP031 - logging writes so
    written += [repr(service), str(asdict(service)), repr(copy.deepcopy(service)), repr(copy.copy(token))]
    assert not [text for text in written if TEXT in text]
    assert not hasattr(token, "__dict__")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_token_is_not_pickled(protocol: int) -> None:
    with pytest.raises(TypeError, match="not pickled") as caught:
        pickle.dumps(Token(TEXT), protocol)
    assert TEXT not in str(caught.value)


def test_tokens_are_equal_by_their_text() -> None:
    assert Token(TEXT) == copy.deepcopy(Token(TEXT))
    assert hash(Token(TEXT)) == hash(Token(TEXT))
    assert Token(TEXT) != Token("another")
    assert Token(TEXT) != TEXT


@pytest.mark.parametrize(
    "text", ["", " ", f" {TEXT}", f"{TEXT}\n", f"{TEXT}\r\nX: y", f"s3cret\x00{TEXT}", f"s3cret\x7f{TEXT}", f"{TEXT}é"]
)
def test_a_text_that_no_header_may_carry_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Token(text)
    assert "s3cret" not in str(caught.value)
