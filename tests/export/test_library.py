"""`read_subscribers` and `read_batches` in a script or a notebook: whole lists, chunks, and errors."""

import asyncio
import gc
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
from tests.export.exports import create_people
from tests.export.test_exporter import PEOPLE
from tests.sandbox.client import wait_until

ROOT = Path(__file__).parents[2]


def test_an_error_under_a_running_event_loop_reaches_the_caller(sandbox: SandboxProcess) -> None:
    async def run_notebook() -> None:
        read_subscribers(base_url=sandbox.base_url, token="another")

    with pytest.raises(ListFailed, match="Check the token"):
        asyncio.run(run_notebook())


NOTEBOOK_SCRIPT = """
import asyncio, signal, threading
from connector import {name}

async def notebook():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a notebook: asyncio does not handle SIGINT
    try:
        {name}(base_url={base_url!r}, token={token!r})
    except KeyboardInterrupt:
        print("interrupted", *(thread.name for thread in threading.enumerate()))

asyncio.run(notebook())
"""


@pytest.mark.parametrize("name", ["read_subscribers", "read_batches"])
def test_an_interrupt_in_a_notebook_ends_the_read(sandbox: SandboxProcess, name: str) -> None:
    sandbox.seed(20_000, base_name="News")
    sandbox.switch(latency_ms=300)
    script = NOTEBOOK_SCRIPT.format(name=name, base_url=sandbox.base_url, token=sandbox.token)
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: sandbox.stats()["requests"].get("list", {}).get("received", 0) >= 2)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (0, "interrupted MainThread\n")


_FILE_DESCRIPTORS = Path("/proc/self/fd")
RUN_COLUMNS = ["_run_id", "_exported_at"]


def build_options(sandbox: SandboxProcess, **further_options: Any) -> dict[str, Any]:
    return {"base_url": sandbox.base_url, "token": sandbox.token} | further_options


def collect_frames(sandbox: SandboxProcess, **further_options: Any) -> list[pd.DataFrame]:
    return list(read_subscribers(**build_options(sandbox, **{"chunksize": 50_000} | further_options)))


def list_open_files() -> set[str]:
    """Return the number and the target of each open file descriptor of this process."""
    gc.collect()
    descriptors = set()
    for descriptor in _FILE_DESCRIPTORS.iterdir() if _FILE_DESCRIPTORS.is_dir() else ():
        with suppress(FileNotFoundError):  # the descriptor of this `iterdir` is closed already
            descriptors.add(f"{descriptor.name} {descriptor.readlink()}")
    return descriptors


@pytest.mark.parametrize("order", ["id", "email"])
def test_the_chunks_together_have_every_row_of_the_list(sandbox: SandboxProcess, order: str) -> None:
    create_people(sandbox, *PEOPLE)
    sandbox.seed(2500, base_name="News")
    sandbox.switch(order=order)
    whole_list = read_subscribers(**build_options(sandbox)).drop(columns=RUN_COLUMNS)
    frames = collect_frames(sandbox, chunksize=1000)
    assert [len(frame) for frame in frames] == [1000, 1000, 503]
    assert all(frame.index.tolist() == list(range(len(frame))) for frame in frames)
    joined_chunks = pd.concat(frames, ignore_index=True).drop(columns=RUN_COLUMNS)
    pd.testing.assert_frame_equal(joined_chunks, whole_list, check_flags=False)
    assert {frame.attrs["certificate"]["verdict"] for frame in frames} == {"complete"}
    assert pd.concat(frames)["_run_id"].nunique() == 1


def test_the_batches_together_have_every_row_of_the_list(sandbox: SandboxProcess) -> None:
    create_people(sandbox, *PEOPLE)
    sandbox.seed(2500, base_name="News")
    reader = read_batches(**build_options(sandbox, chunksize=1000))
    certificate = json.loads(reader.schema.metadata[b"certificate"])
    assert (certificate["verdict"], certificate["distinct"]) == ("complete", 2503)
    assert reader.schema.equals(SCHEMA)
    batches = list(reader)
    assert [len(batch) for batch in batches] == [1000, 1000, 503]
    whole_list = pa.Table.from_pandas(read_subscribers(**build_options(sandbox)), schema=SCHEMA, preserve_index=False)
    assert pa.Table.from_batches(batches).drop_columns(RUN_COLUMNS).equals(whole_list.drop_columns(RUN_COLUMNS))


def test_an_empty_list_has_its_columns_and_its_certificate(sandbox: SandboxProcess) -> None:
    (frame,) = collect_frames(sandbox)
    reader = read_batches(**build_options(sandbox))
    assert (list(frame.columns), len(frame)) == (SCHEMA.names, 0)
    assert frame.attrs["certificate"]["verdict"] == "complete"
    assert b"complete" in reader.schema.metadata[b"certificate"]
    assert list(reader) == []


def test_an_incomplete_list_is_returned_only_if_allowed(sandbox: SandboxProcess) -> None:
    sandbox.seed(1500, base_name="News")
    sandbox.switch(order="shuffled", filters="ignored")
    files_before = list_open_files()
    with pytest.raises(IncompleteList):
        collect_frames(sandbox)
    with pytest.raises(IncompleteList) as error_info:
        read_batches(**build_options(sandbox))
    del error_info
    assert list_open_files() == files_before
    frames = collect_frames(sandbox, allow_incomplete=True)
    assert frames[0].attrs["certificate"]["verdict"] == "incomplete"
    assert (
        b'"incomplete"' in read_batches(**build_options(sandbox, allow_incomplete=True)).schema.metadata[b"certificate"]
    )


@pytest.mark.skipif(not _FILE_DESCRIPTORS.is_dir(), reason="needs /proc to list open files")
def test_files_connections_and_threads_are_closed_if_a_list_is_read_only_in_part(sandbox: SandboxProcess) -> None:
    sandbox.seed(3000, base_name="News")
    files_before, thread_count_before = list_open_files(), threading.active_count()

    async def run_notebook() -> set[str]:
        files_at_start = list_open_files()
        frames = read_subscribers(**build_options(sandbox, chunksize=1000))
        for _ in frames:
            # The temporary file with the rows is open. The connection is closed already.
            assert len(list_open_files() - files_at_start) == 1
            break
        frames.close()
        reader = read_batches(**build_options(sandbox, chunksize=1000))
        assert len(reader.read_next_batch()) == 1000
        del reader
        return list_open_files() - files_at_start

    assert asyncio.run(run_notebook()) == set()
    assert list_open_files() == files_before
    assert threading.active_count() == thread_count_before


@pytest.mark.parametrize("chunksize", [0, -1])
def test_a_chunk_size_below_one_is_refused(sandbox: SandboxProcess, chunksize: int) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        collect_frames(sandbox, chunksize=chunksize)
    with pytest.raises(ConfigurationError, match="at least 1"):
        read_batches(**build_options(sandbox, chunksize=chunksize))


def test_the_argument_columns_must_be_a_list(sandbox: SandboxProcess) -> None:
    with pytest.raises(ConfigurationError, match=r"`columns` must be a list of fields: write \['email'\]"):
        read_subscribers(**build_options(sandbox, columns="email"))
