"""Which texts are real dates, YYYY-MM-DD, within a person's lifetime; a whole column of digits at once."""

from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.validation.cells import view_octets

FIRST_YEAR = 1900  # nobody alive was born before; what lies there is a default of some other program's

_YEARLESS = r"^--[0-9]{2}-?[0-9]{2}$"
_FORM = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_LENGTH = 10
_THOUSANDS = np.array([1000, 100, 10, 1])
_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def is_date(cells: pa.Array) -> pa.Array:
    """Whether each text is a date that exists (null where missing)."""
    has_form = pc.fill_null(pc.match_substring_regex(cells, _FORM), False)
    year, month, day = _read_parts(cells.filter(has_form))
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    in_year = (month >= 1) & (month <= 12)
    days = _DAYS[np.where(in_year, month, 0)] + ((month == 2) & is_leap)
    is_real = has_form.to_numpy(zero_copy_only=False).copy()
    is_real[is_real] = in_year & (day >= 1) & (day <= days) & (year >= 1)
    return pc.if_else(pc.is_valid(cells), pa.array(is_real), None)


def is_yearless(cells: pa.Array) -> pa.Array:
    """Whether each text is a day without a year, as address books write one: `--05-12` or `--0512` (ISO 8601:2000)."""
    return pc.match_substring_regex(cells, _YEARLESS)


def is_in_lifetime(cells: pa.Array, today: date) -> pa.Array:
    """Whether each date lies from 1900 to `today`; true for what is no date, which `is_date` tells."""
    too_early = pc.less(cells, f"{FIRST_YEAR:04}")  # dates in this form sort as texts
    too_late = pc.greater(cells, today.isoformat())
    return pc.or_(pc.invert(is_date(cells)), pc.invert(pc.or_(too_early, too_late)))


def _read_parts(dates: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Years, months and days of texts that have the form."""
    digits = view_octets(dates)  # all are ten bytes long and none is missing
    table = digits.reshape(-1, _LENGTH).astype(np.int64) - ord("0")
    return table[:, :4] @ _THOUSANDS, table[:, 5:7] @ _THOUSANDS[2:], table[:, 8:] @ _THOUSANDS[2:]
