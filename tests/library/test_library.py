"""The library: its examples run, and its reports are equal to the reports of the commands."""

import asyncio
import doctest
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import connector as connector_library
from connector import (
    ConfigurationError,
    Connector as Library,
    ConnectorError,
    LockedError,
    Report,
    RunAborted,
    SourceError,
    read_subscribers,
)
from connector.sandbox import SandboxProcess
from tests.export.exports import create_people
from tests.pipelines.conftest import ROOT, Connector, count_creates_by_email, wait_for, write_csv

PUBLIC_FUNCTIONS = {
    name: value for name in connector_library.__all__ if inspect.isfunction(value := getattr(connector_library, name))
} | {f"Connector.{name}": value for name, value in vars(Library).items() if not name.startswith("_")}
SCRIPT_PATH = Path(__file__).parent / "user_script.py"
JOB_TEXT_BY_COMMAND = {
    "sync": "job: crm\nsource: {file: {path: signups.csv}}\nsubscriber:\n  base: {id: 7}\n"
    "  fields: {email: email, is_active: {value: true}}\n",
    "export": "job: out\nexport: {to: out.parquet}\n",
    "mail": "job: hello\nsource: {file: {path: signups.csv}}\nmail: {campaign: hello, to: {email: email}, "
    "from: hello@example.com, subject: Hello, text: {content: Hello}}\n",
}


@pytest.fixture
def folder(sandbox: SandboxProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files and jobs. The environment has the settings, and the base 7 has two subscribers."""
    monkeypatch.chdir(tmp_path)
    for name, value in Connector(sandbox, tmp_path).environ.items():
        monkeypatch.setenv(name, value)
    prepare_folder(sandbox, tmp_path)
    return tmp_path


def prepare_folder(sandbox: SandboxProcess, folder: Path) -> None:
    people = [{"base_id": 7, "email": f"{name}@example.com", "is_active": True} for name in ("ann", "bob")]
    create_people(sandbox, people[0] | {"first_name": "Ann"}, people[1])
    write_csv(folder / "signups.csv", "email", "ann@example.com", "emil@example.com", "no address")
    for name, text in JOB_TEXT_BY_COMMAND.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    (folder / "crm.yaml").write_text(JOB_TEXT_BY_COMMAND["sync"], encoding="utf-8")


@pytest.mark.parametrize("name", PUBLIC_FUNCTIONS)
def test_each_function_has_an_example_that_runs_as_printed(name: str, folder: Path) -> None:
    doctests = [test for test in doctest.DocTestFinder().find(PUBLIC_FUNCTIONS[name], name) if test.examples]
    output = list[str]()
    results = [doctest.DocTestRunner().run(test, out=output.append) for test in doctests]
    assert sum(result.attempted for result in results) >= 3, f"{name} has no example"
    assert not any(result.failed for result in results), "".join(output)


def test_the_user_script_runs_without_a_warning(folder: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT_PATH)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["[2, 2, 1, 1, 3, 3, 1, 1]", "5 True", "401"]


COMMAND_AND_LIBRARY_CALL_BY_NAME: dict[str, tuple[list[str], Callable[[], Report]]] = {
    "import": (
        ["import", "signups.csv", "--base-id", "7", "--active", "--quiet-period", "1s", "--max-rate", "50"],
        lambda: Library().import_file("signups.csv", base_id=7, active=True, quiet_period_s=1, max_rate=50),
    ),
    "plan": (
        ["plan", "signups.csv", "--base-name", "News", "--active", "--limit", "2"],
        lambda: Library().plan("signups.csv", base_name="News", active=True, limit=2),
    ),
    "sync": (["sync", "sync.yaml"], lambda: Library().sync("sync.yaml")),
    "export": (["export", "export.yaml"], lambda: Library().export("export.yaml")),
    "mail": (["mail", "mail.yaml"], lambda: Library().mail("mail.yaml")),
    "send": (
        ["send", "--to", "ann@example.com", "--from", "hello@example.com", "--subject", "Hello", "--text", "text.txt"],
        lambda: Library().send(to="ann@example.com", sender="hello@example.com", subject="Hello", text="Hello"),
    ),
}
CHANGING_KEYS = {"started_at", "finished_at", "message_id"}


def normalize_report(report: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the report without times and with fixed names for the run and the folder."""
    text = json.dumps(report).replace(report["run_id"], "RUN").replace(str(folder), "FOLDER")

    def drop_changing_keys(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: drop_changing_keys(item) for key, item in value.items() if key not in CHANGING_KEYS}
        return [drop_changing_keys(item) for item in value] if isinstance(value, list) else value

    return dict(drop_changing_keys(json.loads(text)))


@pytest.mark.parametrize("call_name", COMMAND_AND_LIBRARY_CALL_BY_NAME)
def test_the_report_is_equal_to_the_report_of_the_command(
    call_name: str, folder: Path, sandbox: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, call_library = COMMAND_AND_LIBRARY_CALL_BY_NAME[call_name]
    command_folder = folder / "command"
    command_folder.mkdir()
    (command_folder / "text.txt").write_text("Hello", encoding="utf-8")
    prepare_folder(sandbox, command_folder)
    sandbox.reset()
    prepare_folder(sandbox, command_folder)
    command_result = Connector(sandbox, command_folder).run_json(*arguments)

    sandbox.reset()
    prepare_folder(sandbox, folder)
    monkeypatch.setenv("CONNECTOR_STATE_DIR", str(folder / "state"))
    report = call_library()

    assert report.exit_code == command_result.exit_code
    assert normalize_report(report.as_json(), folder) == normalize_report(command_result.report, command_folder)


def build_mixed_frame() -> pd.DataFrame:
    """Build a frame with missing values of each kind, numbers among texts, dates, lists and a category."""
    return pd.DataFrame(
        {
            "email": ["a@example.com", "b@example.com", None, 7],
            "first_name": pd.Categorical(["Ann", None, "Cleo", "Dora"]),
            "address_zip": [1234.0, np.nan, 5.0, 6.0],
            "birthday": np.array(["1990-05-01", "NaT", "2000-01-02", "NaT"], dtype="datetime64[s]"),
            "tags": [["x", "y"], (), None, pd.NA],
            "is_active": pd.array([True, False, True, True], dtype="boolean"),
        },
        index=[9, 9, 1, 2],
    )


def test_a_frame_is_read_like_the_same_rows_in_a_file(folder: Path) -> None:
    frame = build_mixed_frame()
    frame.to_json("mixed.jsonl", orient="records", lines=True, date_format="iso")
    arrow_table = pa.Table.from_pandas(frame.iloc[:3], preserve_index=False)
    reader = arrow_table.to_reader(max_chunksize=1)
    sources = {
        "frame": (frame, 4, 2),
        "table": (arrow_table, 3, 1),
        "reader": (reader, 3, 1),
        "batch": (arrow_table.to_batches()[0], 3, 1),
        "file": ("mixed.jsonl", 4, 2),
    }
    for base_id, (name, (source, read_count, invalid_count)) in enumerate(sources.items(), start=20):
        report = Library().import_file(source, base_id=base_id)
        expected_counts = {"read": read_count, "invalid": invalid_count, "created": 2}
        assert report.rows == dict.fromkeys(report.rows, 0) | expected_counts, name
        subscribers = read_subscribers(base_id=base_id)
        ann_row = subscribers.iloc[0]
        assert (ann_row["first_name"], ann_row["address_zip"], ann_row["tags"]) == ("Ann", "1234", ("x", "y")), name
        assert (ann_row["birthday"], subscribers["is_active"].tolist()) == (
            pd.Timestamp("1990-05-01"),
            [True, False],
        ), name
    second_report = Library().import_file(reader, base_id=30, active=True)  # the reader has no more rows
    assert (second_report.status, second_report.messages[0]) == (
        "aborted", "frame has a header and no rows: there is nothing to import",
    )  # fmt: skip


def test_cells_with_values_of_numpy_and_pandas_are_imported(folder: Path) -> None:
    frame = pd.DataFrame(
        {
            "email": [f"{name}@example.com" for name in ("one", "two", "six")],
            "tags": [np.array(["x", "y"]), [np.float32(0.1), 2.0], {"w"}],
            "birthday": pd.period_range("1990-05-01", periods=3, freq="D"),
        }
    )
    base_id: Any = np.int64(20)
    assert Library().import_file(frame, base_id=base_id, active=True).rows["created"] == 3
    subscribers = read_subscribers(base_id=20)
    assert subscribers["tags"].tolist() == [("x", "y"), ("0.1", "2"), ("w",)]
    assert subscribers["birthday"].dt.day.tolist() == [1, 2, 3]


def test_a_damaged_row_of_a_frame_with_decimal_numbers_is_rejected(folder: Path) -> None:
    frame = pd.DataFrame(
        {"email": ["a@example.com", "b@example.com"], "first_name": [b"\xff", "Bob"], "custom_field1": [1.5, 2.0]}
    )
    report = Library().import_file(frame, base_id=20, active=True)
    assert (report.status, report.rows["invalid"], report.rows["created"]) == ("partial", 1, 1)
    assert report.rejects_file is not None
    assert "1.5" in Path(report.rejects_file).read_text()


def test_a_rejects_file_corrected_in_pandas_is_imported(folder: Path) -> None:
    report = Library().import_file("signups.csv", base_id=7, active=True)
    assert report.rejects_file is not None
    rejected_rows = pd.read_csv(report.rejects_file)
    rejected_rows["email"] = "corrected@example.com"
    second_report = Library().import_file(rejected_rows, base_id=7, active=True)
    assert (second_report.status, second_report.rows["created"], second_report.unmapped_columns) == ("ok", 1, [])


INVALID_CALLS: list[tuple[Callable[[], object], dict[str, Any], str]] = [
    (lambda: "signups.csv", {"base_id": 7}, "no column fills is_active"),
    (lambda: "signups.csv", {"base_id": 7, "active": 1}, "`active` must be of the type bool"),
    (lambda: "signups.csv", {"active": True}, "either base_id or base_name"),
    (lambda: "signups.csv", {"base_id": 7, "base_name": "News"}, "either base_id or base_name"),
    (lambda: "signups.csv", {"base_id": "7"}, "`base_id` must be a whole number"),
    (lambda: "signups.csv", {"base_name": 7}, "`base_name` must be of the type str"),
    (lambda: "signups.csv", {"base_id": 7, "mapping": "email"}, "`mapping` must be of the type Mapping"),
    (
        lambda: "signups.csv",
        {"base_id": 7, "ignore": "Notes"},
        r"`ignore` must be a list of columns: write \['Notes'\]",
    ),
    (lambda: "signups.csv", {"base_id": 7, "identity": "phone"}, "identity: must be `email` or `client_user_id`"),
    (lambda: "signups.csv", {"base_id": 7, "limit": 0}, "`limit` must be a whole number from 1"),
    (lambda: "signups.csv", {"base_id": 7, "wait_s": -1}, "`wait_s` must be 0 seconds or more"),
    (lambda: "signups.csv", {"base_id": 7, "time_limit_s": 0}, "time_limit_s must be more than 0"),
    (lambda: "signups.csv", {"base_id": 7, "quiet_period_s": -1}, "quiet_period_s: must be greater than or equal to 0"),
    (lambda: "signups.csv", {"base_id": 7, "on_unknown": "drop"}, "on_unknown: must be `resend` or `hold`"),
    (lambda: "signups.csv", {"base_id": 7, "delimiter": ";;"}, "delimiter: must be `auto`"),
    (lambda: "signups.csv", {"base_id": 7, "mapping": {"emial": "email"}}, "did you mean email"),
    (lambda: "signups.csv", {"base_id": 7, "active": True, "token": "another"}, "[Cc]heck the token"),
    (lambda: "signups.csv", {"base_id": 7, "base_url": "http://example.com"}, "https"),
    (lambda: "missing.csv", {"base_id": 7}, "no such file"),
    (lambda: pd.DataFrame({"email": []}), {"base_id": 7, "sheet": "one"}, "are for a file"),
    (lambda: [1, 2], {"base_id": 7, "active": True}, "pass a path, a DataFrame, or Arrow data"),
]


def import_rows(rows: Any, options: dict[str, Any]) -> Report:
    """Import rows. The options contain options of the connector and options of the import."""
    connector_options = {name: options[name] for name in ("token", "base_url") if name in options}
    return Library(**connector_options).import_file(
        rows, **{name: options[name] for name in options.keys() - connector_options.keys()}
    )


@pytest.mark.parametrize(("build_rows", "options", "expected_text"), INVALID_CALLS)
def test_an_invalid_argument_is_refused_before_the_import(
    build_rows: Callable[[], Any], options: dict[str, Any], expected_text: str, folder: Path, sandbox: SandboxProcess
) -> None:
    rows, subscriber_count_before = build_rows(), sandbox.stats()["subscribers"]
    with pytest.raises((ConfigurationError, SourceError), match=expected_text):
        import_rows(rows, options)
    assert sandbox.stats()["subscribers"] == subscriber_count_before


@pytest.mark.parametrize(
    ("job", "options", "expected_text"),
    [
        ("export.yaml", {"limit": 1, "full": True}, "exports the list. Run: connector export /"),
        ("mail.yaml", {"dry_run": True}, "sends emails. Run: connector mail /"),
        ("sync.yaml", {"full": True, "since": "1"}, "set one of the two"),
        ("sync.yaml", {"limit": 0}, "`limit` must be a whole number from 1"),
        ("sync.yaml", {"since": "1"}, "has no source.sql.cursor"),
        ("signups.csv", {}, "is not a job file"),
    ],
)
def test_sync_refuses_an_argument_that_the_job_cannot_use(
    job: str, options: dict[str, Any], expected_text: str, folder: Path
) -> None:
    with pytest.raises(ConfigurationError, match=expected_text):
        Library().sync(job, **options)


@pytest.mark.parametrize(
    ("status", "error_type"),
    [("ok", None), ("partial", None), ("aborted", RunAborted), ("stopped", RunAborted), ("locked", LockedError)],
)
def test_raise_for_status_raises_an_error_after_an_early_end(
    status: Any, error_type: type[ConnectorError] | None
) -> None:
    report = Report("run", "job", "import", status, pd.Timestamp.now("UTC"), messages=["why"])
    if error_type is None:
        report.raise_for_status()
        return
    with pytest.raises(error_type, match="why"):
        report.raise_for_status()


def test_imports_leave_the_signal_handlers_and_threads_of_the_process_unchanged(folder: Path) -> None:
    handlers = {signal_number: signal.getsignal(signal_number) for signal_number in (signal.SIGINT, signal.SIGTERM)}
    loop_policy, thread_count = asyncio.get_event_loop_policy(), threading.active_count()
    frame = pd.DataFrame({"email": [f"person{index}@example.com" for index in range(20)]})

    async def run_notebook_cell() -> Report:
        return Library().import_file(frame, base_id=7, active=True)

    reports = [asyncio.run(run_notebook_cell())]
    import_threads = [
        threading.Thread(target=lambda: reports.append(Library().import_file(frame, base_id=7, active=True, wait_s=30)))
        for _ in range(2)
    ]
    for thread in import_threads:
        thread.start()
    for thread in import_threads:
        thread.join()
    assert [report.rows["created"] for report in reports] == [20, 0, 0]
    assert {signal_number: signal.getsignal(signal_number) for signal_number in handlers} == handlers
    assert (asyncio.get_event_loop_policy(), threading.active_count()) == (loop_policy, thread_count)


IMPORT_SCRIPT = """
import pandas, signal, sys
from connector import Connector
signal.signal(signal.SIGINT, signal.default_int_handler)
frame = pandas.DataFrame({"email": [f"person{number}@example.com" for number in range(400)]})
try:
    Connector().import_file(frame, base_id=7, active=True, quiet_period_s=0.2, max_concurrency=4)
except KeyboardInterrupt as interruption:
    print(*interruption.__notes__)
"""


def test_an_interrupted_import_creates_no_subscriber_twice(folder: Path, sandbox: SandboxProcess) -> None:
    sandbox.switch(latency_ms=30)
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", IMPORT_SCRIPT], env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 30)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert re.fullmatch(
        r"the run (\S+) ended with the status stopped. To see its report, run: connector status \1\n", output
    )
    stored_count = len(count_creates_by_email(sandbox))
    assert 30 <= stored_count < 402
    sandbox.switch(latency_ms=0)
    frame = pd.DataFrame({"email": [f"person{index}@example.com" for index in range(400)]})
    second_report = Library().import_file(frame, base_id=7, active=True, quiet_period_s=0.2)
    assert (second_report.status, second_report.rows["created"] + second_report.rows["exists"]) == ("ok", 400)
    assert set(count_creates_by_email(sandbox).values()) == {1}
    assert len(count_creates_by_email(sandbox)) == 402
