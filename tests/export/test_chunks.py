"""The list chunk by chunk, as DataFrames and as Arrow: the same rows as at once, certified first, and nothing left."""

import asyncio
import gc
import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from connector import IncompleteList, read_batches, read_subscribers
from connector.errors import ConfigurationError
from connector.library import KeptSweep
from connector.sandbox import SandboxProcess
from connector.warehouse import SCHEMA
from tests.export.exports import create
from tests.export.people import MIXED, table_of
from tests.export.test_exporter import PEOPLE

_HANDLES = Path("/proc/self/fd")
RUNS_OWN = ["_run_id", "_exported_at"]


def options(sandbox: SandboxProcess, **more: Any) -> dict[str, Any]:
    return {"base_url": sandbox.base_url, "token": sandbox.token} | more


def collect_frames(sandbox: SandboxProcess, **more: Any) -> list[pd.DataFrame]:
    return list(read_subscribers(**options(sandbox, **{"chunksize": 50_000} | more)))


def open_files() -> set[str]:
    """What this process has open, by where its handles lead: a file without a name leads nowhere, but is there."""
    gc.collect()
    found = set()
    for each in _HANDLES.iterdir() if _HANDLES.is_dir() else ():
        with suppress(FileNotFoundError):  # the handle by which they are listed
            found.add(f"{each.name} {each.readlink()}")
    return found


@pytest.mark.parametrize("order", ["id", "email"])
def test_chunks_together_are_the_whole(sandbox: SandboxProcess, order: str) -> None:
    create(sandbox, *PEOPLE)
    sandbox.seed(2500, base_name="News")
    sandbox.switch(order=order)
    whole = read_subscribers(**options(sandbox)).drop(columns=RUNS_OWN)

    frames = collect_frames(sandbox, chunksize=1000)

    assert [len(frame) for frame in frames] == [1000, 1000, 503]
    assert all(frame.index.tolist() == list(range(len(frame))) for frame in frames)
    together = pd.concat(frames, ignore_index=True).drop(columns=RUNS_OWN)
    pd.testing.assert_frame_equal(together, whole, check_flags=False)
    assert {frame.attrs["certificate"]["verdict"] for frame in frames} == {"complete"}
    assert pd.concat(frames)["_run_id"].nunique() == 1


def test_batches_together_are_the_whole(sandbox: SandboxProcess) -> None:
    create(sandbox, *PEOPLE)
    sandbox.seed(2500, base_name="News")

    reader = read_batches(**options(sandbox, chunksize=1000))

    certificate = json.loads(reader.schema.metadata[b"certificate"])
    assert (certificate["verdict"], certificate["distinct"]) == ("complete", 2503)
    assert reader.schema.equals(SCHEMA)
    batches = list(reader)
    assert [len(batch) for batch in batches] == [1000, 1000, 503]
    whole = pa.Table.from_pandas(read_subscribers(**options(sandbox)), schema=SCHEMA, preserve_index=False)
    assert pa.Table.from_batches(batches).drop_columns(RUNS_OWN).equals(whole.drop_columns(RUNS_OWN))


def test_batches_are_read_by_others(sandbox: SandboxProcess) -> None:
    sandbox.seed(1500, base_name="News")
    with duckdb.connect() as connection:
        connection.register("listed", read_batches(**options(sandbox, chunksize=400)))

        assert connection.sql("select count(distinct id) from listed").fetchall() == [(1500,)]


def test_both_work_where_a_loop_runs_already(sandbox: SandboxProcess) -> None:
    sandbox.seed(10, base_name="News")

    async def notebook() -> int:
        rows = sum(len(batch) for batch in read_batches(**options(sandbox)))
        return rows + sum(map(len, read_subscribers(**options(sandbox, chunksize=3))))

    assert asyncio.run(notebook()) == 20


def test_an_empty_list_has_its_columns_and_its_certificate(sandbox: SandboxProcess) -> None:
    (frame,) = collect_frames(sandbox)
    reader = read_batches(**options(sandbox))

    assert (list(frame.columns), len(frame)) == (SCHEMA.names, 0)
    assert frame.attrs["certificate"]["verdict"] == "complete"
    assert b"complete" in reader.schema.metadata[b"certificate"]
    assert list(reader) == []


def test_an_incomplete_list_gives_nothing_unless_allowed(sandbox: SandboxProcess) -> None:
    sandbox.seed(1500, base_name="News")
    sandbox.switch(order="shuffled", filters="ignored")
    before = open_files()

    with pytest.raises(IncompleteList):
        collect_frames(sandbox)
    with pytest.raises(IncompleteList) as refusal:
        read_batches(**options(sandbox))
    del refusal
    assert open_files() == before

    frames = collect_frames(sandbox, allow_incomplete=True)
    assert frames[0].attrs["certificate"]["verdict"] == "incomplete"
    assert b'"incomplete"' in read_batches(**options(sandbox, allow_incomplete=True)).schema.metadata[b"certificate"]


@pytest.mark.skipif(not _HANDLES.is_dir(), reason="open files are counted by /proc")
def test_who_stops_early_leaves_no_file_no_connection_and_no_thread(sandbox: SandboxProcess) -> None:
    sandbox.seed(3000, base_name="News")
    before, threads = open_files(), threading.active_count()

    async def notebook() -> set[str]:
        at_start = open_files()
        frames = read_subscribers(**options(sandbox, chunksize=1000))
        for _ in frames:
            assert len(open_files() - at_start) == 1  # the sweep's file, and no connection any more
            break
        frames.close()
        reader = read_batches(**options(sandbox, chunksize=1000))
        assert len(reader.read_next_batch()) == 1000
        del reader
        return open_files() - at_start

    assert asyncio.run(notebook()) == set()
    assert open_files() == before
    assert threading.active_count() == threads


@pytest.mark.parametrize("chunksize", [0, -1])
def test_a_chunk_of_nobody_is_refused(sandbox: SandboxProcess, chunksize: int) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        collect_frames(sandbox, chunksize=chunksize)
    with pytest.raises(ConfigurationError, match="at least 1"):
        read_batches(**options(sandbox, chunksize=chunksize))


def test_a_sweep_that_begins_anew_takes_back_what_was_kept() -> None:
    page = MIXED.drop_columns(RUNS_OWN).combine_chunks().to_batches()[0]
    last = table_of({"Id": 9}).drop_columns(RUNS_OWN).combine_chunks().to_batches()[0]
    kept = KeptSweep()
    kept.start_sweep(1)
    for _ in range(6000):
        kept.take(page)
    kept.start_sweep(2)
    kept.take(last)

    assert [table["id"].to_pylist() for table in kept.read(1000)] == [[9]]
