"""Which rows are subscribers, and what is wrong with the others: pandera schemas of the field table, and their run.

The schemas are derived from the field table, kind by kind. A mapped chunk is made ready (`str` and list columns, every
required column), validated in one run that finds every fault of every row, and its valid rows get typed columns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import pandas as pd
import pandera.pandas as pandera
import pyarrow as pa
import pyarrow.compute as pc
from pandera.errors import SchemaErrors

from connector.fields import (
    BY_NAME,
    DIGIT_FIELDS,
    FIELDS,
    FREE_FIELDS,
    NAME_FIELDS,
    NAMES,
    SENT,
    Field,
    Kind,
    wire_name,
)
from connector.outcomes import Fault
from connector.subscribers.checks import (
    FLAGS,
    GENDERS,
    LONGEST,
    NEEDLESS_DECIMALS,
    TAGS,
    TEXT,
    YEARLESS,
    check_items,
    is_date,
    is_email,
    is_free_of_code,
    is_free_of_controls,
    is_free_of_errors,
    is_in_lifetime,
    is_sendable_zip,
    is_short,
    is_short_list,
    is_single,
    is_unconverted,
    is_unspoiled,
    is_well_decoded,
    is_whole_id,
    normalise_emails,
    read_cells,
    read_zips,
    translate,
)
from connector.subscribers.countries import read_countries
from connector.subscribers.rules import ValidationRules, format_phone

_Check = Callable[[pa.Array], pa.Array]
"""Returns for each cell whether it is fine; what it returns for a missing cell does not count."""


@dataclass(frozen=True, slots=True)
class KindRules:
    """How the cells of one kind are checked and read.

    `checks` has a check by the code of the fault that it finds. `read` makes valid cells values (None: cells are sent
    as they are). `sent` and `listed` are the dtypes of a column of rows to send, and of listed subscribers.
    """

    checks: Mapping[str, _Check] = field(default_factory=dict)
    read: Callable[[pa.Array], pa.Array] | None = None
    sent: object = TEXT
    listed: object = TEXT


_FLAG = pd.BooleanDtype()
_WHOLE = pd.Int64Dtype()
_TEXT_CHECKS: dict[str, _Check] = {
    "control": is_free_of_controls,
    "length": is_short,
    "decoding": is_well_decoded,
    "error": is_free_of_errors,
}
_read_flags, _read_genders = partial(translate, meanings=FLAGS), partial(translate, meanings=GENDERS)

KINDS: dict[Kind, KindRules] = {
    Kind.NUMBER: KindRules(_TEXT_CHECKS, listed=_WHOLE),
    Kind.FLAG: KindRules(
        {**_TEXT_CHECKS, "flag": lambda cells: _read_flags(cells).is_valid()}, _read_flags, sent=_FLAG, listed=_FLAG
    ),
    Kind.TEXT: KindRules(_TEXT_CHECKS),
    Kind.NULLABLE_TEXT: KindRules(_TEXT_CHECKS),
    Kind.EMAIL: KindRules({**_TEXT_CHECKS, "code": is_free_of_code, "email": is_email}),
    Kind.GENDER: KindRules({**_TEXT_CHECKS, "gender": lambda cells: _read_genders(cells).is_valid()}, _read_genders),
    Kind.TAGS: KindRules(
        {
            "control": partial(check_items, is_fine=is_free_of_controls),
            "length": is_short_list,
            "decoding": partial(check_items, is_fine=is_well_decoded),
            "error": partial(check_items, is_fine=is_free_of_errors),
            "code": partial(check_items, is_fine=is_free_of_code),
        },
        sent=TAGS,
        listed=TAGS,
    ),
    Kind.COUNTRY: KindRules(
        {**_TEXT_CHECKS, "country": lambda cells: read_countries(cells).is_valid()}, read_countries
    ),
    Kind.ZIP: KindRules(_TEXT_CHECKS, read_zips, sent=_WHOLE),
    Kind.DATE: KindRules({**_TEXT_CHECKS, "date": is_date}, listed=pd.ArrowDtype(pa.date32())),
}
"""The rules of each kind. `_list_checks` adds the checks that a job or the day decides."""

_TRANSLATE = "a job translates its source's words by the field's `values:` map"
_MESSAGES = {  # without `; `, which stands between the faults of a row
    "required": "is missing",
    "control": "holds a control character, which nobody sees: delete it, or write the value again",
    "length": f"holds more than {LONGEST:,} characters: look there for a quote that is never closed",
    "list": "holds a list or an object, and takes one text: select a single value in the source",
    "decoding": (
        "has letters that were lost or misread before (such as Zo\ufffd for Zoë, or MÃ¼ller for Müller): write the "
        "file again as UTF-8 from the program that has the right letters"
    ),
    "error": (
        "is an error of a spreadsheet, such as #REF!, or #### for a value in a column that is too narrow: correct the "
        "cell there, or widen the column, and write the file again"
    ),
    "converted": (
        "is a yes, a no or a date that a program made of a word (TRUE, 2026-05-02): make the column a text column, and "
        "write the name again"
    ),
    "code": (
        "is in the code of another program (such as b'Ann', M\\u00fcller, Ann%20Lee, =PROPER(B2), [object Object] or "
        "{{name}}): let the program write plain text"
    ),
    "id": NEEDLESS_DECIMALS,
    "spoiled": (
        "is a number as a spreadsheet shows it, such as 4.9E+11 or 1,234, or a date that a spreadsheet made of it: "
        "digits or zeros may be lost. Make the column a text column, and write the file again"
    ),
    "phone": "cannot be written as E.164 (+, country, number): it is no valid number, or has an extension",
    "flag": f"is not a known word for active or inactive, such as yes, no, 1, 0 or unsubscribed: {_TRANSLATE}",
    "email": "is not an email address: write one address without a name, such as ann@example.com",
    "gender": f"is neither male nor female nor empty: {_TRANSLATE}",
    "country": (
        "is not one country of ISO 3166-1: write a code of two or three letters, or the country's whole name (South "
        "Korea for Korea). "
        f"For other names {_TRANSLATE}"
    ),
    "zip": "cannot be sent: the service takes numbers only, without leading zeros",
    "date": (
        "is not a date written YYYY-MM-DD: a job says how its source writes dates by the field's `format:`, such as "
        '"%d.%m.%Y"'
    ),
    "lifetime": "lies before 1900 or in the future: correct the date, or leave the cell empty",
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
    faults = list(known)
    try:
        build_sent_schema(rules, today=today).validate(frame, lazy=True)
    except SchemaErrors as errors:
        reported = {(fault.position, fault.field) for fault in known}
        cases = errors.failure_cases
        for index, name, check in zip(cases["index"], cases["column"], cases["check"], strict=True):
            if (index, name) not in reported:
                code = _CODES.get(check, check)
                faults.append(Fault(int(index), name, code, f"{wire_name(BY_NAME[name])} {_MESSAGES[code]}"))
    faults.sort(key=lambda fault: (fault.position, _ORDER[fault.field]))
    is_valid = np.ones(len(frame), dtype=bool)
    is_valid[[fault.position for fault in faults]] = False
    subscribers, omitted_zips = _type_subscribers(frame if is_valid.all() else frame[is_valid], rules)
    return ValidRows(subscribers, tuple(faults), omitted_zips, yearless[is_valid[yearless]])


# The schemas


@lru_cache(maxsize=8)  # the same for each chunk of a run
def build_sent_schema(rules: ValidationRules, *, today: date) -> pandera.DataFrameSchema:
    """Return the schema of mapped rows, all texts (tags: lists of texts), that may be sent under `rules`.

    A check's name is the fault's code. The identity and the required fields must be there and not missing; no
    birthday lies after `today`.
    """
    required = rules.required | {rules.identity}
    columns = {
        field.name: pandera.Column(
            TAGS if field.kind is Kind.TAGS else TEXT,
            [_build_check(code, check) for code, check in _list_checks(field, rules, today).items()],
            nullable=field.name not in required,
            required=field.name in required,
        )
        for field in SENT
    }
    return pandera.DataFrameSchema(columns, name="subscribers to be sent")


@lru_cache(maxsize=1)
def build_listed_schema() -> pandera.DataFrameSchema:
    """Return the schema of subscribers as they are listed: every field a column of its type, any value may be missing.

    Numbers are Int64, flags boolean, tags list<string> and dates date32 of Arrow's. All else is `str`, also a zip,
    which the service returns as a string. Values of another type that mean the same are converted; further columns may
    be there.
    """
    columns = {field.name: pandera.Column(KINDS[field.kind].listed, nullable=True, coerce=True) for field in FIELDS}
    return pandera.DataFrameSchema(columns, name="subscribers as listed")


def _list_checks(field: Field, rules: ValidationRules, today: date) -> Mapping[str, _Check]:
    """Return the checks of a field by fault code: those of its kind, and those that the job or the day decides."""
    checks = dict(KINDS[field.kind].checks)
    if field.kind is Kind.DATE:
        checks["lifetime"] = partial(is_in_lifetime, today=today)
    if field.kind in (Kind.TEXT, Kind.NULLABLE_TEXT) and field.name not in FREE_FIELDS:
        checks["list"] = is_single
    if field.name in NAME_FIELDS:
        checks["converted"] = is_unconverted
    if field.name == "client_user_id":
        if rules.identity != "client_user_id":  # a load refuses only new identities: the service may have this spelling
            checks["id"] = is_whole_id
    elif field.kind in (Kind.TEXT, Kind.NULLABLE_TEXT) and field.name not in FREE_FIELDS:
        checks["code"] = is_free_of_code
    if field.name in DIGIT_FIELDS:
        checks["spoiled"] = is_unspoiled
    if field.kind is Kind.ZIP and rules.zip == "reject":
        checks["zip"] = is_sendable_zip
    if field.name == "phone" and rules.e164 is not None and rules.e164.otherwise == "reject":
        region = rules.e164.region
        checks["phone"] = lambda cells: read_phones(cells, region).is_valid()
    return checks


def _build_check(code: str, is_fine: _Check) -> pandera.Check:
    def check(column: "pd.Series[str]") -> "pd.Series[bool]":
        if column.dtype == TAGS:
            cells = pa.array(column.array, from_pandas=True)
            cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
        else:
            cells = read_cells(column)
        result = pc.fill_null(pc.or_kleene(is_fine(cells), cells.is_null()), True)
        return pd.Series(result.to_numpy(zero_copy_only=False))

    return pandera.Check(check, name=code, ignore_na=False)


# Before the checks, and after them


def _prepare_rows(mapped: pd.DataFrame, rules: ValidationRules) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    """Return the columns of the person's fields, with every required one, and the positions of yearless birthdays.

    A birthday without a year cannot be sent, so it is left out.
    """
    mapped = mapped.reset_index(drop=True)
    columns: dict[str, pd.Series] = {}
    for sent_field in SENT:
        if sent_field.name in mapped.columns:
            columns[sent_field.name] = mapped[sent_field.name]
        elif sent_field.name in rules.required | {rules.identity}:
            columns[sent_field.name] = pd.Series(
                [None] * len(mapped), dtype=TAGS if sent_field.kind is Kind.TAGS else TEXT
            )
    if "email" in columns:
        columns["email"] = pd.Series(normalise_emails(read_cells(columns["email"])), dtype=TEXT)
    yearless = np.empty(0, dtype=np.int64)
    if "birthday" in columns:
        cells = read_cells(columns["birthday"])
        is_yearless = pc.fill_null(pc.match_substring_regex(cells, YEARLESS), False)
        yearless = np.flatnonzero(is_yearless.to_numpy(zero_copy_only=False))
        if len(yearless):
            columns["birthday"] = pd.Series(pc.if_else(is_yearless, pa.scalar(None, cells.type), cells), dtype=TEXT)
    return pd.DataFrame(columns, index=mapped.index), yearless


def _type_subscribers(rows: pd.DataFrame, rules: ValidationRules) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    """Return the valid rows with typed columns, and the index labels of the rows whose zip is left out."""
    columns = {}
    for name in rows.columns:
        kind = KINDS[BY_NAME[name].kind]
        columns[name] = rows[name]
        if kind.read is not None:
            values = kind.read(read_cells(rows[name])).to_pandas(types_mapper=lambda _, dtype=kind.sent: dtype)
            columns[name] = pd.Series(values.array, index=rows.index)
    if "phone" in rows.columns and rules.e164 is not None:
        cells = read_cells(rows["phone"])  # a number without such a form was either refused before or is kept
        phones = pc.coalesce(read_phones(cells, rules.e164.region), cells)
        columns["phone"] = pd.Series(phones, dtype=TEXT, index=rows.index)
    omitted = np.empty(0, dtype=np.int64)
    if "address_zip" in rows.columns and rules.zip != "reject":
        cells = read_cells(rows["address_zip"])
        is_lost = pc.fill_null(pc.invert(is_sendable_zip(cells)), False)
        if rules.zip == "omit":
            omitted = rows.index.to_numpy(dtype=np.int64)[is_lost.to_numpy(zero_copy_only=False)]
        else:
            lost = pc.if_else(is_lost, cells, pa.scalar(None, cells.type))
            columns[rules.zip] = pd.Series(lost, dtype=TEXT, index=rows.index)
    return pd.DataFrame({name: columns[name] for name in NAMES if name in columns}, index=rows.index), omitted


def read_phones(cells: pa.Array, region: str) -> pa.Array:
    """Return the E.164 form of each number (one without a leading + is of `region`), null for an invalid number.

    A number with an extension has no such form: E.164 would lose it. About 25 µs a number, once for each chunk.
    """
    texts = [None if text is None else format_phone(text, region) for text in cells.to_pylist()]
    return pa.array(texts, pa.large_string())
