"""Which rows are subscribers, and what is wrong with the others: pandera schemas of the field table, and their run.

The schemas are derived from the field table, kind by kind. A mapped chunk is made ready (`str` and list columns, every
required column), validated in one run that finds every fault of every row, and its valid rows get typed columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import pandas as pd
import pandera.pandas as pandera
import pyarrow as pa
import pyarrow.compute as pc
from pandera.errors import SchemaErrors

from connector.fields import BY_NAME, FIELDS, NAMES, SENT, Field, Kind, wire_name
from connector.outcomes import Fault
from connector.subscribers.checks import (
    LONGEST,
    TAGS,
    TEXT,
    is_date,
    is_email,
    is_free_of_controls,
    is_in_lifetime,
    is_sendable_zip,
    is_short,
    is_short_list,
    is_yearless,
    normalise_emails,
    read_cells,
    read_flags,
    read_genders,
    read_zips,
)
from connector.subscribers.countries import read_countries
from connector.subscribers.rules import ValidationRules, format_phone

_TRANSLATE = "a job translates its source's words by the field's `values:` map"
_MESSAGES = {  # without `; `, which stands between the faults of a row
    "required": "is missing",
    "control": "holds a control character",
    "length": f"holds more than {LONGEST:,} characters: look there for a quote that is never closed",
    "phone": "cannot be written as E.164 (+, country, number): it is no valid number, or has an extension",
    "flag": f"is neither true nor false (yes and no, 1 and 0 will do): {_TRANSLATE}",
    "email": "is not an email address",
    "gender": f"is neither male nor female nor empty: {_TRANSLATE}",
    "country": "is not a country: a code of two or three letters (ISO 3166-1), or its English name",
    "zip": "cannot be sent: the service takes numbers only, without leading zeros",
    "date": "is not a date written YYYY-MM-DD",
    "lifetime": "lies before 1900 or in the future",
}
_CODES = {"not_nullable": "required"}  # pandera's word: ours
_ORDER = {name: index for index, name in enumerate(NAMES)}


@dataclass(frozen=True, slots=True)
class ValidRows:
    """A chunk's valid rows and the faults of the others.

    `subscribers`: the valid rows, index = their positions (0-based) in the chunk; is_active is `boolean`, address_zip
    `Int64`, tags list<string> of Arrow's, all else `str`; what is missing is not sent. `faults`: by position, then in
    the order of the field table. `omitted_zips` and `yearless` (int64): positions of valid rows that lost their zip to
    `omit`, or a birthday without a year.
    """

    subscribers: pd.DataFrame
    faults: tuple[Fault, ...]
    omitted_zips: npt.NDArray[np.int64]
    yearless: npt.NDArray[np.int64]


def validate_rows(
    mapped: pd.DataFrame, rules: ValidationRules, *, today: date, known: Sequence[Fault] = ()
) -> ValidRows:
    """Validate a mapped chunk (of `apply_mapping`), obeying service-api.md 2.1.

    One pandera run finds every fault of every row; `known` are those that mapping found already. A column that is no
    field of a person's is left out.
    """
    frame, yearless = _prepare_rows(mapped, rules)
    reported = {(fault.position, fault.field) for fault in known}
    found = _find_faults(frame, rules, today)
    faults = [*known, *(fault for fault in found if (fault.position, fault.field) not in reported)]
    faults.sort(key=lambda fault: (fault.position, _ORDER[fault.field]))
    is_valid = np.ones(len(frame), dtype=bool)
    is_valid[[fault.position for fault in faults]] = False
    subscribers, omitted_zips = _type_subscribers(frame if is_valid.all() else frame[is_valid], rules)
    return ValidRows(subscribers, tuple(faults), omitted_zips, yearless[is_valid[yearless]])


def _find_faults(frame: pd.DataFrame, rules: ValidationRules, today: date) -> list[Fault]:
    try:
        build_sent_schema(rules, today=today).validate(frame, lazy=True)
    except SchemaErrors as errors:
        cases = errors.failure_cases
        indices, names, checks = cases["index"].tolist(), cases["column"].tolist(), cases["check"].tolist()
        return [
            _build_fault(int(index), name, _CODES.get(check, check))
            for index, name, check in zip(indices, names, checks, strict=True)
        ]
    return []


def _build_fault(position: int, name: str, code: str) -> Fault:
    return Fault(position, name, code, f"{wire_name(BY_NAME[name])} {_MESSAGES[code]}")


# The schemas

_Judge = Callable[[pa.Array], pa.Array]

_LISTED_TYPES: dict[Kind, object] = {
    Kind.NUMBER: pd.Int64Dtype(),
    Kind.FLAG: pd.BooleanDtype(),
    Kind.TAGS: TAGS,
    Kind.DATE: pd.ArrowDtype(pa.date32()),
}


@lru_cache(maxsize=8)  # the same for each chunk of a run
def build_sent_schema(rules: ValidationRules, *, today: date) -> pandera.DataFrameSchema:
    """Return the schema of mapped rows, all texts (tags: lists of texts): what may be sent of them under `rules`.

    A check's name is the fault's code. The identity and the required fields must be there and not missing; no
    birthday lies after `today`.
    """
    required = rules.required | {rules.identity}
    columns = {field.name: _build_column(field, rules, today, is_required=field.name in required) for field in SENT}
    return pandera.DataFrameSchema(columns, name="subscribers to be sent")


@lru_cache(maxsize=1)
def build_listed_schema() -> pandera.DataFrameSchema:
    """Return the schema of subscribers as they are listed: every field a column of its type, any value may be missing.

    Numbers are Int64, flags boolean, tags list<string> and dates date32 of Arrow's, all else (a zip too: it is
    returned as a string) `str`. Values of another type that mean the same are converted; further columns may be there.
    """
    columns = {
        field.name: pandera.Column(_LISTED_TYPES.get(field.kind, TEXT), nullable=True, coerce=True) for field in FIELDS
    }
    return pandera.DataFrameSchema(columns, name="subscribers as listed")


def _build_column(field: Field, rules: ValidationRules, today: date, *, is_required: bool) -> pandera.Column:
    if field.kind is Kind.TAGS:
        checks = [_build_check("control", _is_clean_list), _build_check("length", is_short_list)]
    else:
        checks = [_build_check("control", is_free_of_controls), _build_check("length", is_short)]
        checks += [_build_check(code, judge) for code, judge in _list_judges(field.kind, rules, today)]
        if field.name == "phone" and rules.e164 is not None and rules.e164.otherwise == "reject":
            checks.append(_build_check("phone", partial(_is_phone, region=rules.e164.region)))
    return pandera.Column(
        TAGS if field.kind is Kind.TAGS else TEXT, checks, nullable=not is_required, required=is_required
    )


def _list_judges(kind: Kind, rules: ValidationRules, today: date) -> list[tuple[str, _Judge]]:
    """What the values of a kind must be, each rule with the code of the fault that it finds."""
    judges: dict[Kind, list[tuple[str, _Judge]]] = {
        Kind.FLAG: [("flag", lambda cells: read_flags(cells).is_valid())],
        Kind.EMAIL: [("email", is_email)],
        Kind.GENDER: [("gender", lambda cells: read_genders(cells).is_valid())],
        Kind.COUNTRY: [("country", lambda cells: read_countries(cells).is_valid())],
        Kind.ZIP: [("zip", is_sendable_zip)] if rules.zip == "reject" else [],
        Kind.DATE: [("date", is_date), ("lifetime", partial(is_in_lifetime, today=today))],
    }
    return judges.get(kind, [])


def _is_phone(cells: pa.Array, region: str) -> pa.Array:
    return read_phones(cells, region).is_valid()


def _build_check(code: str, judge: _Judge) -> pandera.Check:
    def check(column: "pd.Series[str]") -> "pd.Series[bool]":
        cells = _read_lists(column) if column.dtype == TAGS else read_cells(column)
        is_fine = pc.fill_null(pc.or_kleene(judge(cells), cells.is_null()), True)
        return pd.Series(is_fine.to_numpy(zero_copy_only=False))

    return pandera.Check(check, name=code, ignore_na=False)


def _read_lists(column: "pd.Series[str]") -> pa.Array:
    lists = pa.array(column.array, from_pandas=True)
    return lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists


def _is_clean_list(lists: pa.Array) -> pa.Array:
    """Return whether each list of tags is without control characters."""
    is_clean = is_free_of_controls(lists.flatten().cast(pa.large_string()))
    dirty = pc.list_parent_indices(lists).filter(pc.invert(is_clean))
    return pc.invert(pc.is_in(pa.array(range(len(lists)), dirty.type), dirty))


# A mapped chunk made ready for its schema


def _prepare_rows(mapped: pd.DataFrame, rules: ValidationRules) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    """Give the columns of the person's fields, every demanded one among them, and the positions of rows whose birthday
    has no year and is left out, as it cannot be sent."""
    mapped = mapped.reset_index(drop=True)
    columns: dict[str, pd.Series] = {}
    for field in SENT:
        if field.name in mapped.columns:
            columns[field.name] = mapped[field.name]
        elif field.name in rules.required | {rules.identity}:
            columns[field.name] = pd.Series([None] * len(mapped), dtype=TAGS if field.kind is Kind.TAGS else TEXT)
    if "email" in columns:
        columns["email"] = pd.Series(normalise_emails(read_cells(columns["email"])), dtype=TEXT)
    yearless = np.empty(0, dtype=np.int64)
    if "birthday" in columns:
        cells = read_cells(columns["birthday"])
        is_out = pc.fill_null(is_yearless(cells), False)
        yearless = np.flatnonzero(is_out.to_numpy(zero_copy_only=False))
        if len(yearless):
            columns["birthday"] = pd.Series(pc.if_else(is_out, pa.scalar(None, cells.type), cells), dtype=TEXT)
    return pd.DataFrame(columns, index=mapped.index), yearless


# Valid rows with the types of their fields


def _type_subscribers(rows: pd.DataFrame, rules: ValidationRules) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    """Give the rows with typed columns, and the index labels of those whose zip is left out."""
    columns = {name: _type_column(rows[name], BY_NAME[name].kind) for name in rows.columns}
    if "phone" in rows.columns and rules.e164 is not None:
        cells = read_cells(rows["phone"])  # what has no such form was either refused before or is to be kept
        columns["phone"] = pd.Series(
            pc.coalesce(read_phones(cells, rules.e164.region), cells), dtype=TEXT, index=rows.index
        )
    omitted = np.empty(0, dtype=np.int64)
    if "address_zip" in rows.columns:
        cells = read_cells(rows["address_zip"])
        is_lost = pc.fill_null(pc.invert(is_sendable_zip(cells)), False)
        if rules.zip == "omit":
            omitted = rows.index.to_numpy(dtype=np.int64)[is_lost.to_numpy(zero_copy_only=False)]
        elif rules.zip != "reject":
            kept = pc.if_else(is_lost, cells, pa.scalar(None, cells.type))
            columns[rules.zip] = pd.Series(kept, dtype=TEXT, index=rows.index)
    ordered = {name: columns[name] for name in NAMES if name in columns}
    return pd.DataFrame(ordered, index=rows.index), omitted


_READERS: dict[Kind, tuple[_Judge, object]] = {
    Kind.FLAG: (lambda cells: pc.equal(read_flags(cells), "true"), pd.BooleanDtype()),
    Kind.ZIP: (read_zips, pd.Int64Dtype()),
    Kind.GENDER: (read_genders, TEXT),
    Kind.COUNTRY: (read_countries, TEXT),
}


def _type_column(column: pd.Series, kind: Kind) -> pd.Series:
    if kind not in _READERS:
        return column
    read, dtype = _READERS[kind]
    return pd.Series(read(read_cells(column)).to_pandas(types_mapper=lambda _: dtype).array, index=column.index)


def read_phones(cells: pa.Array, region: str) -> pa.Array:
    """Return the E.164 form of each number (one without a leading + is of `region`), null for what is no valid number.

    A number with an extension has none: E.164 would lose it. About 25 µs a number, once for each chunk.
    """
    texts = [None if text is None else format_phone(text, region) for text in cells.to_pylist()]
    return pa.array(texts, pa.large_string())
