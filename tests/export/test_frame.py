"""`read_subscribers`: from a script, from a notebook, and its ways to fail."""

import asyncio
import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from connector import IncompleteList, read_subscribers
from connector.errors import ConfigurationError
from connector.listing import ListFailed
from connector.sandbox import SandboxProcess
from tests.export.exports import create
from tests.sandbox.calls import wait_until

ROOT = Path(__file__).parents[2]


def read(sandbox: SandboxProcess, **options: Any) -> pd.DataFrame:
    frame: pd.DataFrame = read_subscribers(base_url=sandbox.base_url, token=sandbox.token, **options)
    return frame


def test_it_works_where_a_loop_runs_already(sandbox: SandboxProcess) -> None:
    create(sandbox, {"base_id": 7, "email": "ann@example.com"})

    async def notebook() -> pd.DataFrame:
        return read(sandbox)

    assert asyncio.run(notebook())["email"].tolist() == ["ann@example.com"]


def test_what_fails_in_a_running_loop_is_raised_there(sandbox: SandboxProcess) -> None:
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
        print("interrupted", *(each.name for each in threading.enumerate()))

asyncio.run(notebook())
"""


@pytest.mark.parametrize("name", ["read_subscribers", "read_batches"])
def test_who_interrupts_a_notebook_ends_the_reading(sandbox: SandboxProcess, name: str) -> None:
    sandbox.seed(20_000, base_name="News")
    sandbox.switch(latency_ms=300)
    code = NOTEBOOK.format(name=name, base_url=sandbox.base_url, token=sandbox.token)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: sandbox.stats()["requests"].get("list", {}).get("received", 0) >= 2)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (0, "interrupted MainThread\n")


def test_filters_are_those_of_the_list(sandbox: SandboxProcess) -> None:
    create(sandbox, {"base_id": 7, "email": "ann@example.com"}, {"base_id": 8, "email": "bo@example.com"})

    assert read(sandbox, base_id=8)["email"].tolist() == ["bo@example.com"]
    assert read(sandbox, email="ann@example.com")["base_id"].tolist() == [7]
    with pytest.raises(ConfigurationError, match=r"first_name, last_name, gender; not by all of base"):
        read(sandbox, base=8)


def test_a_filter_may_be_a_scalar_of_numpy(sandbox: SandboxProcess) -> None:
    ann = {"base_id": 7, "email": "ann@example.com", "is_active": True}
    create(sandbox, ann, {"base_id": 8, "email": "bo@example.com", "is_active": False})
    number = read(sandbox, base_id=7)["id"].to_numpy()[0]

    for asked in ({"id": np.int64(number)}, {"base_id": np.int64(7)}, {"is_active": np.bool_(True)}):
        frame = read(sandbox, **asked)
        assert frame["email"].tolist() == ["ann@example.com"], asked
        assert frame.attrs["certificate"]["verdict"] == "complete"


@pytest.mark.parametrize("wrong", [{"base_id": "7"}, {"base_id": True}, {"id": 1.0}, {"is_active": 1}, {"email": " "}])
def test_a_filter_of_another_type_is_refused_before_anything_is_asked(
    sandbox: SandboxProcess, wrong: dict[str, object]
) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        read(sandbox, **wrong)
    assert "list" not in sandbox.stats()["requests"]


def test_the_certificate_comes_with_the_frame(sandbox: SandboxProcess) -> None:
    assert read(sandbox).attrs["certificate"]["verdict"] == "complete"


def test_an_incomplete_list_is_an_error_unless_allowed(sandbox: SandboxProcess) -> None:
    sandbox.seed(1500, base_name="News")
    sandbox.switch(order="shuffled", filters="ignored")

    with pytest.raises(IncompleteList) as refusal:
        read(sandbox)
    assert not refusal.value.certificate.is_complete

    frame = read(sandbox, allow_incomplete=True)
    assert frame["id"].is_unique
    assert frame.attrs["certificate"]["verdict"] == "incomplete"


def test_plain_http_to_another_machine_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        read_subscribers(base_url="http://example.com", token="t0ken")


def test_pandas_is_imported_only_by_who_asks_for_a_dataframe() -> None:
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
