"""A mapped chunk made ready for its schema: an index of its own, every demanded column, `str` and list columns.

What cannot become such a column at all, a surrogate alone, is told by its place.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.fields import SENT, Kind
from connector.validation.cells import TAGS, TEXT, read_cells
from connector.validation.dates import is_yearless
from connector.validation.emails import normalise_emails
from connector.validation.rules import Rules


@dataclass(frozen=True, slots=True)
class Prepared:
    """The columns of the person's fields, missing where empty; `unwritable`: (position, field) of broken texts,
    `yearless` (int64): positions of rows whose birthday has no year and is left out, as it cannot be sent."""

    frame: pd.DataFrame
    unwritable: frozenset[tuple[int, str]]
    yearless: npt.NDArray[np.int64]


def prepare_rows(mapped: pd.DataFrame, rules: Rules) -> Prepared:
    """Prepare a mapped chunk; columns that are no field of a person's are left out."""
    columns: dict[str, pd.Series] = {}
    unwritable: set[tuple[int, str]] = set()
    demanded = rules.required | {rules.identity}
    for field in SENT:
        is_tags = field.kind is Kind.TAGS
        if field.name in mapped.columns:
            column, broken = (_prepare_tags if is_tags else _prepare_text)(mapped[field.name].reset_index(drop=True))
            columns[field.name] = column
            unwritable.update((place, field.name) for place in broken)
        elif field.name in demanded:
            columns[field.name] = pd.Series([None] * len(mapped), dtype=TAGS if is_tags else TEXT)
    if "email" in columns:
        columns["email"] = pd.Series(normalise_emails(read_cells(columns["email"])), dtype=TEXT)
    yearless = np.empty(0, dtype=np.int64)
    if "birthday" in columns:
        columns["birthday"], yearless = _leave_out_yearless(columns["birthday"])
    return Prepared(pd.DataFrame(columns, index=pd.RangeIndex(len(mapped))), frozenset(unwritable), yearless)


def _leave_out_yearless(birthdays: pd.Series) -> tuple[pd.Series, npt.NDArray[np.int64]]:
    cells = read_cells(birthdays)
    is_out = pc.fill_null(is_yearless(cells), False)
    places = np.flatnonzero(is_out.to_numpy(zero_copy_only=False))
    if not len(places):
        return birthdays, places
    return pd.Series(pc.if_else(is_out, pa.scalar(None, cells.type), cells), dtype=TEXT), places


def _prepare_text(column: pd.Series) -> tuple[pd.Series, list[int]]:
    """The column as `str`, missing where empty, and the places of texts that UTF-8 cannot hold."""
    broken: list[int] = []
    if column.dtype != TEXT:
        texts = [None if pd.isna(cell) else str(cell) for cell in column]
        broken = [place for place, text in enumerate(texts) if text and not _is_writable(text)]
        for place in broken:
            texts[place] = None
        column = pd.Series(pa.array(texts, pa.large_string()), dtype=TEXT)
    cells = read_cells(column)
    is_empty = pc.equal(cells, "")
    if pc.any(is_empty).as_py():
        column = pd.Series(pc.if_else(is_empty, pa.scalar(None, cells.type), cells), dtype=TEXT)
    return column, broken


def _prepare_tags(column: pd.Series) -> tuple[pd.Series, list[int]]:
    """The column as Arrow's list<string>, and the places of lists with a text that UTF-8 cannot hold."""
    if column.dtype == TAGS:
        return column, []
    lists = [[str(tag) for tag in cell] if pd.api.types.is_list_like(cell) else None for cell in column]
    broken = [place for place, tags in enumerate(lists) if tags and not all(map(_is_writable, tags))]
    for place in broken:
        lists[place] = None
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(lists, TAGS.pyarrow_dtype))), broken


def _is_writable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
