"""Valid rows, still all texts, given the types of their fields; what becomes of a zip that is no number."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from connector.fields import BY_NAME, NAMES, Kind
from connector.validation.cells import TEXT, read_cells
from connector.validation.countries import read_countries
from connector.validation.phones import read_phones
from connector.validation.rules import Rules
from connector.validation.words import read_flags, read_genders
from connector.validation.zips import is_sendable_zip, read_zips


def type_subscribers(rows: pd.DataFrame, rules: Rules) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    """Give the rows with typed columns, and the index labels of those whose zip is left out."""
    columns = {name: _type_column(rows[name], BY_NAME[name].kind) for name in rows.columns}
    if "phone" in rows.columns and rules.e164 is not None:
        columns["phone"] = _type_phones(rows["phone"], rules.e164.region)
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


def _type_column(column: pd.Series, kind: Kind) -> pd.Series:
    read = _READERS.get(kind)
    return column if read is None else read(column)


def _type_flags(column: pd.Series) -> pd.Series:
    flags = pc.equal(read_flags(read_cells(column)), "true")
    return _build_series(flags, pd.BooleanDtype(), column.index)


def _type_zips(column: pd.Series) -> pd.Series:
    return _build_series(read_zips(read_cells(column)), pd.Int64Dtype(), column.index)


def _type_genders(column: pd.Series) -> pd.Series:
    return pd.Series(read_genders(read_cells(column)), dtype=TEXT, index=column.index)


def _type_countries(column: pd.Series) -> pd.Series:
    return pd.Series(read_countries(read_cells(column)), dtype=TEXT, index=column.index)


def _type_phones(column: pd.Series, region: str) -> pd.Series:
    """In E.164 form where that is possible; what is not was either refused before or is to be kept."""
    cells = read_cells(column)
    return pd.Series(pc.coalesce(read_phones(cells, region), cells), dtype=TEXT, index=column.index)


def _build_series(cells: pa.Array, dtype: pd.BooleanDtype | pd.Int64Dtype, index: pd.Index) -> pd.Series:
    return pd.Series(cells.to_pandas(types_mapper=lambda _: dtype).array, index=index)


_READERS: dict[Kind, Callable[[pd.Series], pd.Series]] = {
    Kind.FLAG: _type_flags,
    Kind.ZIP: _type_zips,
    Kind.GENDER: _type_genders,
    Kind.COUNTRY: _type_countries,
}
