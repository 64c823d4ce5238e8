"""Takes the token out of the service's words, in whatever spelling the service repeats it.

Each of the token's characters may stand as itself or as an escape of a URL, JSON or HTML, each in its own way: services
differ in what they escape, and so no list of whole spellings would be complete. Which words those are is not known here.
"""

import re
from functools import partial
from html.entities import html5

from connector.protocol import Mask, extract_words

MASKED = "****"

_SHORTEST_MASKED = 4
"""A shorter token is no secret, and taking it out would only garble the service's words."""

_IN_HTML = {"Content-Type": "text/html"}


def build_mask(secret: str) -> Mask:
    """What replaces `secret` and its spellings in a text by `MASKED`; compiled once, and used on failures only."""
    if len(secret) < _SHORTEST_MASKED:
        return str
    spellings = [spelling for form in _read_as_words(secret) for spelling in (re.escape(form), _spell(form))]
    return partial(re.compile("|".join(spellings), re.IGNORECASE).sub, MASKED)


def _read_as_words(secret: str) -> list[str]:
    """The secret, and what becomes of it where a service writes it into JSON or HTML as it is, and it is read there."""
    texts = (secret, '"' + secret + '"')
    read = [extract_words(401, headers, text.encode()) for text in texts for headers in ({}, _IN_HTML)]
    forms = dict.fromkeys([secret, *(words.strip('"') for words in read)])
    return [form for form in forms if len(form) >= _SHORTEST_MASKED]


def _spell(text: str) -> str:
    return "".join(map(_spell_character, text))


def _spell_character(character: str) -> str:
    """A pattern for one character; no two of its ways match at one place, so that the whole takes linear time.

    An escape may itself be escaped once more (`%252B`, `\\\\"`, `&amp;quot;`).
    """
    code = ord(character)
    url, json = f"%(?:25)*{code:02x}", rf"\\+u{code:04x}"
    html = "|".join([*_NAMES.get(character, ()), f"#0*{code}", f"#x0*{code:x}"])
    ways = [url, json, f"&(?:amp;)*(?:{html});?"]
    if character == "\\":  # atomic: a run of backslashes could be divided among several characters in too many ways
        return rf"(?>\\+u005c|\\\\|\\|{url}|{ways[2]})"
    if character == "%":
        ways[0] = "%25"
    if character == "&":
        ways[2] = f"&(?:{html});?"
    if character == " ":
        ways.append(r"\+")
    return rf"(?:\\*{re.escape(character)}|{'|'.join(ways)})"


_NAMES: dict[str, list[str]] = {}
for _name, _character in html5.items():
    if _character.isascii():
        _NAMES.setdefault(_character, []).append(_name.rstrip(";"))
