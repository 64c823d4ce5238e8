"""A job's suppression list: checked when the job is planned, read again by its run, which never goes on without it."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.errors import ConfigurationError, ContentError, RunAborted, SourceError
from connector.plurals import agree, count
from connector.rows import Chunk, Source
from connector.sources.files import refuse_lacking
from connector.subscribers.checks import is_email
from connector.subscribers.identity import IDENTITY_BYTES, Digests, compute_identities, join_digests
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from connector.subscribers.suppression import Suppression
from connector.subscribers.validation import validate_rows

_ARTICLES = {"email": "an email address", "client_user_id": "a client_user_id"}
_RECORDS_NAMED = 5  # of those without an identity: enough to find what they have in common


@dataclass(frozen=True, slots=True)
class SuppressionPlan:
    """How the list of `job` is opened, the column of its identities, their field (email, client_user_id), and the
    share by which the list may become smaller between two runs."""

    job: str
    open: Callable[[], Source]
    column: str
    field: str
    max_shrink: float = 1.0


@dataclass(slots=True)
class _Reading:
    """What was read of a list so far; `nameless` are record numbers (from 1) of rows whose cell is empty, and
    `unreadable` of rows whose cell holds something else than identities."""

    digests: list[Digests] = field(default_factory=list)
    nameless: list[int] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def read_suppression(plan: SuppressionPlan, is_stopped: Callable[[], bool]) -> tuple[Suppression, list[str]]:
    """Read the whole list, and what a person should know of it.

    Raises SourceError when the list cannot be read to its end, ContentError when a record or an entry of it cannot be
    read, ConfigurationError when the list is empty, when its column is missing or has no identity in any row,
    RunAborted when `is_stopped` before the list was read.
    """
    reading = _Reading()
    with open_suppression(plan) as source:
        try:
            for chunk in source.chunks([plan.column]):
                if is_stopped():
                    raise RunAborted("the run was stopped while its suppression list was being read")
                _take(reading, chunk, plan)
        except SourceError as error:
            raise _refuse(error) from None
    name = source.name
    digests = np.concatenate([join_digests((), IDENTITY_BYTES), *reading.digests])
    suppression = Suppression(plan.job, plan.field, digests, name=name, max_shrink=plan.max_shrink)
    rows = len(reading.nameless) + len(reading.unreadable)
    if not suppression.size and not rows:
        raise ConfigurationError(
            f"the suppression list {name} has no rows, so everybody would be sent. Nothing was sent. See why the list "
            "is empty. If nobody is to be suppressed, take the list (suppress.file or suppress.sql) out of the job"
        )
    if not suppression.size:
        raise ConfigurationError(
            f"the suppression list {name} suppresses no subscriber: none of its "
            f"{rows:,} rows has {_ARTICLES[plan.field]} in the column {plan.column}; "
            "correct suppress.column or suppress.field. Nothing was sent"
        )
    if reading.unreadable:
        number = len(reading.unreadable)
        raise ContentError(
            f"the suppression list {name}: {count(number, 'row')} ({agree(number, 'record', 'records')} "
            f"{_name_records(reading.unreadable)}) {agree(number, 'holds', 'hold')} something else than "
            f"{_ARTICLES[plan.field]} in the column {plan.column}, such as a domain or a hash. Correct or remove "
            f"{agree(number, 'it', 'them')}: a subscriber who is to be suppressed may be meant. Nothing was sent"
        )
    return suppression, [*reading.messages, *_remark(name, plan, reading.nameless)]


def open_suppression(plan: SuppressionPlan) -> Source:
    """Return the list as rows of text, with its column in it. Raises ConfigurationError and SourceError."""
    try:
        source = plan.open()
    except SourceError as error:
        raise _refuse(error) from None
    is_there_twice = f"{plan.column} (2)" in source.columns  # so sources name a second one
    if plan.column in source.columns and not is_there_twice:
        _refuse_lacking(source, plan.column)
        return source
    source.close()
    if is_there_twice:
        raise ConfigurationError(
            f"the suppression list {source.name} has more than one column {plan.column}: rename all "
            "but the one that is meant. Nothing was sent"
        )
    raise ConfigurationError(
        f"the suppression list {source.name} has no column {plan.column}{_suggest(plan.column, source.columns)}. "
        f"Its columns: {', '.join(source.columns)}. Nothing was sent"
    )


def _refuse_lacking(source: Source, column: str) -> None:
    """Raise ConfigurationError if a file of the pattern lacks the column: it would silently suppress no row."""
    try:
        refuse_lacking(source, [column])
    except ConfigurationError as error:
        source.close()
        raise ConfigurationError(f"the suppression list cannot be read: {error}. Nothing was sent") from None


def _refuse(error: SourceError) -> SourceError:
    return type(error)(f"the suppression list cannot be read: {error}. Nothing was sent")


def _suggest(column: str, columns: Sequence[str]) -> str:
    meant = get_close_matches(column, columns, n=1)
    return f" (did you mean {meant[0]}?)" if meant else ""


def _take(reading: _Reading, chunk: Chunk, plan: SuppressionPlan) -> None:
    """Read as a row to be created would be, so that who is one person there is one person here."""
    reading.messages += chunk.messages
    for malformed in chunk.malformed:
        line = "" if malformed.line is None else f" (line {malformed.line})"
        raise ContentError(
            f"{chunk.name}: record {malformed.number}{line} {malformed.message}; correct it, since it "
            "may name a subscriber that is to be suppressed"
        )
    read = apply_mapping(chunk.frame, FieldMapping({plan.field: ColumnRule(column=plan.column)}))
    mapped, null_texts = read.frame, read.null_positions  # a person decides what N/A means here
    validated = validate_rows(mapped, ValidationRules(identity=plan.field), today=date.max)
    values = validated.subscribers[plan.field]
    reading.digests.append(compute_identities(values, plan.field))
    if plan.field == "email":  # =ann@x.org is an address, but the one without the sign is meant
        texts = pa.array(values, pa.large_string())
        is_odd = pc.or_(pc.match_substring_regex(texts, "^[^A-Za-z0-9_]"), pc.invert(pc.string_is_ascii(texts)))
        meant = [_strip_beginning(text) for text in texts.filter(is_odd).to_pylist()]
        reading.digests.append(compute_identities(pd.Series(meant, dtype="str"), "email"))
    is_domain = mapped[plan.field].str.startswith("*@").to_numpy(dtype=bool, na_value=False)
    for position in sorted({*np.flatnonzero(is_domain).tolist(), *(fault.position for fault in validated.faults)}):
        cell, number = mapped[plan.field].iloc[position], int(chunk.numbers[position])
        if position in null_texts:
            reading.unreadable.append(number)
        elif not isinstance(cell, str) or not (text := cell.translate(_INVISIBLE).strip()):
            reading.nameless.append(number)
        elif plan.field == "email" and not is_domain[position] and (addresses := read_addresses(text)):
            reading.digests.append(compute_identities(pd.Series(addresses, dtype="str"), "email"))
        else:
            reading.unreadable.append(number)


def _strip_beginning(address: str) -> str:
    """Return the address without signs of a formula, or of a text that a spreadsheet guards, and of full width."""
    return re.sub(r"^[^\w@]+", "", unicodedata.normalize("NFKC", address))


_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))
"""Characters that a copied address may have and that nobody sees."""


def read_addresses(text: str) -> list[str]:
    """Return the addresses of a cell as other programs write them, or an empty list if it holds something else.

    `Ann Lee <ann@example.com>`, `mailto:ann@example.com`, `ann@example.com (unsubscribed)`, `="ann@example.com"`, signs
    of full width, and several addresses with `;`, `,` or blanks between them are read.
    """
    found = []
    text = re.sub(r"\([^()@]*\)|^[='\"\s]+", "", unicodedata.normalize("NFKC", text))
    for part in re.split(r"[;,|\n]", text):
        inner = re.fullmatch(r".*<([^<>]*)>\s*", part)
        if inner is None and "@" not in part and "<" in text:  # of a name: Lee, Ann <ann@example.com>
            continue
        for word in (part if inner is None else inner[1]).split():
            address = re.sub(r"(?i)^mailto:([^?]*).*$", r"\1", word.strip("\"'<>()[]").rstrip(".:!"))
            found.append(address)
    if not found or not pc.all(is_email(pa.array(found, pa.large_string()))).as_py():
        return []
    return found


def _remark(name: str, plan: SuppressionPlan, nameless: Sequence[int]) -> Iterator[str]:
    if nameless:
        yield (
            f"suppression list {name}: the column {plan.column} is empty in {count(len(nameless), 'row')} (records "
            f"{_name_records(nameless)}), so {agree(len(nameless), 'it suppresses', 'they suppress')} nobody"
        )


def _name_records(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_RECORDS_NAMED])) + (" …" if len(numbers) > _RECORDS_NAMED else "")
