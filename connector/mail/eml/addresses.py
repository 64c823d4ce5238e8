"""The people of a header of addresses (RFC 5322, 3.4), those of groups among them.

Python's own reader leaves out whom it does not understand, each version in its way; here that is an error.
"""

import re
from collections.abc import Iterator

from connector.mail.eml.decoding import read_text
from connector.mail.recipients import build_recipient
from connector.protocol.email import Recipient

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|\((?:[^()\\]|\\.|\([^()]*\))*\)|<[^<>]*>|\[[^\[\]]*\]|[^"(<\[,;:]+|.', re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)")
_ROUTE = re.compile(r"@[^:]*:")  # <@relay.example:ann@example.com>, of old


def parse_people(value: str, field: str) -> tuple[Recipient, ...]:
    """The people in their order. Raises MessageError with `field` and the place of one who is no address."""
    return tuple(_parse_person(tokens, f"{field}[{place}]") for place, tokens in enumerate(_split(value)))


def _split(value: str) -> Iterator[list[str]]:
    """The tokens of each person; a group's name is left out, and so are empty places between commas."""
    person: list[str] = []
    for piece in _TOKEN.findall(value):
        if piece in ",;":
            if "".join(person).strip():
                yield person
            person = []
        elif piece == ":" and "@" not in "".join(person):
            person = []
        else:
            person.append(piece)
    if "".join(person).strip():
        yield person


def _parse_person(tokens: list[str], field: str) -> Recipient:
    comments = [token[1:-1] for token in tokens if _is_in(token, "()")]
    angles = [token[1:-1] for token in tokens if _is_in(token, "<>")]
    others = [token for token in tokens if not _is_in(token, "()") and not _is_in(token, "<>")]
    if angles:
        filled = [token for token in others if token.strip()]
        is_quoted = len(filled) == 1 and _is_in(filled[0], '""')
        name = _ESCAPED.sub(r"\1", filled[0][1:-1]) if is_quoted else "".join(others)
        email = _ROUTE.sub("", angles[-1])
    else:
        email, name = "".join(others), ""
    told = read_text(name.strip() or "".join(comments), f"{field}.Name").strip()
    return build_recipient(email.strip(), told or None, field)


def _is_in(token: str, marks: str) -> bool:
    return len(token) > 1 and token[0] == marks[0] and token[-1] == marks[1]
