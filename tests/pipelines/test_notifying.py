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

from tests.pipelines.conftest import Connector, write_addresses, write_csv

SECRET = "hook-secret-of-ours"
JOB = """\
job: crm
source: {file: {path: people.csv}}
subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}
load: {quiet_period: 100ms}
"""


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
            self.send_header("Location", self.path)  # of a redirect
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


def write_job(folder: Path, hook: Hook, more: str = "", **notify: Any) -> None:
    """Write a job of three subscribers that notifies the hook, and an export that does."""
    write_addresses(folder / "people.csv", 3)
    tail = f"notify: {json.dumps({'webhook': {'url': hook.url}} | notify)}\n{more}"
    (folder / "job.yaml").write_text(f"{JOB}{tail}", encoding="utf-8")
    (folder / "export.yaml").write_text(f"job: crm\nexport: {{to: out.csv}}\n{tail}", encoding="utf-8")


def test_a_run_that_is_ok_is_reported_only_if_the_job_asks_for_it(
    connector: Connector, tmp_path: Path, hook: Hook
) -> None:
    write_job(tmp_path, hook)
    assert connector.run_json("sync", "job.yaml").code == 0
    assert hook.posts == []

    write_job(tmp_path, hook, when="always")
    assert connector.run_json("sync", "job.yaml").code == 0
    assert connector.run_json("sync", "job.yaml", "--dry-run").code == 0
    exported = connector.run_json("export", "export.yaml")
    assert [json.loads(body)["command"] for _, body in hook.posts] == ["sync", "export"]
    assert json.loads(hook.posts[1][1]) == exported.report


def test_a_webhook_gets_the_report_signed(connector: Connector, tmp_path: Path, hook: Hook) -> None:
    write_job(tmp_path, hook, when="always", webhook={"url": "${HOOK_URL}", "secret": "${HOOK_SECRET}"})
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


def test_a_notification_that_fails_is_reported_and_changes_nothing(
    connector: Connector, tmp_path: Path, hook: Hook
) -> None:
    write_job(tmp_path, hook, when="always", webhook={"url": hook.url, "secret": SECRET})
    hook.answers = [500, 307, 404]

    ended = connector.run_json("sync", "job.yaml")

    assert (ended.code, ended.report["status"], len(hook.posts)) == (0, "ok", 3)
    assert "failed 3 times: 127.0.0.1 answered 404" in ended.stderr
    assert not any(secret in ended.stderr + ended.stdout for secret in ("T0PS3CRET", SECRET))


@pytest.mark.parametrize(
    ("more", "rows", "code", "status"),
    [
        ("", ["email,is_active", "ann@example.com,true", "<nobody>,true"], 1, "partial"),
        ("guard: {max_creates: 1}\n", ["email", "a@x.org", "b@x.org"], 3, "aborted"),
    ],
)
def test_a_run_with_problems_is_reported(
    connector: Connector, tmp_path: Path, hook: Hook, more: str, rows: list[str], code: int, status: str
) -> None:
    write_job(tmp_path, hook, more)
    write_csv(tmp_path / "people.csv", *rows)
    ended = connector.run_json("sync", "job.yaml")
    ((headers, body),) = hook.posts
    assert (ended.code, json.loads(body)["status"], json.loads(body)) == (code, status, ended.report)
    assert "X-Connector-Signature" not in headers


def test_opt_outs_are_a_problem_that_the_webhook_hears_of_each_night(
    connector: Connector, tmp_path: Path, hook: Hook
) -> None:
    write_job(tmp_path, hook)
    job = (tmp_path / "job.yaml").read_text(encoding="utf-8").replace("{value: true}", "active")
    (tmp_path / "job.yaml").write_text(job, encoding="utf-8")
    for active in ("yes", "no", "no"):
        write_csv(tmp_path / "people.csv", "email,active", f"ann@example.com,{active}")
        connector.run_json("sync", "job.yaml")
    reports = [json.loads(body) for _, body in hook.posts]
    assert [(each["status"], each["opt_outs"]) for each in reports] == [("partial", 1)] * 2


@pytest.mark.parametrize("command", ["sync job.yaml", "export export.yaml"])
def test_a_run_whose_token_is_refused_at_the_first_request_is_reported(
    connector: Connector, tmp_path: Path, hook: Hook, command: str
) -> None:
    write_job(tmp_path, hook)
    ended = connector.run_json(*command.split(), environ={"CONNECTOR_TOKEN": "not-the-token-at-all"})
    assert ended.is_refused
    ((_, body),) = hook.posts
    report = json.loads(body)
    assert (report["job"], report["command"], report["status"]) == ("crm", command.split()[0], "usage")
    assert report["messages"] == [ended.report["message"]]
    if "sync" in command:
        connector.run_json("sync", "job.yaml", "--dry-run", environ={"CONNECTOR_TOKEN": "not-the-token-at-all"})
        assert len(hook.posts) == 1
