"""Reads the suppression list of a job. Before a run begins, only the column of the list is checked. The run reads the
complete list, and ends if the list cannot be read."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.errors import ConfigurationError, ContentError, RunAborted, SourceError
from connector.rows import Chunk, Source, closed_on_error
from connector.sources.files import refuse_missing_columns
from connector.subscribers.checks import mark_emails
from connector.subscribers.identity import IDENTITY_BYTES, Digests, Suppression, compute_identities, join_digests
from connector.subscribers.mapping import apply_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from connector.subscribers.validation import validate_rows
from connector.texts import choose_form, count

_IDENTITY_NOUN_BY_FIELD = {"email": "an email address", "client_user_id": "a client_user_id"}
_MAX_ROWS_IN_MESSAGE = 5  # row numbers in a message about rows without an identity


@dataclass(frozen=True, slots=True)
class SuppressionPlan:
    """The plan for opening and reading the suppression list of `job`."""

    job: str
    open_source: Callable[[], Source]
    column: str  # the column with the identities
    field: str  # the field of the identities: email or client_user_id
    max_shrink: float = 1.0  # the share by which the list may shrink between two runs


@dataclass(slots=True)
class _SuppressionContents:
    """The identities of a suppression list, and the numbers of rows without an identity."""

    digests: list[Digests] = field(default_factory=lambda: [join_digests((), IDENTITY_BYTES)])
    empty_row_numbers: list[int] = field(default_factory=list)  # numbers of rows with an empty cell
    unreadable_row_numbers: list[int] = field(default_factory=list)  # numbers of rows whose cell is not an identity
    messages: list[str] = field(default_factory=list)


def read_suppression(plan: SuppressionPlan, is_stopped: Callable[[], bool]) -> tuple[Suppression, list[str]]:
    """Return the complete suppression list, and messages about the list.

    Raises SourceError if the list cannot be read to its end, and ContentError if a row or a cell cannot be read. Raises
    ConfigurationError if the list is empty, lacks its column or has no identity. Raises RunAborted if `is_stopped`
    returns True before the list was read.
    """
    suppression_contents = _SuppressionContents()
    with open_suppression(plan) as source:
        try:
            for chunk in source.read_chunks([plan.column]):
                if is_stopped():
                    raise RunAborted("the run was stopped while its suppression list was being read")
                _read_chunk(suppression_contents, chunk, plan)
        except SourceError as error:
            raise type(error)(f"the suppression list cannot be read: {error}. Nothing was sent") from None
    name, empty_row_numbers = source.name, suppression_contents.empty_row_numbers
    unreadable_row_numbers = suppression_contents.unreadable_row_numbers
    suppression = Suppression(
        plan.job, plan.field, np.concatenate(suppression_contents.digests), name=name, max_shrink=plan.max_shrink
    )
    if not suppression.size and not empty_row_numbers and not unreadable_row_numbers:
        raise ConfigurationError(
            f"the suppression list {name} has no rows, so it would suppress nobody. Nothing was sent. Find out why the "
            "list is empty. If nobody should be suppressed, remove the list (suppress.file or suppress.sql) from the "
            "job"
        )
    if not suppression.size:
        raise ConfigurationError(
            f"the suppression list {name} suppresses no subscriber: none of its "
            f"{len(empty_row_numbers) + len(unreadable_row_numbers):,} rows has {_IDENTITY_NOUN_BY_FIELD[plan.field]} "
            f"in the column {plan.column}; correct suppress.column or suppress.field. Nothing was sent"
        )
    if unreadable_row_numbers:
        unreadable_row_count = len(unreadable_row_numbers)
        raise ContentError(
            f"the suppression list {name}: {count(unreadable_row_count, 'row')} "
            f"({choose_form(unreadable_row_count, 'row number', 'row numbers')} "
            f"{_format_row_numbers(unreadable_row_numbers)}) {choose_form(unreadable_row_count, 'has', 'have')} "
            f"a value that is not {_IDENTITY_NOUN_BY_FIELD[plan.field]} in the column {plan.column}, such as a domain "
            f"or a hash. Correct or remove {choose_form(unreadable_row_count, 'the row', 'the rows')}, because the "
            "value may stand for a suppressed subscriber. Nothing was sent"
        )
    if empty_row_numbers:
        empty_row_count = len(empty_row_numbers)
        suppression_contents.messages.append(
            f"suppression list {name}: the column {plan.column} is empty in {count(empty_row_count, 'row')} "
            f"({choose_form(empty_row_count, 'row number', 'row numbers')} {_format_row_numbers(empty_row_numbers)}), "
            f"so {choose_form(empty_row_count, 'it suppresses', 'they suppress')} nobody"
        )
    return suppression, suppression_contents.messages


def open_suppression(plan: SuppressionPlan) -> Source:
    """Open the list, and check that the list and each of its files have the column. Raises ConfigurationError and
    SourceError."""
    try:
        source = plan.open_source()
    except SourceError as error:
        raise type(error)(f"the suppression list cannot be read: {error}. Nothing was sent") from None
    with closed_on_error(source):
        if f"{plan.column} (2)" in source.columns:  # the source renames a second column NAME to `NAME (2)`
            raise ConfigurationError(
                f"the suppression list {source.name} has more than one column {plan.column}. Only the column with the "
                "identities may have this name. Rename the other columns. Nothing was sent"
            )
        if plan.column not in source.columns:
            similar_columns = get_close_matches(plan.column, source.columns, n=1)
            hint = f" (did you mean {similar_columns[0]}?)" if similar_columns else ""
            raise ConfigurationError(
                f"the suppression list {source.name} has no column {plan.column}{hint}. "
                f"Its columns: {', '.join(source.columns)}. Nothing was sent"
            )
        try:
            refuse_missing_columns(source, [plan.column])  # every file needs the column
        except ConfigurationError as error:
            raise ConfigurationError(f"the suppression list cannot be read: {error}. Nothing was sent") from None
    return source


def _read_chunk(suppression_contents: _SuppressionContents, chunk: Chunk, plan: SuppressionPlan) -> None:
    """Read a chunk in the same way as a chunk of the source, so that equal identities have equal digests."""
    suppression_contents.messages += chunk.messages
    for malformed_row in chunk.malformed_rows:
        line = "" if malformed_row.line is None else f" (line {malformed_row.line})"
        raise ContentError(
            f"{chunk.name}: row {malformed_row.number}{line} {malformed_row.message}; correct the row, "
            "because the row may name a suppressed subscriber"
        )
    mapped_chunk = apply_mapping(chunk.frame, FieldMapping({plan.field: ColumnRule(column=plan.column)}))
    # A cell such as N/A is reported as unreadable, because a person must decide whether the cell is an identity.
    mapped_frame, null_positions = mapped_chunk.frame, mapped_chunk.null_positions
    validation_result = validate_rows(mapped_frame, ValidationRules(identity_field=plan.field), today=date.max)
    identity_values = validation_result.subscribers[plan.field]
    suppression_contents.digests.append(compute_identities(identity_values, plan.field))
    if plan.field == "email":  # =ann@x.org is a valid address, but ann@x.org is probably meant
        addresses_column = pa.array(identity_values, pa.large_string())
        unusual_address_mask = pc.or_(
            pc.match_substring_regex(addresses_column, "^[^A-Za-z0-9_]"),
            pc.invert(pc.string_is_ascii(addresses_column)),
        )
        normalised_texts = [
            unicodedata.normalize("NFKC", text) for text in addresses_column.filter(unusual_address_mask).to_pylist()
        ]
        addresses = [re.sub(r"^[^\w@]+", "", text) for text in normalised_texts]  # without signs such as `=` in front
        suppression_contents.digests.append(compute_identities(pd.Series(addresses, dtype="str"), "email"))
    domain_mask = mapped_frame[plan.field].str.startswith("*@").to_numpy(dtype=bool, na_value=False)
    for position in sorted(
        {*np.flatnonzero(domain_mask).tolist(), *(fault.position for fault in validation_result.faults)}
    ):
        cell, row_number = mapped_frame[plan.field].iloc[position], int(chunk.row_numbers[position])
        if position in null_positions:
            suppression_contents.unreadable_row_numbers.append(row_number)
        elif not isinstance(cell, str) or not (text := cell.translate(_INVISIBLE_CHARACTERS).strip()):
            suppression_contents.empty_row_numbers.append(row_number)
        elif plan.field == "email" and not domain_mask[position] and (addresses := read_addresses(text)):
            suppression_contents.digests.append(compute_identities(pd.Series(addresses, dtype="str"), "email"))
        else:
            suppression_contents.unreadable_row_numbers.append(row_number)


_INVISIBLE_CHARACTERS = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))
"""Invisible characters that a copied address may contain."""


def read_addresses(text: str) -> list[str]:
    """Return the addresses in a cell that another program has written, or an empty list if the cell has any other text.

    Forms of addresses: `Ann Lee <ann@example.com>`, `mailto:ann@example.com`, `ann@example.com (unsubscribed)`,
    `="ann@example.com"`, and full-width characters. Several addresses may be separated by `;`, `,` or blanks.
    """
    addresses = []
    text = re.sub(r"\([^()@]*\)|^[='\"\s]+", "", unicodedata.normalize("NFKC", text))
    for address_part in re.split(r"[;,|\n]", text):
        bracket_match = re.fullmatch(r".*<([^<>]*)>\s*", address_part)
        # Leave out parts without an address, such as `Lee` in `Lee, Ann <ann@example.com>`.
        if bracket_match is None and "@" not in address_part and "<" in text:
            continue
        for word in (address_part if bracket_match is None else bracket_match[1]).split():
            address = re.sub(r"(?i)^mailto:([^?]*).*$", r"\1", word.strip("\"'<>()[]").rstrip(".:!"))
            addresses.append(address)
    if not addresses or not pc.all(mark_emails(pa.array(addresses, pa.large_string()))).as_py():
        return []
    return addresses


def _format_row_numbers(row_numbers: Sequence[int]) -> str:
    return ", ".join(map(str, row_numbers[:_MAX_ROWS_IN_MESSAGE])) + (
        " …" if len(row_numbers) > _MAX_ROWS_IN_MESSAGE else ""
    )
