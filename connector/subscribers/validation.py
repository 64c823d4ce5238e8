"""Validates mapped rows by a pandera schema, and converts the columns of valid rows to their types.

`find_kind_rules` returns the checks and the reader of a kind of field. `list_checks` adds the checks that depend on
the content of the field, on the job and on the date of today. The fault of a row that fails a check has the name of the
check as its code, and the error of the check as its message.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, partial
from typing import assert_never

import numpy as np
import pandas as pd
import pandera.pandas as pandera
import pyarrow as pa
import pyarrow.compute as pc
from pandera.errors import SchemaErrors

from connector.arrow import find_arrow_type
from connector.fields import (
    FIELD_BY_NAME,
    FIELD_NAMES,
    FIELDS,
    SENT_FIELDS,
    Field,
    FieldContent,
    FieldKind,
)
from connector.outcomes import Fault
from connector.subscribers import checks
from connector.subscribers.checks import TAGS, TEXT, find_pandas_type, read_cells
from connector.subscribers.countries import find_country
from connector.subscribers.identity import Positions
from connector.subscribers.rules import ValidationRules, format_phone

# The checks


def _build_text_check(code: str, mark_valid_texts: Callable[[pa.Array], pa.Array], message: str) -> pandera.Check:
    """Return a check. `mark_valid_texts` returns, for each text of an array, whether the text may be sent. The result
    for a missing value does not matter. Each tag of a row is checked separately, except for the length, which is
    checked for all tags together."""

    def check(column: pd.Series) -> "pd.Series[bool]":
        cells = read_cells(column)
        must_check_each_tag = pa.types.is_list(cells.type) and mark_valid_texts is not checks.mark_short_texts
        mark_cells = partial(checks.mark_valid_lists, mark_valid_texts=mark_valid_texts)
        valid_mask = mark_cells(cells) if must_check_each_tag else mark_valid_texts(cells)
        accepted_mask = pc.fill_null(pc.or_kleene(valid_mask, cells.is_null()), True)
        return pd.Series(accepted_mask.to_numpy(zero_copy_only=False))

    return pandera.Check(check, name=code, error=message, ignore_na=False)


def _build_pattern_check(code: str, pattern: str, characters: bytes, message: str) -> pandera.Check:
    """Return the check that refuses each text that matches a regular expression. See `mark_not_matching` for
    `characters`."""
    return _build_text_check(code, partial(checks.mark_not_matching, pattern=pattern, characters=characters), message)


def _build_reader_check(code: str, reader: Callable[[pa.Array], pa.Array], message: str) -> pandera.Check:
    """Return the check that refuses each text for which `reader` returns no value."""
    return _build_text_check(code, lambda cells: reader(cells).is_valid(), message)


_TRANSLATE_HINT = "in a job, translate the words of the source with the `values:` map of the field"

# No message may contain "; ", because this text separates the faults of a row.
CONTROL_CHARACTER_CHECK = _build_pattern_check(
    "control",
    checks.CONTROL_CHARACTER_PATTERN,
    checks.CONTROL_CHARACTERS,
    "holds a control character, which nobody sees: delete it, or write the value again",
)
LENGTH_CHECK = _build_text_check(
    "length",
    checks.mark_short_texts,
    f"holds more than {checks.LARGEST_TEXT_LENGTH:,} characters: look in the cell for a quote that is never closed",
)
DECODING_CHECK = _build_text_check(
    "decoding",
    checks.mark_well_decoded,
    "has letters that were lost or misread before (such as Zo\ufffd for Zoë, or MÃ¼ller for Müller): write the file "
    "again as UTF-8 from the program that has the right letters",
)
SPREADSHEET_ERROR_CHECK = _build_pattern_check(
    "error",
    checks.SPREADSHEET_ERROR_PATTERN,
    b"#",
    "is an error of a spreadsheet, such as #REF!, or #### for a value in a column that is too narrow: correct the cell "
    "in the spreadsheet, or widen the column, and write the file again",
)
PROGRAM_CODE_CHECK = _build_text_check(
    "code",
    checks.mark_texts_without_program_code,
    "contains code of a program (such as b'Ann', M\\u00fcller, Ann%20Lee, =PROPER(B2), [object Object] or "
    "{{name}}): let the program write plain text",
)
LIST_CHECK = _build_text_check(
    "list",
    checks.mark_texts_other_than_lists_and_objects,
    "holds a list or an object, but the field takes one text: select a single value in the source",
)
SPOILED_NAME_CHECK = _build_pattern_check(
    "converted",
    checks.SPOILED_NAME_PATTERN,
    b"",
    "is TRUE, FALSE or a date such as 2026-05-02, into which a program may have converted a name: make the column a "
    "text column, and write the name again",
)
SPOILED_NUMBER_CHECK = _build_pattern_check(
    "spoiled",
    checks.SPOILED_NUMBER_PATTERN,
    checks.SPOILED_NUMBER_CHARACTERS,
    "is a number as a spreadsheet shows it, such as 4.9E+11 or 1,234, or a date that a spreadsheet made of a number: "
    "digits or zeros may be lost. Make the column a text column, and write the file again",
)
YES_OR_NO_CHECK = _build_text_check(
    "answer",
    checks.mark_texts_other_than_yes_or_no,
    "is an answer such as `yes` or `no`, not a phone number: correct the row. If the column has only such answers, map "
    "another column to the field `phone`, or no column (--map phone=; in a job, delete the field)",
)
ID_CHECK = _build_pattern_check("id", checks.DECIMAL_ID_PATTERN, b".", checks.NEEDLESS_DECIMALS_MESSAGE)
ZIP_CHECK = _build_text_check(
    "zip", checks.mark_sendable_zips, "cannot be sent: the service takes numbers only, without leading zeros"
)
EMAIL_CHECK = _build_text_check(
    "email", checks.mark_emails, "is not one complete email address, such as ann@example.com"
)
_read_flags = partial(checks.translate_cells, value_by_text=checks.IS_ACTIVE_BY_WORD)
FLAG_CHECK = _build_reader_check(
    "flag",
    _read_flags,
    f"is not a known word for active or inactive, such as `yes`, `no`, `1`, `0` or `unsubscribed`: {_TRANSLATE_HINT}",
)
_read_genders = partial(checks.translate_cells, value_by_text=checks.GENDER_BY_WORD)
GENDER_CHECK = _build_reader_check(
    "gender", _read_genders, f"is neither `male` nor `female` nor empty: {_TRANSLATE_HINT}"
)
_read_countries = partial(checks.convert_distinct_texts, convert=find_country)
COUNTRY_CHECK = _build_reader_check(
    "country",
    _read_countries,
    "is not a country of ISO 3166-1: write a code of two or three letters, or the country's whole name (South Korea "
    f"for Korea). For other names: {_TRANSLATE_HINT}",
)
DATE_CHECK = _build_text_check(
    "date",
    checks.mark_dates,
    'is not a date in the form YYYY-MM-DD: for another form, set `format:` of this field in a job, such as "%d.%m.%Y". '
    "Convert a time with a time zone to a date in the source, such as cast(birthday as date), or .dt.date in pandas",
)
_LIFETIME_MESSAGE = "lies before 1900 or in the future: correct the date, or leave the cell empty"
_PHONE_MESSAGE = "cannot be written as E.164 (+, country, number): the number is not valid, or has an extension"

# The schemas


@dataclass(frozen=True, slots=True)
class KindRules:
    """The rules of one kind of field.

    `checks` are the checks of the texts. `reader` returns the values of valid texts. If `reader` is None, the text
    itself is sent.
    """

    checks: tuple[pandera.Check, ...] = (CONTROL_CHARACTER_CHECK, LENGTH_CHECK, DECODING_CHECK, SPREADSHEET_ERROR_CHECK)
    reader: Callable[[pa.Array], pa.Array] | None = None


_COMMON_CHECKS = KindRules().checks


def find_kind_rules(kind: FieldKind) -> KindRules:
    """Return the rules of a kind of field."""
    match kind:
        case FieldKind.FLAG:
            return KindRules((*_COMMON_CHECKS, FLAG_CHECK), _read_flags)
        case FieldKind.NUMBER | FieldKind.TEXT | FieldKind.NULLABLE_TEXT:
            return KindRules()
        case FieldKind.EMAIL:
            return KindRules((*_COMMON_CHECKS, PROGRAM_CODE_CHECK, EMAIL_CHECK))
        case FieldKind.GENDER:
            return KindRules((*_COMMON_CHECKS, GENDER_CHECK), _read_genders)
        case FieldKind.TAGS:
            return KindRules((*_COMMON_CHECKS, PROGRAM_CODE_CHECK))
        case FieldKind.COUNTRY:
            return KindRules((*_COMMON_CHECKS, COUNTRY_CHECK), _read_countries)
        case FieldKind.ZIP:
            return KindRules((*_COMMON_CHECKS, SPOILED_NUMBER_CHECK), checks.read_zips)
        case FieldKind.DATE:
            return KindRules((*_COMMON_CHECKS, DATE_CHECK))
    assert_never(kind)


def list_checks(field: Field, rules: ValidationRules, today: date) -> list[pandera.Check]:
    """Return the checks of a field: the checks of its kind, and the checks that depend on its content, on the job or on
    today's date."""
    field_checks = list(find_kind_rules(field.kind).checks)
    if field.kind in (FieldKind.TEXT, FieldKind.NULLABLE_TEXT):
        field_checks += _list_text_checks(field.content, rules)
    if field.kind is FieldKind.DATE:
        mark_valid_texts = partial(checks.mark_plausible_birthdays, today=today)
        field_checks.append(_build_text_check("lifetime", mark_valid_texts, _LIFETIME_MESSAGE))
    if field.kind is FieldKind.ZIP and rules.zip_policy == "reject":
        field_checks.append(ZIP_CHECK)
    if field.name == "phone" and rules.e164 is not None and rules.e164.invalid_number_policy == "reject":
        field_checks.append(
            _build_reader_check("phone", partial(read_phones, region=rules.e164.region), _PHONE_MESSAGE)
        )
    return field_checks


def _list_text_checks(content: FieldContent, rules: ValidationRules) -> list[pandera.Check]:
    match content:
        case FieldContent.ANY_TEXT:
            return []
        case FieldContent.PLAIN:
            return [LIST_CHECK, PROGRAM_CODE_CHECK]
        case FieldContent.NAME:
            return [LIST_CHECK, PROGRAM_CODE_CHECK, SPOILED_NAME_CHECK]
        case FieldContent.DIGITS:
            return [LIST_CHECK, PROGRAM_CODE_CHECK, SPOILED_NUMBER_CHECK, YES_OR_NO_CHECK]
        case FieldContent.ID:
            # If client_user_id is the identity, the service may already have a subscriber with the id `1001.0`.
            # So ID_CHECK is left out here. The load refuses the row if the subscriber is new.
            id_checks = [] if rules.identity_field == "client_user_id" else [ID_CHECK]
            return [LIST_CHECK, *id_checks, SPOILED_NUMBER_CHECK]
    assert_never(content)


@lru_cache(maxsize=8)  # all chunks of a run have the same schema
def build_sent_schema(rules: ValidationRules, *, today: date) -> pandera.DataFrameSchema:
    """Return the schema of mapped rows that may be sent under `rules`. Tags are lists of texts, and all other columns
    are texts. No value of the identity or of a required field may be missing, and no birthday may be after `today`."""
    required = rules.required | {rules.identity_field}
    columns = {
        field.name: pandera.Column(
            TAGS if field.kind is FieldKind.TAGS else TEXT,
            list_checks(field, rules, today),
            nullable=field.name not in required,
            required=field.name in required,
        )
        for field in SENT_FIELDS
    }
    return pandera.DataFrameSchema(columns, name="subscribers to be sent")


@lru_cache(maxsize=1)
def build_listed_schema() -> pandera.DataFrameSchema:
    """Return the schema of listed subscribers. The schema has one column for each field, in the field's type. Any value
    may be missing.

    A value of another type is converted if its meaning stays the same. Other columns are allowed.
    """
    columns = {
        field.name: pandera.Column(find_pandas_type(find_arrow_type(field.kind)), nullable=True, coerce=True)
        for field in FIELDS
    }
    return pandera.DataFrameSchema(columns, name="subscribers as listed")


# The validation of a chunk


@dataclass(frozen=True, slots=True)
class ValidRows:
    """The valid rows of a chunk, and the faults of the invalid rows.

    The index of `subscribers` has the positions (from 0) of the rows in the chunk. A column that a `KindRules.reader`
    has read has the type of the reader's values. Tags are lists of texts, and all other columns are texts. A missing
    value is not sent. `faults` are sorted by position, and then by the order of the fields. `omitted_zip_positions` are
    the positions of valid rows whose zip code is not sent. `yearless_positions` are the positions of valid rows whose
    birthday is not sent, because the birthday has no year.
    """

    subscribers: pd.DataFrame
    faults: tuple[Fault, ...]
    omitted_zip_positions: Positions
    yearless_positions: Positions


def validate_rows(
    mapped_frame: pd.DataFrame, rules: ValidationRules, *, today: date, known_faults: Sequence[Fault] = ()
) -> ValidRows:
    """Validate a mapped chunk (the frame of `apply_mapping`) by service-api.md 2.1, and find all faults of each row.

    `known_faults` are the faults that the mapping and the reading of the bases have found. Columns that are not fields
    of a person are left out.
    """
    frame, yearless_positions = _prepare_rows(mapped_frame, rules)
    faults = list(known_faults)
    try:
        build_sent_schema(rules, today=today).validate(frame, lazy=True)
    except SchemaErrors as errors:
        known_fault_keys = {(fault.position, fault.field) for fault in known_faults}
        for error in errors.schema_errors:
            name, check = error.schema.name, error.check
            is_missing = not isinstance(check, pandera.Check)  # pandera's own check: a value is missing
            code, problem = ("required", "is missing") if is_missing else (check.name, check.error)
            message = f"{name} {problem}"
            positions = [index for index in error.failure_cases["index"] if (index, name) not in known_fault_keys]
            faults += [Fault(int(position), name, code, message) for position in positions]
    faults.sort(key=lambda fault: (fault.position, FIELD_NAMES.index(fault.field)))
    valid_mask = np.ones(len(frame), dtype=bool)
    valid_mask[[fault.position for fault in faults]] = False
    subscribers, omitted_zip_positions = _convert_columns(frame if valid_mask.all() else frame[valid_mask], rules)
    return ValidRows(
        subscribers, tuple(faults), omitted_zip_positions, yearless_positions[valid_mask[yearless_positions]]
    )


def _prepare_rows(mapped_frame: pd.DataFrame, rules: ValidationRules) -> tuple[pd.DataFrame, Positions]:
    """Return a frame with the mapped and the required fields of a person, and the positions of birthdays without a
    year. These birthdays cannot be sent, so the frame has no value in their cells."""
    mapped_frame = mapped_frame.reset_index(drop=True)
    column_by_field: dict[str, pd.Series] = {}
    for field in SENT_FIELDS:
        if field.name in mapped_frame.columns:
            column_by_field[field.name] = mapped_frame[field.name]
        elif field.name in rules.required | {rules.identity_field}:
            empty_column_type = TAGS if field.kind is FieldKind.TAGS else TEXT
            column_by_field[field.name] = pd.Series([None] * len(mapped_frame), dtype=empty_column_type)
    if "email" in column_by_field:
        emails = pc.utf8_trim_whitespace(read_cells(column_by_field["email"]))
        column_by_field["email"] = pd.Series(checks.normalize_texts(emails, "NFC"), dtype=TEXT)
    yearless_positions = np.empty(0, dtype=np.int64)
    if "birthday" in column_by_field:
        cells = read_cells(column_by_field["birthday"])
        yearless_mask = pc.fill_null(pc.match_substring_regex(cells, checks.YEARLESS_PATTERN), False)
        yearless_positions = np.flatnonzero(yearless_mask.to_numpy(zero_copy_only=False))
        if len(yearless_positions):
            column_by_field["birthday"] = pd.Series(
                pc.if_else(yearless_mask, pa.scalar(None, cells.type), cells), dtype=TEXT
            )
    return pd.DataFrame(column_by_field, index=mapped_frame.index), yearless_positions


def _convert_columns(rows: pd.DataFrame, rules: ValidationRules) -> tuple[pd.DataFrame, Positions]:
    """Return the valid rows with typed columns, and the positions of the rows whose zip code is not sent."""
    column_by_field = {}
    for name in rows.columns:
        kind_rules = find_kind_rules(FIELD_BY_NAME[name].kind)
        column_by_field[name] = rows[name]
        if kind_rules.reader is not None:
            typed_values = kind_rules.reader(read_cells(rows[name])).to_pandas(types_mapper=find_pandas_type)
            column_by_field[name] = pd.Series(typed_values.array, index=rows.index)
    if "phone" in rows.columns and rules.e164 is not None:
        # A text without an E.164 form is sent unchanged. If the rule rejects these texts, a check has already removed
        # the rows.
        cells = read_cells(rows["phone"])
        phones = pc.coalesce(read_phones(cells, rules.e164.region), cells)
        column_by_field["phone"] = pd.Series(phones, dtype=TEXT, index=rows.index)
    omitted_zip_positions = np.empty(0, dtype=np.int64)
    if "address_zip" in rows.columns and rules.zip_policy != "reject":
        cells = read_cells(rows["address_zip"])
        unsendable_mask = pc.fill_null(pc.invert(checks.mark_sendable_zips(cells)), False)
        if rules.zip_policy == "omit":
            omitted_zip_positions = rows.index.to_numpy(dtype=np.int64)[unsendable_mask.to_numpy(zero_copy_only=False)]
        else:
            unsendable_zips = pc.if_else(unsendable_mask, cells, pa.scalar(None, cells.type))
            column_by_field[rules.zip_policy] = pd.Series(unsendable_zips, dtype=TEXT, index=rows.index)
    return pd.DataFrame(
        {name: column_by_field[name] for name in FIELD_NAMES if name in column_by_field}, index=rows.index
    ), omitted_zip_positions


def read_phones(cells: pa.Array, region: str) -> pa.Array:
    """Return the E.164 form of each phone number, or null for an invalid number or a number with an extension.

    A number without a leading + belongs to `region`.
    """
    return checks.convert_distinct_texts(cells, partial(format_phone, region=region))
