"""Headers of an .eml file as text: unfolded, bytes and encoded words (RFC 2047) made what they mean."""

import binascii
import re
from email.policy import Compat32

from connector.mail.eml.charsets import decode
from connector.protocol.email_rules import MessageError

_FOLDED = re.compile(r"\r?\n[ \t]?|\r[ \t]?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WORD = re.compile(r"=\?(?P<charset>[^?*\s]+)(?:\*[^?\s]*)?\?(?P<how>[bBqQ])\?(?P<text>[^?]*)\?=")


class RawHeaders(Compat32):
    """Python's policy for reading, but headers stay what the file says; a class is how one asks Python for that."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        """The value in one line; bytes beyond ASCII are UTF-8, or stay marked as bytes (surrogates)."""
        line = _FOLDED.sub(" ", value).strip()
        try:
            return line.encode("ascii", "surrogateescape").decode()
        except ValueError:
            return line


def decode_words(text: str) -> str:
    """The text with its encoded words decoded, and no control characters.

    Neighbouring words of one character set are one text: there are programs that split a character between two.
    Raises ValueError, fit to show.
    """
    made: list[str] = []
    raw, charset, done = b"", "", 0
    for word in _WORD.finditer(text):
        chunk = _decode_chunk(word["how"], word["text"])
        if chunk is None:
            continue
        between = text[done : word.start()]
        if not charset or between.strip() or charset != word["charset"].lower():
            made += [_decode_run(raw, charset), between if not charset or between.strip() else ""]
            raw, charset = b"", word["charset"].lower()
        raw, done = raw + chunk, word.end()
    return _CONTROL.sub(" ", "".join([*made, _decode_run(raw, charset), text[done:]]))


def read_text(text: str, field: str) -> str:
    """As `decode_words`. Raises MessageError with `field`."""
    try:
        return decode_words(text)
    except ValueError as error:
        raise MessageError(field, str(error)) from None


def _decode_chunk(how: str, text: str) -> bytes | None:
    """The bytes of an encoded word; None for what is none, and stays as it is."""
    if how in "qQ":
        return binascii.a2b_qp(text.encode("utf-8", "surrogateescape"), header=True)
    try:
        return binascii.a2b_base64(text.encode("utf-8", "surrogateescape") + b"=" * (-len(text) % 4))
    except binascii.Error:
        return None


def _decode_run(raw: bytes, charset: str) -> str:
    return decode(raw, charset) if charset else ""
