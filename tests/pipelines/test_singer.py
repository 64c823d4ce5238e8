"""The programs `tap-subscribers` and `target-subscribers`, each in its own process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from connector.fields import FIELD_NAMES
from pipelines.singer import run_tap, run_target
from tests.export.exports import create_people
from tests.pipelines.conftest import CommandResult, Connector, run_process
from tests.pipelines.test_excel import PERSON

PROGRAM_FOLDER = Path(sys.executable).parent
ROW_COUNT = int(os.environ.get("CONNECTOR_TEST_ADAPTER_ROWS", "120"))
BATCH_ROW_COUNT = ROW_COUNT // 3
JOB = """\
job: contacts
subscriber:
  base: {name: Newsletter}
  fields: {email: mail, first_name: first, is_active: {value: true}}
load: {quiet_period: 200ms}
"""
SCHEMA = {
    "type": "SCHEMA",
    "stream": "contacts",
    "key_properties": ["number"],
    "schema": {"properties": {"number": {"type": "integer"}, "mail": {"type": ["string", "null"]},
                              "first": {"type": ["string", "null"]}}},
}  # fmt: skip


def write_stream(
    person_numbers: Sequence[int], *, stream: str = "contacts", **other_values: Any
) -> list[dict[str, Any]]:
    """Return a tap's messages: the schema, a record for each person, and a STATE with the number of the last person."""
    records = [
        {"type": "RECORD", "stream": stream,
         "record": {"number": number, "mail": f"p{number}@example.com", "first": f"P{number}"} | other_values}
        for number in person_numbers
    ]  # fmt: skip
    return [SCHEMA | {"stream": stream}, *records, {"type": "STATE", "value": {"last": person_numbers[-1]}}]


def run_program(
    connector: Connector, program: Callable[[], None], config: dict[str, Any], *arguments: str | Path
) -> CommandResult:
    """Run a program with a configuration file and these arguments."""
    path = connector.folder / "config.json"
    path.write_text(json.dumps(config))
    with connector.start("--config", path, *arguments, program=program) as process:
        stdout, stderr = process.communicate()
    return CommandResult(process.returncode, stdout, stderr)


def load_messages(connector: Connector, messages: Sequence[Any], **config: Any) -> CommandResult:
    """Write the messages to a file, and load this file with `target-subscribers`."""
    (connector.folder / "job.yaml").write_text(JOB)
    path = connector.write_csv("messages.jsonl", *map(json.dumps, messages))
    return run_program(connector, run_target, {"job": "job.yaml"} | config, "--input", path)


def read_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_only_the_record_without_an_identity_is_invalid(connector: Connector) -> None:
    messages = [*write_stream([1]), *write_stream([2], mail=None)[1:], *write_stream([3])[1:]]
    result = load_messages(connector, messages)
    assert (result.exit_code, read_lines(result.stdout)[-1]) == (0, {"last": 3})
    assert "3 read, 1 invalid, 2 created" in result.stderr
    assert "p2@" not in result.stderr
    (rejects_path,) = (connector.folder / "state" / "rejects").iterdir()
    assert "P2" in rejects_path.read_text()


def test_the_target_writes_no_state_if_its_run_fails(connector: Connector) -> None:
    connector.environ["CONNECTOR_TOKEN"] = "wrong"
    result = load_messages(connector, write_stream([1, 2]))
    assert result.exit_code != 0
    assert result.stdout == ""
    assert connector.count_creates_by_email().total() == 0


def test_a_killed_target_with_lost_answers_creates_nobody_twice(connector: Connector) -> None:
    connector.sandbox.switch(latency_ms=20, drop_after=0.1, error_after=0.1, seed=3)
    (connector.folder / "job.yaml").write_text(JOB)
    (connector.folder / "c.json").write_text(json.dumps({"job": "job.yaml", "batch_size_rows": BATCH_ROW_COUNT}))
    stream = write_stream(range(ROW_COUNT))
    environ = os.environ | connector.environ
    command = [str(PROGRAM_FOLDER / "target-subscribers"), "--config", "c.json"]
    with subprocess.Popen(command, cwd=connector.folder, env=environ, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.writelines(json.dumps(message) + "\n" for message in stream[:-1])
        process.stdin.flush()
        while connector.count_creates_by_email().total() < 20:
            assert process.poll() is None
        process.kill()
    result = load_messages(connector, stream, batch_size_rows=BATCH_ROW_COUNT)
    assert (result.exit_code, read_lines(result.stdout)) == (0, [{"last": ROW_COUNT - 1}]), result.stderr
    assert sorted(connector.count_creates_by_email().values()) == [1] * ROW_COUNT


def test_a_second_stream_is_refused_unless_the_settings_select_a_stream(connector: Connector) -> None:
    messages_of_two_streams = [*write_stream([1]), *write_stream([2], stream="orders")]
    result = load_messages(connector, messages_of_two_streams)
    assert result.exit_code != 0
    assert "also sends orders" in result.stderr
    assert load_messages(connector, write_stream([1], stream="orders"), stream="orders").exit_code == 0
    # The name of a stream is not used as a path.
    assert load_messages(connector, write_stream([2], stream="../a/b")).exit_code == 0
    assert connector.count_creates_by_email().total() == 2


def test_the_tap_writes_the_certified_list_and_its_certificate(connector: Connector) -> None:
    connector.sandbox.seed(4, base_name="News")
    create_people(connector.sandbox, PERSON | {"base_name": "News"})
    result = run_program(connector, run_tap, {})
    assert result.exit_code == 0, result.stderr
    messages = read_lines(result.stdout)
    records = [message["record"] for message in messages if message["type"] == "RECORD"]
    assert connector.run("export", "people.jsonl").exit_code == 0
    exported_rows = read_lines((connector.folder / "people.jsonl").read_text())
    assert len(records) == len(exported_rows) == 5
    assert [name for name in FIELD_NAMES if records[-1][name] is None] == []
    catalog_schema = next(message["schema"] for message in messages if message["type"] == "SCHEMA")
    assert [error.message for record in records for error in Draft7Validator(catalog_schema).iter_errors(record)] == []
    for record, row in zip(records, exported_rows, strict=True):
        assert record | {"_run_id": "", "_exported_at": ""} == row | {"_run_id": "", "_exported_at": ""}
    assert messages[-1]["value"]["bookmarks"]["subscribers"]["certificate"]["verdict"] == "complete"
    messages_of_empty_base = read_lines(run_program(connector, run_tap, {"base_id": 99}).stdout)
    assert [message for message in messages_of_empty_base if message["type"] == "RECORD"] == []


def test_a_tap_writes_no_state_if_it_cannot_prove_that_the_list_is_complete(connector: Connector) -> None:
    connector.sandbox.seed(60, base_name="News")
    connector.sandbox.switch(order="shuffled", max_limit=20)
    result = run_program(connector, run_tap, {})
    assert result.exit_code != 0
    assert "incomplete" in result.stderr
    assert [line for line in read_lines(result.stdout) if line["type"] == "STATE" and line["value"]] == []


@pytest.mark.parametrize("program", ["tap-subscribers", "target-subscribers"])
def test_each_singer_program_describes_its_settings(program: str) -> None:
    result = run_process([PROGRAM_FOLDER / program, "--about", "--format=json"])
    settings = json.loads(result.stdout)["settings"]["properties"]
    expected_settings = {"base_id", "is_active"} if program == "tap-subscribers" else {"job", "stream"}
    assert expected_settings <= settings.keys()
    assert all(settings[name]["description"] for name in expected_settings)
