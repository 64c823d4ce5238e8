"""Texts as they stand in an email's headers: folded, and encoded where they are more than plain ASCII.

Python's own folding depends on its version and loses what lies between encoded words, so the lines are made here:
RFC 2047 for texts and names, RFC 2231 for parameters. Addresses alone may stand as UTF-8 (RFC 6532).
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from email.utils import encode_rfc2231, quote

from connector.protocol.email import Recipient
from connector.protocol.email_rules import MessageError

LINE_END = "\r\n"
_FOLD = LINE_END + " "
_LONGEST = 76  # RFC 2047, 2: of a line with an encoded word; RFC 5322 would have two more
_FRAME = len("=?utf-8?b??=")
_LONGEST_WORD = 900  # RFC 5322, 2.1.1: a line has at most 998 characters
_PIECE = 60  # characters of a parameter in one line (RFC 2231, 3)

_PIECES = re.compile(r"(?:%..|[^%]){1,20}")  # an octet is never split: each piece is read for itself
_PLAIN = re.compile(r"[!-~]+( [!-~]+)*")
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]+")
_SAFE_NAME = re.compile(r"[A-Za-z0-9._() +-]{1,60}")
_PART = r'[^\x00-\x20\x7f"(),:;<>@\[\\\]]+'
_ADDRESS = re.compile(rf'({_PART}|"([^"\\]|\\["\\])*")@({_PART}|\[[^\x00-\x20\x7f\[\]\\]*\])')


def encode_text(name: str, text: str) -> str:
    """The line of a header whose value is any text."""
    if not text:
        return f"{name}: "
    return f"{name}: " + (_fold(text, len(name) + 2) if _is_plain(text) else _encode_words(text, len(name) + 2))


def encode_people(name: str, field: str, people: Sequence[Recipient]) -> str:
    """The lines of a header of addresses. Raises MessageError with the field of one that no header can hold."""
    return f"{name}: " + ("," + _FOLD).join(
        _encode_person(each, f"{field}[{place}]", len(name) + 2 if place == 0 else 1)
        for place, each in enumerate(people)
    )


def encode_filename(filename: str) -> str:
    """The parameters that tell a file's name, each in a line of its own, as they follow a Content-Disposition."""
    if _SAFE_NAME.fullmatch(filename) and filename == filename.strip():
        return f';{_FOLD}filename="{filename}"'
    encoded = encode_rfc2231(filename, "utf-8")
    if len(encoded) <= _PIECE:
        return f";{_FOLD}filename*={encoded}"
    pieces = _PIECES.findall(encoded)
    return "".join(f";{_FOLD}filename*{place}*={piece}" for place, piece in enumerate(pieces))


def _encode_person(person: Recipient, field: str, used: int) -> str:
    if not _ADDRESS.fullmatch(person.email):
        raise MessageError(f"{field}.Email", "holds a character that an address cannot have outside of quotes")
    if not person.name:
        return person.email
    return f"{_encode_name(person.name, used)}{_FOLD}<{person.email}>"


def _encode_name(name: str, used: int) -> str:
    if not _is_plain(name) or len(name) > _LONGEST // 2:
        return _encode_words(name, used)
    return name if _ATOMS.fullmatch(name) else f'"{quote(name)}"'


def _is_plain(text: str) -> bool:
    """Whether a text can stand in a header as it is, and be folded at any blank."""
    is_simple = text.isascii() and "=?" not in text and _PLAIN.fullmatch(text)
    return bool(is_simple) and max(map(len, text.split(" "))) <= _LONGEST_WORD


def _fold(text: str, used: int) -> str:
    first, *others = text.split(" ")
    folded, length = first, used + len(first)
    for word in others:
        is_full = length + 1 + len(word) > _LONGEST
        folded += (_FOLD if is_full else " ") + word
        length = 1 + len(word) + (0 if is_full else length)
    return folded


def _encode_words(text: str, used: int) -> str:
    """Encoded words, none of which splits a character; `used` characters stand before the first in its line."""
    words: list[str] = []
    chunk = b""
    for character in text:
        room = max(_LONGEST - (1 if words else used) - _FRAME, 16) // 4 * 3
        encoded = character.encode()
        if len(chunk) + len(encoded) > room:
            words.append(_encode_word(chunk))
            chunk = b""
        chunk += encoded
    return _FOLD.join([*words, _encode_word(chunk)])


def _encode_word(chunk: bytes) -> str:
    return f"=?utf-8?b?{b64encode(chunk).decode('ascii')}?="
