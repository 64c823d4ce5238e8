"""What was found in the rows of a run, in sum and with a few masked examples, for a report that may be passed on."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connector.load.session import Change, Problem
from connector.service.answers import refusal_kind

_EXAMPLES = 3  # of each cause
_MOST_CAUSES = 30  # a service that words each refusal differently would have one for each row
_LONGEST = 60  # characters of a cell
_LINE = re.compile(r"^line \d+: ")
_QUOTED = re.compile(r"([\"']).*\1")
_OTHERS = "other causes, each of few rows"


def mask_cell(cell: str) -> str:
    """Return a cell that shows what it looks like and not what it says: the first character of each word, and all that
    is neither letter nor digit (`ann lee@x,org` becomes `a•• l••@x,o••`)."""
    shown = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in cell[:_LONGEST])
    is_of_word = [_is_of_word(sign) for sign in shown]
    after = [False, *is_of_word]  # whether the sign before is of a word
    masked = [
        "•" if is_of and is_after else sign for sign, is_of, is_after in zip(shown, is_of_word, after, strict=False)
    ]
    return "".join(masked) + ("…" if len(cell) > _LONGEST else "")


def _is_of_word(sign: str) -> bool:
    """Return whether it is a letter, a digit or a mark upon one: many scripts write vowels as marks."""
    return sign == "_" or unicodedata.category(sign)[0] in "LMN"


def _describe_kind(problem: Problem) -> str:
    """What the service's words, or ours, have in common from row to row."""
    if problem.http_status is not None:
        return refusal_kind(problem.http_status, problem.message)
    return _QUOTED.sub("'…'", _LINE.sub("", problem.message))


@dataclass(slots=True)
class RowFindings:
    """Causes of rows that a person must see, and how many changed rows differ in each field.

    `columns` are a field's columns in the source.
    """

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    changed_fields: Counter[str] = field(default_factory=Counter)
    _causes: dict[tuple[str, str, str, str], dict[str, Any]] = field(default_factory=dict)

    def note_problem(self, problem: Problem) -> None:
        """Count a row by each of its causes."""
        fields, codes, messages = (text.split("; ") for text in (problem.field, problem.code, problem.message))
        if not len(fields) == len(codes) == len(messages):
            fields, codes, messages = [problem.field], [problem.code], [problem.message]
        for name, code, message in zip(fields, codes, messages, strict=True):
            self._note(problem, name, code, message if name else _describe_kind(problem))

    def note_change(self, change: Change) -> None:
        """Count a changed row by the fields that differ."""
        self.changed_fields.update(name for name, _, _ in change.fields)

    @property
    def causes(self) -> list[dict[str, Any]]:
        """The causes, the most frequent first: `outcome field code message rows examples {row file value}`."""
        return sorted(self._causes.values(), key=lambda cause: -cause["rows"])

    def restart(self) -> None:
        """Forget them: all rows are read again."""
        self.changed_fields.clear()
        self._causes.clear()

    def _note(self, problem: Problem, name: str, code: str, words: str) -> None:
        key = str(problem.outcome), name, code, words
        if key not in self._causes and len(self._causes) >= _MOST_CAUSES:
            key = str(problem.outcome), "", "", _OTHERS
        names = ("outcome", "field", "code", "message")
        cause = self._causes.setdefault(key, dict(zip(names, key, strict=True)) | {"rows": 0, "examples": []})
        cause["rows"] += 1
        if len(cause["examples"]) < _EXAMPLES:
            row = problem.row
            cells = dict(zip(row.columns, row.cells, strict=True)) if row.cells else {}
            shown = [cells.get(column) or "" for column in self.columns.get(name, ())]
            shown = [problem.raw] if problem.raw is not None else shown
            value = " | ".join(map(mask_cell, shown))
            cause["examples"].append({"row": row.number, "file": row.file, "value": value})
