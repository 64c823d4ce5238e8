"""The rows of a mapped chunk told apart: valid subscribers, typed, and the faults of the others, all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import numpy.typing as npt
import pandas as pd
import pandera.errors

from connector.fields import BY_NAME, NAMES, wire_name
from connector.outcomes import Fault
from connector.validation.lengths import LONGEST
from connector.validation.prepare import prepare_rows
from connector.validation.rules import Rules
from connector.validation.schemas import build_sent_schema
from connector.validation.types import type_subscribers

_TRANSLATE = "a job translates its source's words by the field's `values:` map"
_MESSAGES = {
    "required": "is missing",
    "encoding": "holds half a character (a surrogate alone), which cannot be sent",
    "control": "holds a control character",
    "length": f"holds more than {LONGEST:,} characters; look there for a quote that is never closed",
    "phone": "cannot be written as E.164 (+, country, number): it is no valid number, or has an extension",
    "flag": f"is neither true nor false (yes and no, 1 and 0 will do); {_TRANSLATE}",
    "email": "is not an email address",
    "gender": f"is neither male nor female nor empty; {_TRANSLATE}",
    "country": "is not a country: a code of two or three letters (ISO 3166-1), or its English name",
    "zip": "cannot be sent: the service takes numbers only, without leading zeros",
    "date": "is not a date written YYYY-MM-DD",
    "lifetime": "lies before 1900 or in the future",
}
_CODES = {"not_nullable": "required"}  # pandera's word: ours
_ORDER = {name: place for place, name in enumerate(NAMES)}


@dataclass(frozen=True, slots=True)
class Validated:
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


def validate_rows(mapped: pd.DataFrame, rules: Rules, *, today: date, known: Sequence[Fault] = ()) -> Validated:
    """Validate a mapped chunk (columns: field names; texts, tags as lists; missing where empty), obeying api.md 2.1.

    One pandera run finds every fault of every row; `known` are those that mapping found already. A column that is no
    field of a person's is left out. Raises ConfigurationError if the field that is to hold zips is mapped itself.
    """
    rules.refuse_clash(list(mapped.columns))
    prepared = prepare_rows(mapped, rules)
    frame = prepared.frame
    faults = [*known, *(_build_fault(position, name, "encoding") for position, name in prepared.unwritable)]
    told = {(fault.position, fault.field) for fault in faults}
    faults += [fault for fault in _find_faults(frame, rules, today) if (fault.position, fault.field) not in told]
    faults.sort(key=lambda fault: (fault.position, _ORDER[fault.field]))
    is_valid = np.ones(len(frame), dtype=bool)
    is_valid[[fault.position for fault in faults]] = False
    subscribers, omitted_zips = type_subscribers(frame if is_valid.all() else frame[is_valid], rules)
    return Validated(subscribers, tuple(faults), omitted_zips, prepared.yearless[is_valid[prepared.yearless]])


def _find_faults(frame: pd.DataFrame, rules: Rules, today: date) -> list[Fault]:
    try:
        build_sent_schema(rules, today=today).validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as errors:
        cases = errors.failure_cases
        places, names, checks = cases["index"].tolist(), cases["column"].tolist(), cases["check"].tolist()
        return [
            _build_fault(int(place), name, _CODES.get(check, check))
            for place, name, check in zip(places, names, checks, strict=True)
        ]
    return []


def _build_fault(position: int, name: str, code: str) -> Fault:
    return Fault(position, name, code, f"{wire_name(BY_NAME[name])} {_MESSAGES[code]}")
