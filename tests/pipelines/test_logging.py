"""`-v` and `--log-format`: what a run did, on stderr; by default its beginning and end; no token, no personal data."""

import json
from pathlib import Path

from tests.pipelines.conftest import Connector, write_csv


def write_people(folder: Path) -> Path:
    rows = [f"ann{number}@secret-domain.org,Annabel{number}" for number in range(12)]
    return write_csv(folder / "people.csv", "email,first_name", *rows)


def test_an_import_logs_its_events_as_json_lines_without_token_or_address(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(rate=20, burst=4, retry_after="seconds")
    path = write_people(tmp_path)
    ended = connector.import_file(path, "-vv", "--log-format", "json")

    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    events = {line["event"] for line in lines}
    assert ended.code == 0, ended.stderr
    assert events >= {"run begins", "page", "look-up", "batch", "commit", "refusal", "pause", "run ends"}
    assert [line["status"] for line in lines if line["event"] == "run ends"] == ["ok"]
    assert {"at", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
    token = next(value for name, value in connector.environ.items() if name == "CONNECTOR_TOKEN")
    for secret in (token, "secret-domain", "Annabel"):
        assert secret not in ended.stderr


def test_one_v_leaves_pages_and_commits_out_and_none_says_beginning_and_end(
    connector: Connector, tmp_path: Path
) -> None:
    path = write_people(tmp_path)
    logged = connector.import_file(path, "-v").stderr
    assert "run begins: import people" in logged
    assert "look-up" in logged
    assert "commit" not in logged
    lines = connector.import_file(path).stderr.splitlines()
    assert [line.partition("connector.report  ")[2].partition(" (")[0] for line in lines] == [
        "run begins: import people",
        "run ends: ok, 12 read, 12 exists",
    ]
    assert connector.import_file(path, "--quiet").stderr == ""


def test_lines_of_a_log_are_whole_whatever_the_file_is_called(connector: Connector, tmp_path: Path) -> None:
    path = write_people(tmp_path).rename(tmp_path / "one\ntwo.csv")
    begins, ends = connector.import_file(path).stderr.splitlines()
    assert r"run begins: import one\ntwo (" in begins
    assert "run ends: ok" in ends


def test_messages_of_a_run_are_json_lines_where_the_log_is(connector: Connector, tmp_path: Path) -> None:
    ended = connector.import_file(tmp_path / "missing.csv", "--log-format", "json")
    (line,) = (json.loads(each) for each in ended.stderr.splitlines())
    assert (ended.code, line["event"]) == (2, "message")
    assert "missing.csv" in line["text"]
    refused = connector.run("import", "--no-such-option", "--log-format", "json")
    (line,) = (json.loads(each) for each in refused.stderr.splitlines())
    assert (refused.code, line["text"]) == (2, "No such option '--no-such-option'.")
