"""The webhook that a job names receives the run's report. A failed notification changes nothing of the run."""

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pipelines.conftest import Connector, write_addresses, write_csv

SECRET = "hook-secret-of-ours"


@dataclass
class Hook:
    """Somebody's address, and what was posted to it."""

    url: str
    answers: list[int] = field(default_factory=list)  # the next ones; 200 after them
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def hook() -> Iterator[Hook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known.posts.append((dict(self.headers), body))
            self.send_response(known.answers.pop(0) if known.answers else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known = Hook(f"http://127.0.0.1:{server.server_address[1]}/hooks/T0PS3CRET")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield known
    server.shutdown()
    thread.join()
    server.server_close()


def write_job(folder: Path, notify: dict[str, Any]) -> Path:
    job = {
        "job": "crm",
        "source": {"file": {"path": "people.csv"}},
        "subscriber": {"base": {"name": "News"}, "fields": {"email": "email", "is_active": {"value": True}}},
        "load": {"quiet_period": "100ms"},
        "notify": notify,
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    return path


def test_a_run_that_is_ok_is_reported_only_if_the_job_asks_for_it(
    connector: Connector, tmp_path: Path, hook: Hook
) -> None:
    write_addresses(tmp_path / "people.csv", 3)
    write_job(tmp_path, {"webhook": {"url": hook.url}})
    assert connector.run_json("sync", "job.yaml").code == 0
    assert hook.posts == []

    write_job(tmp_path, {"webhook": {"url": hook.url}, "when": "always"})
    assert connector.run_json("sync", "job.yaml").code == 0
    assert connector.run_json("sync", "job.yaml", "--dry-run").code == 0
    assert [json.loads(body)["status"] for _, body in hook.posts] == ["ok"]


def test_a_run_with_problems_is_reported(connector: Connector, tmp_path: Path, hook: Hook) -> None:
    write_csv(tmp_path / "people.csv", "email", "ann@example.com", "<nobody>")
    write_job(tmp_path, {"webhook": {"url": hook.url}})

    ended = connector.run_json("sync", "job.yaml")

    assert (ended.code, ended.rows) == (1, {"read": 2, "created": 1, "invalid": 1})
    ((_, body),) = hook.posts
    assert json.loads(body) == ended.report


def test_a_webhook_gets_the_report_signed(connector: Connector, tmp_path: Path, hook: Hook) -> None:
    write_addresses(tmp_path / "people.csv", 3)
    write_job(tmp_path, {"when": "always", "webhook": {"url": "${HOOK_URL}", "secret": "${HOOK_SECRET}"}})
    hook.answers = [503]

    ended = connector.run_json("sync", "job.yaml", environ={"HOOK_URL": hook.url, "HOOK_SECRET": SECRET})

    assert ended.code == 0, ended.stderr
    assert len(hook.posts) == 2, "the first was refused"
    headers, body = hook.posts[1]
    signed = headers["X-Connector-Timestamp"].encode() + b"." + body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Connector-Signature"] == f"sha256={expected}"
    assert json.loads(body) == ended.report
    assert connector.sandbox.token not in str(headers)


def test_a_notification_that_fails_is_told_and_changes_nothing(
    connector: Connector, tmp_path: Path, hook: Hook
) -> None:
    write_addresses(tmp_path / "people.csv", 3)
    write_job(tmp_path, {"when": "always", "webhook": {"url": hook.url, "secret": SECRET}})
    hook.answers = [500, 302, 404]

    ended = connector.run_json("sync", "job.yaml")

    assert (ended.code, ended.report["status"]) == (0, "ok")
    assert "failed 3 times: 127.0.0.1 answered 404" in ended.stderr
    assert len(hook.posts) == 3
    assert "T0PS3CRET" not in ended.stderr + ended.stdout
    assert SECRET not in ended.stderr + ended.stdout


def test_a_run_that_is_aborted_is_told_of(connector: Connector, tmp_path: Path, hook: Hook) -> None:
    write_addresses(tmp_path / "people.csv", 3)
    path = write_job(tmp_path, {"webhook": {"url": hook.url}})
    path.write_text(f"{path.read_text(encoding='utf-8')}guard: {{max_creates: 1}}\n", encoding="utf-8")

    ended = connector.run_json("sync", "job.yaml")

    assert ended.code == 3
    ((headers, body),) = hook.posts
    assert json.loads(body)["status"] == "aborted"
    assert "X-Connector-Signature" not in headers


@pytest.mark.parametrize("command", ["sync", "export"])
def test_a_run_whose_token_is_refused_at_the_first_request_is_told_of(
    connector: Connector, tmp_path: Path, hook: Hook, command: str
) -> None:
    write_addresses(tmp_path / "people.csv", 3)
    path = write_job(tmp_path, {"webhook": {"url": hook.url}})
    if command == "export":
        job = {"job": "crm", "export": {"to": "out.csv"}, "notify": {"webhook": {"url": hook.url}}}
        path.write_text(yaml.safe_dump(job), encoding="utf-8")

    ended = connector.run_json(command, "job.yaml", environ={"CONNECTOR_TOKEN": "not-the-token-at-all"})

    assert ended.is_refused
    ((_, body),) = hook.posts
    report = json.loads(body)
    assert (report["job"], report["command"], report["status"]) == ("crm", command, "aborted")
    assert report["messages"] == [ended.report["message"]]
    if command == "sync":
        connector.run_json("sync", "job.yaml", "--dry-run", environ={"CONNECTOR_TOKEN": "not-the-token-at-all"})
        assert len(hook.posts) == 1


def test_an_export_tells_of_itself_as_well(connector: Connector, tmp_path: Path, hook: Hook) -> None:
    connector.import_file(write_addresses(tmp_path / "people.csv", 3))
    job = {"job": "w", "export": {"to": "out.csv"}, "notify": {"when": "always", "webhook": {"url": hook.url}}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")

    ended = connector.run_json("export", "job.yaml")

    ((_, body),) = hook.posts
    assert json.loads(body)["certificate"]["verdict"] == "complete"
    assert json.loads(body) == ended.report
