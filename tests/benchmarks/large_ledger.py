"""A ledger of millions of entries, made in minutes: as a load leaves them, and written in bulk.

The tables, the base and the run are made by the connector's own code, and the digests are those that an import of the
file computes, in the order in which an import writes them. Only the entries go in by one COPY, or one `executemany`.
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
from connector.ledger.schema import HOW, IDENTITY_FIELDS
from connector.sources.files import open_file
from connector.states import State
from connector.subscribers.headers import guess_mapping
from connector.subscribers.identity import split_digests
from connector.subscribers.preparation import prepare_chunks
from connector.subscribers.rules import ValidationRules
from tests.benchmarks.people import BASE_ID

_FIXED = (IDENTITY_FIELDS["email"], int(State.CONFIRMED), HOW["created"])
_COLUMNS = "base_key, identity, identity_field, state, how, subscriber_id, fingerprint, attempts, run_key"
_COPY = f"COPY entry ({_COLUMNS}) FROM STDIN (FORMAT BINARY)"
_COPY_HEAD, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_COPIED = {"base_key": ">i4", "identity": "S16", "identity_field": ">i2", "state": ">i2", "how": ">i2"}
_COPIED |= {"subscriber_id": ">i8", "fingerprint": "S8", "attempts": ">i2", "run_key": ">i4"}
_CACHE_KB = 2_000_000  # of SQLite, while it is filled: pages are written once
_ROWS_A_COMMIT = 2_000_000

Block = tuple[npt.NDArray[np.bytes_], npt.NDArray[np.bytes_], npt.NDArray[np.int64]]
"""Identities, fingerprints and subscriber ids of some rows, in the order of the identities."""


def fill_ledger(url: str, account: str, path: Path, first_id: int) -> float:
    """Make the ledger at `url`, with a confirmed entry for each row of the file; return the seconds that it took.

    The subscriber of the n-th row (from 1) has the id `first_id` + n - 1.
    """
    began = time.perf_counter()
    with open_ledger(url) as ledger:
        with ledger.transaction() as connection:
            base = find_or_add_base(connection, account, BASE_ID, f"Base {BASE_ID}")
            run_key = start_run(connection, "large", "import", "import", time.time(), account=account)
        write = _write_file if ledger.is_file else _copy
        write(ledger, _read_blocks(path, first_id), (base.key, run_key))
        with ledger.transaction() as connection:
            finish_run(connection, run_key, "ok", time.time())
        if not ledger.is_file:
            ledger.connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE entry")
    return time.perf_counter() - began


def _read_blocks(path: Path, first_id: int) -> Iterator[Block]:
    with open_file(path) as source:
        mapping, today = guess_mapping(source.columns), datetime.now(UTC).date()
        for prepared in prepare_chunks(source, mapping, ValidationRules(), today=today, limit=None):
            planned = prepared.planned
            order = np.argsort(planned.identities)
            ids = prepared.chunk.numbers[planned.subscribers.index.to_numpy()] + first_id - 1
            yield planned.identities[order], planned.fingerprints[order], ids[order]


def _write_file(ledger: Ledger, blocks: Iterator[Block], keys: tuple[int, int]) -> None:
    (base_key, run_key), connection, number = keys, ledger.connection, 0
    connection.exec_driver_sql(f"PRAGMA cache_size = -{_CACHE_KB}")
    connection.commit()
    fixed = f"{base_key}, ?, {', '.join(map(str, _FIXED))}, ?, ?, 1, {run_key}"
    insert = f"INSERT INTO entry ({_COLUMNS}) VALUES ({fixed})"
    while number == 0 or number >= _ROWS_A_COMMIT:
        number = 0
        with ledger.transaction():
            driver = connection.connection.driver_connection
            assert driver is not None
            for identities, fingerprints, ids in blocks:
                rows = zip(split_digests(identities), ids.tolist(), split_digests(fingerprints), strict=True)
                driver.executemany(insert, rows)
                number += len(ids)
                if number >= _ROWS_A_COMMIT:
                    break


def _copy(ledger: Ledger, blocks: Iterator[Block], keys: tuple[int, int]) -> None:
    with ledger.transaction() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")  # no check of each row's keys
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.write(_COPY_HEAD)
            for block in blocks:
                copy.write(_encode(block, *keys))
            copy.write(_COPY_END)


def _encode(block: Block, base_key: int, run_key: int) -> bytes:
    """The rows as PostgreSQL's COPY wants them in binary: each value after its length."""
    identities, fingerprints, ids = block
    layout: list[tuple[str, str]] = [("count", ">i2")]
    for name, kind in _COPIED.items():
        layout += [(f"{name}_bytes", ">i4"), (name, kind)]
    rows = np.zeros(len(ids), dtype=layout)
    rows["count"] = len(_COPIED)
    values = (base_key, identities, *_FIXED, ids, fingerprints, 1, run_key)
    for (name, kind), value in zip(_COPIED.items(), values, strict=True):
        rows[f"{name}_bytes"] = np.dtype(kind).itemsize
        rows[name] = value
    return rows.tobytes()


def main() -> None:
    """Fill in a process of its own, so that what it takes does not count as another's."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("url", "account", "path"):
        parser.add_argument(name)
    parser.add_argument("first_id", type=int)
    options = parser.parse_args()
    print(json.dumps(fill_ledger(options.url, options.account, Path(options.path), options.first_id)))


if __name__ == "__main__":
    main()
