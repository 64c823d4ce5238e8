"""The list as Arrow batches, for whatever reads Arrow: DuckDB, Polars, a Parquet writer."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from connector.api.token import Token
from connector.errors import ConfigurationError
from connector.export.columns import SCHEMA
from connector.export.library import build_query, build_service, collect, run_anywhere
from connector.export.sweep_file import SweepFile
from connector.pages import Certificate

CHUNK_ROWS = 50_000
"""About 20 MB as Arrow, 60 MB as a DataFrame."""


def read_batches(
    *,
    base_url: str,
    token: str | Token,
    authorization: str = "{token}",
    timeout_s: float = 30.0,
    chunk_rows: int = CHUNK_ROWS,
    allow_incomplete: bool = False,
    **filters: Any,
) -> pa.RecordBatchReader:
    """Everyone on the list as a `pyarrow.RecordBatchReader`; no batch has more than `chunk_rows`.

    Columns are those of `read_subscribers` in Arrow's types: id and base_id int64, is_active bool, tags list<string>,
    birthday date32, all other fields string, `_run_id` string, `_exported_at` timestamp[us, UTC], and `_invalid` (JSON
    text of what breaks its type, else null). The certificate is JSON text in `reader.schema.metadata[b"certificate"]`.

    The whole list is read and certified before this returns, into a file without a name that goes with the reader: so
    memory holds a batch at a time. May be called where an event loop runs, which waits meanwhile. Raises
    ConfigurationError, ListFailed, and IncompleteList unless allowed.
    """
    check_chunk_rows(chunk_rows)
    service, query = build_service(base_url, token, authorization, timeout_s), build_query(filters)
    kept = SweepFile()
    try:
        certificate = run_anywhere(collect(service, query, kept, allow_incomplete=allow_incomplete))
    except BaseException:
        kept.close()
        raise
    schema = SCHEMA.with_metadata({"certificate": write_certificate(certificate)})
    return pa.RecordBatchReader.from_batches(schema, _read_batches(kept, schema, chunk_rows))


def check_chunk_rows(chunk_rows: int) -> None:
    """Raises ConfigurationError unless a chunk holds anybody."""
    if chunk_rows < 1:
        raise ConfigurationError(f"chunk_rows must be at least 1, not {chunk_rows}.")


def write_certificate(certificate: Certificate) -> str:
    """As in a report."""
    return json.dumps(certificate.as_report())


def _read_batches(kept: SweepFile, schema: pa.Schema, chunk_rows: int) -> Iterator[pa.RecordBatch]:
    for table in kept.read(chunk_rows):
        yield from table.replace_schema_metadata(schema.metadata).combine_chunks().to_batches(chunk_rows)
