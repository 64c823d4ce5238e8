"""Takes the token out of the service's words, in whatever spelling the service repeats it.

Each of the token's characters may stand as itself or as an escape of a URL, JSON or HTML, each in its own way: services
differ in what they escape, so no list of whole spellings would be complete. What the words mean is not known here.
"""

import re
from functools import partial
from html.entities import html5

from connector.protocol import Mask, extract_words

MASKED = "****"

_SHORTEST_MASKED = 4
"""A shorter token is no secret, and taking it out would only garble the service's words."""

_IN_HTML = {"Content-Type": "text/html"}

_ENTITIES: dict[str, list[str]] = {}
for _name, _characters in html5.items():
    _ENTITIES.setdefault(_characters, []).append(_name.rstrip(";"))


def build_mask(secret: str) -> Mask:
    """What puts `MASKED` in the place of `secret` and its spellings; made once, and used on failures only."""
    if len(secret) < _SHORTEST_MASKED:
        return str
    spellings = [spelling for form in _read_as_words(secret) for spelling in (_spell(form), re.escape(form))]
    return partial(re.compile("|".join(spellings), re.IGNORECASE).sub, MASKED)


def _read_as_words(secret: str) -> list[str]:
    """The secret, and what is read where a service puts it into JSON or HTML unescaped: it is taken for escaped."""
    texts = (secret.encode(), b'"%s"' % secret.encode())
    read = [extract_words(401, headers, text).strip('"') for text in texts for headers in ({}, _IN_HTML)]
    return [form for form in dict.fromkeys([secret, *read]) if len(form) >= _SHORTEST_MASKED]


def _spell(text: str) -> str:
    return "".join(map(_spell_character, text))


def _spell_character(character: str) -> str:
    """A pattern of all ways to write one character, also escaped once more (`%252B`, `\\\\u002b`, `&amp;quot;`).

    Each repetition is bounded, and no run of characters can be divided in two ways: hostile words cost linear time.
    """
    code = ord(character)
    entities = "|".join([*_ENTITIES.get(character, ()), f"#0{{0,6}}{code}", f"#x0{{0,6}}{code:x}"])
    is_percent, is_ampersand, is_backslash = (character == each for each in "%&\\")
    ways = [
        "%25" if is_percent else f"%(?:25){{0,3}}{code:02x}",
        rf"\\{{1,7}}u{code:04x}",
        f"&(?:{entities});?" if is_ampersand else f"&(?:amp;){{0,3}}(?:{entities});?",
        r"\\\\|\\" if is_backslash else rf"\\{{0,7}}{re.escape(character)}",
    ]
    if character == " ":
        ways.append(r"\+")
    return f"(?>{'|'.join(ways)})" if is_backslash else f"(?:{'|'.join(ways)})"
