"""A job's suppression list: checked when the job is planned, read again by its run, which never goes on without it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches

import numpy as np

from connector.errors import ConfigurationError, RunAborted, SourceError
from connector.plurals import agree, count
from connector.rows import Chunk, Source
from connector.sources.files import refuse_lacking
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
    """What was read of a list so far; `nameless` are record numbers (from 1) of rows without an identity."""

    digests: list[Digests] = field(default_factory=list)
    nameless: list[int] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def read_suppression(plan: SuppressionPlan, is_stopped: Callable[[], bool]) -> tuple[Suppression, list[str]]:
    """Read the whole list, and what a person should know of it.

    Raises SourceError when the list cannot be read to its end or a record of it cannot be read at all,
    ConfigurationError when the list is empty, when its column is missing or has no identity in any row, RunAborted when
    `is_stopped` before the list was read.
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
    if not suppression.size and not reading.nameless:
        raise ConfigurationError(
            f"the suppression list {name} has no rows, so everybody would be sent. Nothing was sent. See why the list "
            "is empty. If nobody is to be suppressed, take the list (suppress.file or suppress.sql) out of the job"
        )
    if not suppression.size:
        raise ConfigurationError(
            f"the suppression list {name} suppresses no subscriber: none of its "
            f"{len(reading.nameless):,} rows has {_ARTICLES[plan.field]} in the column {plan.column}; "
            "correct suppress.column or suppress.field. Nothing was sent"
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
    return SourceError(f"the suppression list cannot be read: {error}. Nothing was sent")


def _suggest(column: str, columns: Sequence[str]) -> str:
    meant = get_close_matches(column, columns, n=1)
    return f" (did you mean {meant[0]}?)" if meant else ""


def _take(reading: _Reading, chunk: Chunk, plan: SuppressionPlan) -> None:
    """Read as a row to be created would be, so that who is one person there is one person here."""
    reading.messages += chunk.messages
    for malformed in chunk.malformed:
        line = "" if malformed.line is None else f" (line {malformed.line})"
        raise SourceError(
            f"{chunk.name}: record {malformed.number}{line} {malformed.message}; correct it, since it "
            "may name a subscriber that is to be suppressed"
        )
    mapped = apply_mapping(chunk.frame, FieldMapping({plan.field: ColumnRule(column=plan.column)})).frame
    validated = validate_rows(mapped, ValidationRules(identity=plan.field), today=date.max)
    reading.digests.append(compute_identities(validated.subscribers[plan.field], plan.field))
    places = sorted({fault.position for fault in validated.faults})
    reading.nameless += chunk.numbers[places].tolist()


def _remark(name: str, plan: SuppressionPlan, nameless: Sequence[int]) -> Iterator[str]:
    if nameless:
        records = ", ".join(map(str, nameless[:_RECORDS_NAMED])) + (" …" if len(nameless) > _RECORDS_NAMED else "")
        yield (
            f"{count(len(nameless), 'row')} of the suppression list {name} {agree(len(nameless), 'has', 'have')} "
            f"not {_ARTICLES[plan.field]} in the column "
            f"{plan.column} and {agree(len(nameless), 'suppresses', 'suppress')} no row (records {records})"
        )
