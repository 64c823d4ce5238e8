"""The `:names` of a query: those of its statement, and not what looks like one in its texts and comments. Pure."""

import re
from collections.abc import Collection

_WITH_BACKSLASHES = ("mysql", "mariadb")

# A text or comment that is never closed is none, and what follows is looked at.
_TEXTS = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"
_TEXTS_OF_MYSQL = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|--\s[^\n]*|#[^\n]*|/\*.*?\*/"
_COLON_NAME = r"(?<![:\w\\]):(?P<name>\w+)(?!\w)(?:(?P<cast>::)|(?!:))"
_TOKENS = re.compile(f"{_TEXTS}|{_COLON_NAME}", re.DOTALL)
_TOKENS_OF_MYSQL = re.compile(f"{_TEXTS_OF_MYSQL}|{_COLON_NAME}", re.DOTALL)
_ANY_NAME = re.compile(_COLON_NAME)


def find_names(query: str, database: str) -> set[str]:
    """The names that a query of this database (SQLAlchemy's word for it) has values for."""
    return {found["name"] for found in _choose(database).finditer(query) if found["name"]}


def mark_names(query: str, names: Collection[str], mark: str, database: str) -> str:
    """The query with another mark in place of the colon of each of these names."""

    def write(found: re.Match[str]) -> str:
        return f"{mark}{found['name']}{found['cast'] or ''}" if found["name"] in names else found[0]

    return _choose(database).sub(write, query)


def escape_others(query: str, names: Collection[str], database: str) -> str:
    """The query for SQLAlchemy's `text`: with backslashes before the colons of whatever else it would take for a name,
    and of a cast that follows one of these names."""

    def write(found: re.Match[str]) -> str:
        if found["name"] in names:
            return f":{found['name']}" + (r"\:\:" if found["cast"] else "")
        return _ANY_NAME.sub(r"\\\g<0>", found[0])

    return _choose(database).sub(write, query)


def _choose(database: str) -> re.Pattern[str]:
    return _TOKENS_OF_MYSQL if database in _WITH_BACKSLASHES else _TOKENS
