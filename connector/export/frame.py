"""The list as pandas DataFrames, whole or chunk by chunk, for a notebook or a script."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pandas as pd
import pyarrow as pa

from connector.api.token import Token
from connector.export.batches import CHUNK_ROWS, check_chunk_rows
from connector.export.columns import SCHEMA, stamp_columns
from connector.export.library import build_query, build_service, collect, run_anywhere
from connector.export.sweep_file import SweepFile
from connector.pages import Certificate
from connector.validation import build_listed_schema

_PANDAS_TYPES = {
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(na_value=float("nan")),
}


def read_subscribers(
    *,
    base_url: str,
    token: str | Token,
    authorization: str = "{token}",
    timeout_s: float = 30.0,
    allow_incomplete: bool = False,
    **filters: Any,
) -> pd.DataFrame:
    """Everyone on the list as a DataFrame; `attrs["certificate"]` is the certificate, as in a report.

    Columns are those of every export, typed by `build_listed_schema`: numbers Int64, flags boolean, texts str, tags
    lists and birthdays dates of Arrow's; `_run_id`, `_exported_at` (UTC) and `_invalid` follow. `filters` are those of
    api.md 4.3 by field name: id, base_id, client_user_id, email, is_active, first_name, last_name, gender. May be
    called where an event loop runs. Raises ConfigurationError, ListFailed, and IncompleteList unless allowed.
    """
    service, query = build_service(base_url, token, authorization, timeout_s), build_query(filters)
    collected = _Collected()
    certificate = run_anywhere(collect(service, query, collected, allow_incomplete=allow_incomplete))
    return _certify(build_frame(pa.concat_tables([SCHEMA.empty_table(), *collected.tables])), certificate)


async def iter_subscribers(
    *,
    base_url: str,
    token: str | Token,
    authorization: str = "{token}",
    timeout_s: float = 30.0,
    chunk_rows: int = CHUNK_ROWS,
    allow_incomplete: bool = False,
    **filters: Any,
) -> AsyncGenerator[pd.DataFrame, None]:
    """Everyone on the list as DataFrames of `chunk_rows` rows, the last with the rest: `async for frame in …`.

    Columns, types, filters and errors are those of `read_subscribers`, and each frame has the certificate, and an
    index of its own. The first frame comes when the whole list has been read and certified, into a file without a name:
    so memory holds a chunk at a time, and nobody works on rows that a later sweep takes back. Of an empty list there is
    one frame without rows. Who stops early leaves nothing behind.
    """
    check_chunk_rows(chunk_rows)
    service, query = build_service(base_url, token, authorization, timeout_s), build_query(filters)
    with SweepFile() as kept:
        certificate = await collect(service, query, kept, allow_incomplete=allow_incomplete)
        is_empty = True
        for table in kept.read(chunk_rows):
            is_empty = False
            yield _certify(build_frame(table), certificate)
        if is_empty:
            yield _certify(build_frame(SCHEMA.empty_table()), certificate)


def build_frame(table: pa.Table) -> pd.DataFrame:
    """A table of an export as a DataFrame, each column of its own type whatever its values."""
    frame = table.to_pandas(types_mapper=_choose_type)
    checked: pd.DataFrame = build_listed_schema().validate(frame)
    return checked


class _Collected:
    """Keeps the tables of the current sweep."""

    def __init__(self) -> None:
        self._run_id = uuid4().hex
        self._exported_at = datetime.now(UTC)
        self.tables: list[pa.Table] = []

    def start_sweep(self, number: int) -> None:
        self.tables.clear()

    def take(self, rows: pa.RecordBatch) -> None:
        self.tables.append(stamp_columns(rows, run_id=self._run_id, exported_at=self._exported_at))


def _certify(frame: pd.DataFrame, certificate: Certificate) -> pd.DataFrame:
    frame.attrs["certificate"] = certificate.as_report()
    return frame


def _choose_type(kind: pa.DataType) -> Any:
    return _PANDAS_TYPES.get(kind, pd.ArrowDtype(kind))
