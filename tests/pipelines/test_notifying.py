"""The webhook that a job names receives alerts. A failed alert changes nothing of the run."""

import base64
import json
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from connector.ledger.opening import open_ledger, read_ledger
from connector.ledger.problems import read_backlog
from tests.pipelines.conftest import Connector, Ended, write_addresses, write_csv

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
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

    def take_alerts(self) -> list[dict[str, Any]]:
        """Return the bodies since the last call."""
        bodies = [json.loads(body) for _, body in self.posts]
        self.posts.clear()
        return bodies

    def take_reasons(self) -> list[str]:
        """Return the reasons of the alerts since the last call."""
        return [alert["reason"] for alert in self.take_alerts()]


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


def sync(connector: Connector, **environ: str | None) -> Ended:
    return connector.run_json("sync", "job.yaml", environ=environ)


def test_a_run_that_is_ok_sends_an_alert_only_if_the_job_asks_for_it(
    connector: Connector, tmp_path: Path, hook: Hook
) -> None:
    write_job(tmp_path, hook)
    assert sync(connector).code == 0
    assert hook.posts == []

    write_job(tmp_path, hook, on="always")
    assert sync(connector).code == 0
    assert connector.run_json("sync", "job.yaml", "--dry-run").code == 0
    exported = connector.run_json("export", "export.yaml")
    alerts = hook.take_alerts()
    assert [(alert["reason"], alert["report"]["command"]) for alert in alerts] == [("run", "sync"), ("run", "export")]
    assert alerts[1]["report"] == exported.report


def test_an_alert_is_signed_by_the_rules_of_standard_webhooks(connector: Connector, tmp_path: Path, hook: Hook) -> None:
    from standardwebhooks.webhooks import Webhook, WebhookVerificationError  # the other tests need no such library

    write_job(tmp_path, hook, on="always", webhook={"url": "${HOOK_URL}", "secret": "${HOOK_SECRET}"})
    hook.answers = [503]

    ended = sync(connector, HOOK_URL=hook.url, HOOK_SECRET=SECRET)

    assert ended.code == 0, ended.stderr
    assert len(hook.posts) == 2, "the first was refused"
    (first, _), (headers, body) = hook.posts
    assert headers["webhook-id"] == first["webhook-id"] == f"msg_{ended.report['run_id']}"
    assert Webhook(SECRET).verify(body.decode(), headers)["report"] == ended.report
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body.decode().replace("ok", "no"), headers)
    assert connector.sandbox.token not in str(headers)


@pytest.mark.parametrize("secret", ["hook-secret-of-ours", "whsec_c2hvcnQ="])
def test_a_secret_of_another_form_is_refused_without_showing_it(
    connector: Connector, tmp_path: Path, hook: Hook, secret: str
) -> None:
    write_job(tmp_path, hook, webhook={"url": hook.url, "secret": secret})
    ended = sync(connector)
    assert ended.is_refused
    assert "notify.webhook.secret: must be whsec_ and the base64 of 24 to 64 random bytes" in ended.stderr
    assert secret not in ended.stderr + ended.stdout


def test_a_failed_alert_is_named_and_sent_again_by_the_next_run(
    connector: Connector, tmp_path: Path, hook: Hook
) -> None:
    write_job(tmp_path, hook, webhook={"url": hook.url, "secret": SECRET})
    write_csv(tmp_path / "people.csv", "email", "ann@example.com", "<nobody>")
    hook.answers = [500, 307, 404]

    failed = sync(connector)

    assert (failed.code, failed.report["status"], len(hook.posts)) == (1, "partial", 3)
    assert "failed 3 times: 127.0.0.1 answered 404. The next run of the job sends the alert again." in failed.stderr
    assert not any(secret in failed.stderr + failed.stdout for secret in ("T0PS3CRET", SECRET))
    (record,) = (tmp_path / "state" / "alerts").iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600

    hook.posts.clear()
    write_addresses(tmp_path / "people.csv", 3)
    recovered = sync(connector)
    (headers, _), _ = hook.posts
    assert headers["webhook-id"] == f"msg_{failed.report['run_id']}"
    alerts = hook.take_alerts()
    assert [alert["reason"] for alert in alerts] == ["failure", "recovery"]
    assert [alert["report"]["run_id"] for alert in alerts] == [each.report["run_id"] for each in (failed, recovered)]
    assert sync(connector).code == 0
    assert hook.posts == []


NIGHTS: list[tuple[str, list[str], dict[str, str | None], int, list[str]]] = [
    ("ok", ["ann,yes"], {}, 0, []),
    ("a bad row", ["ann,yes", "<nobody>,yes"], {}, 1, ["failure"]),
    ("the same bad row", ["ann,yes", "<nobody>,yes"], {}, 1, []),
    ("a second bad row", ["ann,yes", "<nobody>,yes", "<someone>,yes"], {}, 1, ["new_problems"]),
    ("one bad row is corrected", ["ann,yes", "<nobody>,yes"], {}, 1, []),
    ("the database is down", [], {"CRM_URL": "postgresql://127.0.0.1:1/crm"}, 3, ["another_cause"]),
    ("still down", [], {"CRM_URL": "postgresql://127.0.0.1:1/crm"}, 3, []),
    ("recovered", ["ann,yes"], {}, 0, ["recovery"]),
    ("an opt-out", ["ann,no"], {}, 1, ["failure"]),
    ("the same opt-out", ["ann,no"], {}, 1, []),
    ("the token is refused", ["ann,no", "bob,yes"], {"CONNECTOR_TOKEN": "another"}, 2, ["another_cause"]),
    ("still refused", ["ann,no", "bob,yes"], {"CONNECTOR_TOKEN": "another"}, 2, []),
    ("a setting is missing", ["ann,no"], {"CRM_URL": None}, 2, ["another_cause"]),
    ("recovered", ["ann,yes"], {}, 0, ["recovery"]),
    ("still ok", ["ann,yes"], {}, 0, []),
]


BACKLOGS = [0, 1, 1, 2, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0]
"""The number of open problems after each of these nights: a night that ends early changes none."""


def count_backlog(folder: Path) -> int:
    url = f"sqlite:///{folder}/state/ledger.db"
    return sum(each.number for each in read_ledger(url, lambda ledger: read_backlog(ledger.connection)) or ())


def test_each_change_of_a_fortnight_is_one_alert(connector: Connector, tmp_path: Path, hook: Hook) -> None:
    write_job(tmp_path, hook)
    job = JOB.replace("file: {path: people.csv}", "sql: {url: '${CRM_URL}', table: people}")
    tail = f"notify: {json.dumps({'webhook': {'url': hook.url}})}\n"
    job = job.replace("{value: true}", "active") + tail
    (tmp_path / "job.yaml").write_text(job, encoding="utf-8")
    lines, backlogs = [], []
    for night, people, environ, code, reasons in NIGHTS:
        with closing(sqlite3.connect(tmp_path / "crm.db")) as crm, crm:
            crm.execute("DROP TABLE IF EXISTS people")
            crm.execute("CREATE TABLE people (email TEXT, active TEXT)")
            rows = [person.split(",") for person in people]
            crm.executemany("INSERT INTO people VALUES (?, ?)", [(write_address(name), word) for name, word in rows])
        ended = sync(connector, **{"CRM_URL": f"sqlite:///{tmp_path}/crm.db", **environ})
        alerts = hook.take_alerts()
        assert (night, ended.code, [alert["reason"] for alert in alerts]) == (night, code, reasons), ended.stderr
        backlogs.append(count_backlog(tmp_path))
        lines += [line for alert in alerts for line in alert["text"].splitlines() if "opted out" in line]
    assert lines == [
        "1 subscriber opted out in the source and is still active in the service. Deactivate the subscriber there."
    ]
    assert backlogs == BACKLOGS
    exit_codes = [run["exit_code"] for run in connector.run_json("status", "--last", "99").report["runs"]]
    assert exit_codes[::-1] == [code for *_, code, _ in NIGHTS]


def write_address(name: str) -> str:
    return name if name.startswith("<") else f"{name}@example.com"


def test_a_run_that_another_run_keeps_out_sends_an_alert(connector: Connector, tmp_path: Path, hook: Hook) -> None:
    write_job(tmp_path, hook)
    sync(connector)
    with open_ledger(f"sqlite:///{tmp_path}/state/ledger.db"):
        assert sync(connector).code == 4
        assert sync(connector).code == 4
    (alert,) = hook.take_alerts()
    assert (alert["reason"], alert["report"]["status"]) == ("failure", "locked")
    assert "did not run, because another run holds the lock" in alert["text"]


def test_with_on_problem_each_run_that_is_not_ok_sends_an_alert(
    connector: Connector, tmp_path: Path, hook: Hook
) -> None:
    write_job(tmp_path, hook, on="problem")
    for people in (["<nobody>"], ["<nobody>"], ["ann@example.com"]):
        write_csv(tmp_path / "people.csv", "email", *people)
        sync(connector)
    assert hook.take_reasons() == ["failure", "reminder"]


@pytest.mark.parametrize(
    ("more", "rows", "code", "status"),
    [
        ("", ["email,is_active", "ann@example.com,true", "<nobody>,true"], 1, "partial"),
        ("guard: {max_creates: 1}\n", ["email", "a@x.org", "b@x.org"], 3, "aborted"),
    ],
)
def test_the_report_of_a_run_with_problems_is_in_its_alert(
    connector: Connector, tmp_path: Path, hook: Hook, more: str, rows: list[str], code: int, status: str
) -> None:
    write_job(tmp_path, hook, more)
    write_csv(tmp_path / "people.csv", *rows)
    ended = sync(connector)
    ((headers, body),) = hook.posts
    assert (ended.code, ended.report["status"], json.loads(body)["report"]) == (code, status, ended.report)
    assert "webhook-signature" not in headers


@pytest.mark.parametrize("command", ["sync job.yaml", "export export.yaml"])
def test_the_alert_of_a_refused_token_has_the_run_on_record(
    connector: Connector, tmp_path: Path, hook: Hook, command: str
) -> None:
    write_job(tmp_path, hook)
    environ = {"CONNECTOR_TOKEN": "not-the-token-at-all"}
    ended = connector.run_json(*command.split(), environ=environ)
    assert ended.is_refused
    (alert,) = hook.take_alerts()
    report = alert["report"]
    assert (report["job"], report["command"], report["status"]) == ("crm", command.split()[0], "usage")
    assert report["messages"] == [ended.report["message"]]
    (run,) = connector.run_json("status").report["runs"]
    assert (run["run_id"], run["account"]) == (report["run_id"], connector.sandbox.base_url)
    if "sync" in command:
        connector.run_json("sync", "job.yaml", "--dry-run", environ=environ)
        assert hook.posts == []


def test_a_job_file_that_is_refused_sends_an_alert_all_the_same(
    connector: Connector, tmp_path: Path, hook: Hook
) -> None:
    write_job(tmp_path, hook, "nonsense: 1\n")
    assert sync(connector).is_refused
    (alert,) = hook.take_alerts()
    assert (alert["report"]["job"], alert["report"]["status"]) == ("crm", "usage")
    assert "there is no such key" in alert["text"]
