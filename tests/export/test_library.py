"""`read_subscribers` and `read_batches` in a script or a notebook: at once, in chunks, and with errors."""

import asyncio
import gc
import io
import json
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from connector import IncompleteList, read_batches, read_subscribers
from connector.errors import ConfigurationError
from connector.listing.pages import ListFailed
from connector.sandbox import SandboxProcess
from connector.warehouse.columns import SCHEMA
from tests.export.exports import create
from tests.export.test_exporter import PEOPLE
from tests.sandbox.calls import wait_until

ROOT = Path(__file__).parents[2]


def read(sandbox: SandboxProcess, **options: Any) -> pd.DataFrame:
    frame: pd.DataFrame = read_subscribers(base_url=sandbox.base_url, token=sandbox.token, **options)
    return frame


def test_an_error_in_a_running_loop_is_raised_in_the_loop(sandbox: SandboxProcess) -> None:
    async def notebook() -> None:
        read_subscribers(base_url=sandbox.base_url, token="another")

    with pytest.raises(ListFailed, match="Check the token"):
        asyncio.run(notebook())


NOTEBOOK = """
import asyncio, signal, threading
from connector import {name}

async def notebook():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a notebook, whose loop has no hand in it
    try:
        {name}(base_url={base_url!r}, token={token!r})
    except KeyboardInterrupt:
        print("interrupted", *(thread.name for thread in threading.enumerate()))

asyncio.run(notebook())
"""


@pytest.mark.parametrize("name", ["read_subscribers", "read_batches"])
def test_an_interrupt_in_a_notebook_ends_the_reading(sandbox: SandboxProcess, name: str) -> None:
    sandbox.seed(20_000, base_name="News")
    sandbox.switch(latency_ms=300)
    code = NOTEBOOK.format(name=name, base_url=sandbox.base_url, token=sandbox.token)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: sandbox.stats()["requests"].get("list", {}).get("received", 0) >= 2)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (0, "interrupted MainThread\n")


def test_only_a_dataframe_imports_pandas() -> None:
    """It is a good part of the start of an export, which needs none of it."""
    code = "import sys, connector; assert not {'pandas', 'pandera'} & set(sys.modules), 'imported'; "
    code += "connector.read_batches; assert not {'pandas', 'pandera'} & set(sys.modules); connector.nobody"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert ended.stderr.splitlines()[-1].startswith("AttributeError: ")
    assert "nobody" in ended.stderr.splitlines()[-1]


def test_a_frame_can_be_written_and_searched_for_duplicates(sandbox: SandboxProcess) -> None:
    create(
        sandbox,
        {"base_id": 7, "email": "ann@example.com", "tags": ["a", "b"], "birthday": "1990-02-28"},
        {"base_id": 7, "email": "bo@example.com"},
    )
    frame = read(sandbox)

    assert len(frame.drop_duplicates()) == len(pd.concat([frame, frame]).drop_duplicates()) == 2
    (ann, bo) = json.loads(frame.to_json(orient="records", date_format="iso"))
    assert (ann["tags"], ann["birthday"][:10], bo["birthday"]) == (["a", "b"], "1990-02-28", None)
    frame.to_excel(io.BytesIO(), engine="xlsxwriter")


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
    for handle in _HANDLES.iterdir() if _HANDLES.is_dir() else ():
        with suppress(FileNotFoundError):  # the handle by which they are listed
            found.add(f"{handle.name} {handle.readlink()}")
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


def test_all_work_where_a_loop_runs_already(sandbox: SandboxProcess) -> None:
    sandbox.seed(10, base_name="News")

    async def notebook() -> int:
        rows = sum(len(batch) for batch in read_batches(**options(sandbox)))
        rows += len(read_subscribers(**options(sandbox)))
        return rows + sum(map(len, read_subscribers(**options(sandbox, chunksize=3))))

    assert asyncio.run(notebook()) == 30


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
def test_a_reading_that_stops_early_leaves_no_file_no_connection_and_no_thread(sandbox: SandboxProcess) -> None:
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
def test_a_chunk_size_of_zero_is_refused(sandbox: SandboxProcess, chunksize: int) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        collect_frames(sandbox, chunksize=chunksize)
    with pytest.raises(ConfigurationError, match="at least 1"):
        read_batches(**options(sandbox, chunksize=chunksize))
