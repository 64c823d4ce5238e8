"""The text of a job file, drafted from guesses: every key as a person would write it. No cell of a source is in it."""

import json
import re
from collections.abc import Iterator, Sequence

from connector.subscribers import ColumnRule
from pipelines.drafts.guessing import GuessedField

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NULLS = ("null", "none", "~")
_HEAD = "# Drafted by `connector init`; look at what it guessed, and try it: connector validate {path}"


def draft_job(
    name: str,
    path: str,
    source: Sequence[tuple[str, str]],
    base: tuple[str, str],
    identity: str,
    guesses: Sequence[GuessedField],
    unmapped: Sequence[str],
    cursor: tuple[str, str] | None = None,
) -> str:
    """A job file's text: `source` are its keys below file or sql (the first pair names which), `base` key and value.

    What is unsure is written as a comment, and so is a source that reads only what is new, from a `cursor` (column and
    start) on.
    """
    (kind, _), *keys = source
    lines = [
        _HEAD.format(path=path),
        "",
        f"job: {quote(name)}",
        "",
        "source:",
        f"  {kind}: {_write_group(keys)}",
        *_propose_increment(kind, keys, cursor),
        "",
        "subscriber:",
        f"  base: {_write_group([base])}",
        f"  identity: {identity}",
        "  fields:",
        *_write_fields(guesses),
    ]
    if not any(guess.name == "is_active" and guess.sureness != "unsure" for guess in guesses):
        lines.append(
            "    # is_active: {value: true}  # or a column: sync is refused until one says it (the default is inactive)"
        )
    if unmapped:
        lines.append(f"  # columns not used: {', '.join(quote(column) for column in unmapped)}")
    return "\n".join(lines) + "\n"


def _propose_increment(kind: str, keys: Sequence[tuple[str, str]], cursor: tuple[str, str] | None) -> Iterator[str]:
    if cursor is not None:
        column, start = cursor
        marked = f"{{column: {quote(column)}, start: {quote(start)}, lookback: 10m}}"
        yield f"  # reads only what is new, if every change of a row raises {column}; in place of the line above:"
        yield f"  # {kind}: {_write_group(keys)[:-1]}, cursor: {marked}}}"


def quote(text: str) -> str:
    """A text as YAML has it, in quotes unless it is a plain word; `${` stays what it is."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NULLS:
        return text
    escaped = json.dumps(text.replace("${", "$${"), ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in escaped)


def write_rule(rule: ColumnRule) -> str:
    """A rule as a job file has it: its column alone where that says all."""
    pairs = [("column", rule.column), ("split_at", rule.split_at), ("part", rule.part), ("split", rule.split)]
    keys = [(key, quote(value)) for key, value in pairs if value is not None]
    if rule.values:
        keys.append(("values", "{" + ", ".join(f"{quote(k)}: {quote(v)}" for k, v in rule.values.items()) + "}"))
    if rule.format:
        keys.append(("format", quote(rule.format[0])))
    if rule.is_apostrophe_dropped:
        keys.append(("drop_apostrophe", "true"))
    if len(keys) == 1:
        return keys[0][1]
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys) + "}"


def _write_fields(guesses: Sequence[GuessedField]) -> Iterator[str]:
    for guess in guesses:
        mark = "# " if guess.sureness == "unsure" else ""
        comment = "" if guess.sureness == "sure" else f"  # {guess.sureness}: {guess.reason}"
        yield f"    {mark}{guess.name}: {write_rule(guess.rule)}{comment}"


def _write_group(pairs: Sequence[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{quote(key)}: {_write_value(value)}" for key, value in pairs) + "}"


def _write_value(value: str) -> str:
    """A reference to the environment stays one; a number stays one."""
    return f'"{value}"' if re.fullmatch(r"\$\{\w+\}", value) else value if value.isdigit() else quote(value)
