"""Fills a ledger with millions of confirmed entries in minutes.

The connector's own code creates the tables, the base and the run. It also computes the digests, in the order in which
an import writes them. Only the entries are written differently: by one COPY, or by `executemany`.
"""

import argparse
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.records import find_or_add_base, finish_run, start_run
from connector.ledger.schema import HOW_NUMBERS, IDENTITY_FIELDS
from connector.sources.files import open_file
from connector.states import State
from connector.subscribers.headers import guess_mapping
from connector.subscribers.identity import split_digests
from connector.subscribers.preparation import prepare_chunks
from connector.subscribers.rules import ValidationRules
from tests.benchmarks.people import BASE_ID

_FIXED_VALUES = (IDENTITY_FIELDS["email"], int(State.CONFIRMED), HOW_NUMBERS["created"])
_COLUMNS = "base_key, identity, identity_field, state, how, subscriber_id, fingerprint, attempts, run_key"
_COPY_SQL = f"COPY entry ({_COLUMNS}) FROM STDIN (FORMAT BINARY)"
_COPY_HEAD, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_COPY_TYPES = {"base_key": ">i4", "identity": "S16", "identity_field": ">i2", "state": ">i2", "how": ">i2"}
_COPY_TYPES |= {"subscriber_id": ">i8", "fingerprint": "S8", "attempts": ">i2", "run_key": ">i4"}
_CACHE_KB = 2_000_000  # cache of SQLite while the ledger is filled, so that SQLite writes each page once
_ROWS_PER_COMMIT = 2_000_000

Block = tuple[npt.NDArray[np.bytes_], npt.NDArray[np.bytes_], npt.NDArray[np.int64]]
"""Identities, fingerprints and subscriber ids of some rows, in the order of the identities."""


def fill_ledger(url: str, account: str, path: Path, first_id: int) -> float:
    """Create the ledger at `url` with a confirmed entry for each row of the file. Return the duration in seconds.

    The subscriber of the n-th row (from 1) has the id `first_id` + n - 1.
    """
    started_at = time.perf_counter()
    with open_ledger(url) as ledger:
        with ledger.transaction() as connection:
            base = find_or_add_base(connection, account, BASE_ID, f"Base {BASE_ID}")
            run_key = start_run(connection, "large", "import", "import", time.time(), account=account)
        write = _insert_blocks if ledger.is_file else _copy_blocks
        write(ledger, _read_blocks(path, first_id), (base.key, run_key))
        with ledger.transaction() as connection:
            finish_run(connection, run_key, "ok", time.time())
        if not ledger.is_file:
            ledger.connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE entry")
    return time.perf_counter() - started_at


def _read_blocks(path: Path, first_id: int) -> Iterator[Block]:
    with open_file(path) as source:
        mapping, today = guess_mapping(source.columns), datetime.now(UTC).date()
        for prepared_chunk in prepare_chunks(source, mapping, ValidationRules(), today=today, limit=None):
            planned_chunk = prepared_chunk.planned
            order = np.argsort(planned_chunk.identities)
            ids = prepared_chunk.chunk.numbers[planned_chunk.subscribers.index.to_numpy()] + first_id - 1
            yield planned_chunk.identities[order], planned_chunk.fingerprints[order], ids[order]


def _insert_blocks(ledger: Ledger, blocks: Iterator[Block], keys: tuple[int, int]) -> None:
    (base_key, run_key), connection, row_count = keys, ledger.connection, 0
    connection.exec_driver_sql(f"PRAGMA cache_size = -{_CACHE_KB}")
    connection.commit()
    values_sql = f"{base_key}, ?, {', '.join(map(str, _FIXED_VALUES))}, ?, ?, 1, {run_key}"
    insert_sql = f"INSERT INTO entry ({_COLUMNS}) VALUES ({values_sql})"
    while row_count == 0 or row_count >= _ROWS_PER_COMMIT:
        row_count = 0
        with ledger.transaction():
            driver = connection.connection.driver_connection
            assert driver is not None
            for identities, fingerprints, ids in blocks:
                rows = zip(split_digests(identities), ids.tolist(), split_digests(fingerprints), strict=True)
                driver.executemany(insert_sql, rows)
                row_count += len(ids)
                if row_count >= _ROWS_PER_COMMIT:
                    break


def _copy_blocks(ledger: Ledger, blocks: Iterator[Block], keys: tuple[int, int]) -> None:
    with ledger.transaction() as connection:
        connection.exec_driver_sql(
            "SET LOCAL session_replication_role = replica"
        )  # switches off the check of foreign keys
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor, cursor.copy(_COPY_SQL) as copy_stream:
            copy_stream.write(_COPY_HEAD)
            for block in blocks:
                copy_stream.write(_encode(block, *keys))
            copy_stream.write(_COPY_END)


def _encode(block: Block, base_key: int, run_key: int) -> bytes:
    """Return the rows in the binary format of PostgreSQL's COPY: each value after its length."""
    identities, fingerprints, ids = block
    layout: list[tuple[str, str]] = [("count", ">i2")]
    for name, numpy_type in _COPY_TYPES.items():
        layout += [(f"{name}_bytes", ">i4"), (name, numpy_type)]
    rows = np.zeros(len(ids), dtype=layout)
    rows["count"] = len(_COPY_TYPES)
    values = (base_key, identities, *_FIXED_VALUES, ids, fingerprints, 1, run_key)
    for (name, numpy_type), value in zip(_COPY_TYPES.items(), values, strict=True):
        rows[f"{name}_bytes"] = np.dtype(numpy_type).itemsize
        rows[name] = value
    return rows.tobytes()


def main() -> None:
    """Fill a ledger in this process, so that its memory does not count as the memory of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("url", "account", "path"):
        parser.add_argument(name)
    parser.add_argument("first_id", type=int)
    options = parser.parse_args()
    print(json.dumps(fill_ledger(options.url, options.account, Path(options.path), options.first_id)))


if __name__ == "__main__":
    main()
