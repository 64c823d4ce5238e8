"""The API token in a type that does not let it slip: into a log, a traceback, a pickle or a report."""

import hmac
from typing import NoReturn

from connector.errors import ConfigurationError

_SHOWN = "****"


class Token:
    """An API token (api.md, section 5); `reveal` is the only way to its text.

    Raises ConfigurationError, which does not show it, for a text that cannot be the value of a header: an empty one,
    one with blanks at its ends, with control characters or with anything beyond ASCII.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not text:
            raise ConfigurationError("The token is empty; set CONNECTOR_TOKEN or CONNECTOR_TOKEN_FILE.")
        if text != text.strip():
            raise ConfigurationError("The token begins or ends with a blank or a line break; remove it.")
        if not text.isascii() or not text.isprintable():
            raise ConfigurationError("The token holds a character that no header may carry; copy it anew.")
        self._text = text

    def reveal(self) -> str:
        """The token's text: for the header of a request, and nothing else."""
        return self._text

    def __repr__(self) -> str:
        return f"Token({_SHOWN})"

    def __str__(self) -> str:
        return _SHOWN

    def __format__(self, spec: str) -> str:
        return format(_SHOWN, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and hmac.compare_digest(self._text, other._text)

    def __hash__(self) -> int:
        return hash(self._text)

    def __copy__(self) -> "Token":
        return self

    def __deepcopy__(self, memo: object) -> "Token":
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("A token is not pickled: hand it on by the environment or a file.")
