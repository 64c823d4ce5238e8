"""The pandera schemas: of what goes in and of what comes back, each derived from the field table, kind by kind."""

from collections.abc import Callable
from datetime import date
from functools import lru_cache, partial

import pandas as pd
import pandera.pandas as pandera
import pyarrow as pa

from connector.fields import FIELDS, SENT, Field, Kind
from connector.validation.cells import TAGS, TEXT, is_free_of_controls, is_true_or_missing, read_cells
from connector.validation.countries import read_countries
from connector.validation.dates import is_date, is_in_lifetime
from connector.validation.emails import is_email
from connector.validation.lengths import is_short, is_short_list
from connector.validation.phones import read_phones
from connector.validation.rules import Rules
from connector.validation.words import read_flags, read_genders
from connector.validation.zips import is_sendable_zip

_Judge = Callable[[pa.Array], pa.Array]

_LISTED_TYPES: dict[Kind, object] = {
    Kind.NUMBER: pd.Int64Dtype(),
    Kind.FLAG: pd.BooleanDtype(),
    Kind.TAGS: TAGS,
    Kind.DATE: pd.ArrowDtype(pa.date32()),
}


@lru_cache(maxsize=8)  # the same for each chunk of a run
def build_sent_schema(rules: Rules, *, today: date) -> pandera.DataFrameSchema:
    """The schema of mapped rows, all texts (tags: lists of texts): what may be sent of them under `rules`.

    A check's name is the fault's code. The identity and the required fields must be there and not missing; no
    birthday lies after `today`.
    """
    required = rules.required | {rules.identity}
    columns = {field.name: _build_column(field, rules, today, is_required=field.name in required) for field in SENT}
    return pandera.DataFrameSchema(columns, name="subscribers to be sent")


@lru_cache(maxsize=1)
def build_listed_schema() -> pandera.DataFrameSchema:
    """The schema of subscribers as they are listed: every field a column of its type, any value may be missing.

    Numbers are Int64, flags boolean, tags list<string> and dates date32 of Arrow's, all else (a zip too: it is
    returned as a string) `str`. Values of another type that mean the same are converted; further columns may be there.
    """
    columns = {
        field.name: pandera.Column(_LISTED_TYPES.get(field.kind, TEXT), nullable=True, coerce=True) for field in FIELDS
    }
    return pandera.DataFrameSchema(columns, name="subscribers as listed")


def _build_column(field: Field, rules: Rules, today: date, *, is_required: bool) -> pandera.Column:
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


def _list_judges(kind: Kind, rules: Rules, today: date) -> list[tuple[str, _Judge]]:
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
        return is_true_or_missing(pa.compute.or_kleene(judge(cells), cells.is_null()))

    return pandera.Check(check, name=code, ignore_na=False)


def _read_lists(column: "pd.Series[str]") -> pa.Array:
    lists = pa.array(column.array, from_pandas=True)
    return lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists


def _is_clean_list(lists: pa.Array) -> pa.Array:
    """Whether each list of tags is without control characters."""
    is_clean = is_free_of_controls(lists.flatten().cast(pa.large_string()))
    dirty = pa.compute.list_parent_indices(lists).filter(pa.compute.invert(is_clean))
    return pa.compute.invert(pa.compute.is_in(pa.array(range(len(lists)), dirty.type), dirty))
