"""Bytes as text, in the character sets that emails name: as their writers meant them, which is not always as named."""

import re

_CODE_PAGE = re.compile(r"(?:cp|win|windows|ibm|dos|x-cp)[-_ ]?(\d+)", re.IGNORECASE)
_SAYS_NOTHING = frozenset(
    {"", "us-ascii", "ascii", "ansi_x3.4-1968", "unknown-8bit", "x-unknown", "unknown", "default"}
)

# As browsers have it (WHATWG, Encoding, 4.2): programs wrote the larger set and named the smaller; and names that
# Python does not know.
_MEANT = {
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "iso-8859-9": "cp1254",
    "iso-8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "ks_c_5601-1987": "cp949",
    "euc-kr": "cp949",
    "shift_jis": "cp932",
    "x-sjis": "cp932",
    "big5": "big5hkscs",
    "iso-8859-6-i": "iso8859-6",
    "iso-8859-8-i": "iso8859-8",
    "iso-8859-8-e": "iso8859-8",
    "macintosh": "mac_roman",
    "x-mac-roman": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic",
    "unicode-1-1-utf-7": "utf-7",
    "utf8": "utf-8",
    "utf8mb4": "utf-8",
}


def decode(raw: bytes, charset: str | None) -> str:
    """The text. Raises ValueError, fit to show, when it is not in the character set that is named, or none is."""
    named = (charset or "").strip().lower()
    if named in _SAYS_NOTHING:
        candidates = ["utf-8"]
    else:
        candidates = [_MEANT.get(named, _CODE_PAGE.sub(r"cp\1", named)), named, "utf-8"]
    for codec in candidates:
        text = _try(raw, codec)
        if text is not None:
            return text
    if named in _SAYS_NOTHING:
        raise ValueError("names no character set, and is not UTF-8")
    raise ValueError(f"is not in the character set that it names, {named[:40]!r}, or that set is not known")


def _try(raw: bytes, codec: str) -> str | None:
    try:
        text = raw.decode(codec)
        text.encode()  # UTF-7 can spell half a character
    except (LookupError, ValueError):
        return None
    return text
