"""Which column is which field, judged by the headers alone; it refuses to look at a row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connector.mapping.headers import (
    HEADERS,
    MAILCHIMP_LEFT,
    MAILCHIMP_ONLY,
    OWN_EXTRAS,
    SHOPIFY_APOSTROPHES,
    SHOPIFY_ONLY,
    SPLITS,
    WHOLE_NAMES,
    WORDS,
    normalise_header,
)
from connector.mapping.rules import ColumnRule, FieldMapping


@dataclass(frozen=True, slots=True)
class Guess:
    """What the headers seem to mean, and the columns (in the source's order) that map to nothing.

    The columns that our own rejects files and exports add (`_row`, `_run_id`, …) are passed over without a word.
    """

    mapping: FieldMapping
    unmapped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Meaning:
    field: str
    rank: int  # 0 is the best header of its field


_MEANINGS = {
    normalise_header(header): _Meaning(field, rank)
    for field, headers in HEADERS.items()
    for rank, header in enumerate((*headers, *WORDS.get(field, ())))
}
_SPLITS = {normalise_header(header): split for header, split in SPLITS.items()}
_MAILCHIMP_LEFT = {normalise_header(header) for header in MAILCHIMP_LEFT}
_MAILCHIMP_ONLY = {normalise_header(header) for header in MAILCHIMP_ONLY}
_SHOPIFY_ONLY = {normalise_header(header) for header in SHOPIFY_ONLY}


def guess_mapping(columns: Sequence[str]) -> Guess:
    """Map each field to the best of its known headers among `columns`, the first of equals.

    The base and the service's id are never taken from a column: the base is the job's to say.
    """
    best: dict[str, tuple[int, str]] = {}
    for column, meaning in _find_meanings(columns):
        if meaning.field not in best or meaning.rank < best[meaning.field][0]:
            best[meaning.field] = (meaning.rank, column)
    mapping = FieldMapping({field: build_column_rule(field, column, columns) for field, (_, column) in best.items()})
    return Guess(mapping, find_unmapped(mapping, columns))


def build_column_rule(field: str, column: str, columns: Sequence[str]) -> ColumnRule:
    """The rule for a column, with what its header and all the `columns` tell of the way its cells are written."""
    split = _SPLITS.get(normalise_header(column)) if field == "tags" else None
    is_prefixed = field in SHOPIFY_APOSTROPHES and _is_known(columns, _SHOPIFY_ONLY)
    return ColumnRule(column=column, split=split, is_apostrophe_dropped=is_prefixed)


def find_unmapped(mapping: FieldMapping, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that the mapping does not use, in order, without those that we add to files ourselves."""
    used = set(mapping.columns)
    return tuple(column for column in columns if column not in used and column not in OWN_EXTRAS)


def find_whole_name(mapping: FieldMapping, columns: Sequence[str]) -> str | None:
    """The column that seems to hold whole names, where no column is mapped to a first or a last name."""
    if {"first_name", "last_name"} & set(mapping.rules):
        return None
    return next((column for column in columns if normalise_header(column) in WHOLE_NAMES), None)


def _find_meanings(columns: Sequence[str]) -> Iterator[tuple[str, _Meaning]]:
    is_mailchimp = _is_known(columns, _MAILCHIMP_ONLY)
    for column in columns:
        key = normalise_header(column)
        if key in _MEANINGS and not (is_mailchimp and key in _MAILCHIMP_LEFT):
            yield column, _MEANINGS[key]


def _is_known(columns: Sequence[str], marks: set[str]) -> bool:
    """Whether any of the headers is one that a single program alone writes."""
    return not marks.isdisjoint(normalise_header(column) for column in columns)
