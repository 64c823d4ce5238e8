"""Bytes of any encoding to text, piece by piece; a mark stands where bytes are none, and costs its row later on."""

import codecs
import unicodedata
from collections.abc import Callable

UNDECODABLE = "\udcff"  # a lone surrogate: encoded it is no valid UTF-8, so it costs its row as a wrong byte does
UNDECODABLE_BYTES = UNDECODABLE.encode("utf-8", "surrogatepass")

_UNMAPPED = "\ufffe"  # what a decoding table of Python's says of a byte that has no character


def build_decoder(encoding: str, *, is_strict: bool) -> Callable[[bytes, bool], str]:
    """Give a function of a piece and of whether it is the last one.

    Strictly (for encodings of single bytes) control characters beyond ASCII are marked, too, which ISO-8859-x has at
    0x80 to 0x9F: nobody writes any, and where they turn up, the encoding is another one.
    """
    if is_strict:
        table = "".join(_take_character(octet, encoding) for octet in range(256))
        return lambda piece, _: codecs.charmap_decode(piece, "connector.mark", table)[0]
    decoder = codecs.getincrementaldecoder(encoding)("connector.mark")
    return lambda piece, is_last: decoder.decode(piece, final=is_last)


def _take_character(octet: int, encoding: str) -> str:
    character = bytes([octet]).decode(encoding, "ignore") or _UNMAPPED
    return character if octet < 0x80 or unicodedata.category(character) != "Cc" else _UNMAPPED


def _mark_undecodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return UNDECODABLE, error.end


codecs.register_error("connector.mark", _mark_undecodable)  # error handlers can only be named, never passed
