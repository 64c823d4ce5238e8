"""Nightly runs of two weeks on virtual time: the alerts, the exit codes, and the open problems after each run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from standardwebhooks.webhooks import Webhook

from tests.pipelines.conftest import Connector
from tests.pipelines.hooks import SECRET, WebhookReceiver
from tests.pipelines.reconciled import change_in_service
from tests.pipelines.virtual_time import VirtualTime

SOURCE = "sql: {url: '${CRM_URL}', table: people}"
FIRST_RUN_AT = datetime(2026, 3, 2, 2, tzinfo=UTC)
UNREACHABLE_URL = "postgresql://127.0.0.1:1/crm"
INVALID_ROW, OTHER_INVALID_ROW = "<nobody>,yes", "<someone>,yes"


@dataclass(frozen=True)
class ScheduledRun:
    """A nightly run: the rows of the source, and the expected exit code, alerts and open problems."""

    name: str
    rows: Sequence[str]
    exit_code: int
    alert_reasons: Sequence[str]
    problem_count: int
    environ: Mapping[str, str | None] = field(default_factory=dict)
    hours_since_previous_run: float = 24.0
    webhook_statuses: Sequence[int] = ()  # HTTP statuses with which the webhook answers the alerts
    deactivated_email: str = ""  # the subscriber whom somebody deactivates in the service before the run


SCHEDULED_RUNS = [
    ScheduledRun("all rows are valid", ["ann,yes", "bob,yes"], 0, [], 0),
    ScheduledRun("an invalid row", ["ann,yes", INVALID_ROW], 1, ["failure"], 1),
    ScheduledRun("the same invalid row", ["ann,yes", INVALID_ROW], 1, ["reminder"], 1),
    ScheduledRun("a second run in the same night", ["ann,yes", INVALID_ROW], 1, [], 1, hours_since_previous_run=2),
    ScheduledRun(
        "a second invalid row",
        ["ann,yes", INVALID_ROW, OTHER_INVALID_ROW],
        1,
        ["new_problems"],
        2,
        hours_since_previous_run=22,
    ),
    ScheduledRun("one invalid row is corrected", ["ann,yes", INVALID_ROW], 1, ["reminder"], 1),
    ScheduledRun("the database is down", [], 3, ["another_cause"], 1, {"CRM_URL": UNREACHABLE_URL}),
    ScheduledRun("the database is still down", [], 3, ["reminder"], 1, {"CRM_URL": UNREACHABLE_URL}),
    ScheduledRun("the database works again", ["ann,yes", INVALID_ROW], 1, ["recovery"], 1),
    ScheduledRun("the last invalid row is corrected", ["ann,yes"], 0, ["recovery"], 0),
    ScheduledRun("an opt-out", ["ann,no"], 1, ["failure"], 1),
    ScheduledRun("the same opt-out", ["ann,no"], 1, ["reminder"], 1),
    ScheduledRun(
        "the token and the alert are refused",
        ["ann,no"],
        2,
        [],
        1,
        {"CONNECTOR_TOKEN": "old"},
        webhook_statuses=[500, 502, 503],
    ),
    ScheduledRun(
        "only the token is refused", ["ann,no"], 2, ["another_cause", "reminder"], 1, {"CONNECTOR_TOKEN": "old"}
    ),
    ScheduledRun("a setting is missing", ["ann,no"], 2, ["another_cause"], 1, {"CRM_URL": None}),
    ScheduledRun(
        "the subscriber of the opt-out is deactivated in the service",
        ["ann,no"],
        0,
        ["recovery"],
        0,
        deactivated_email="ann@example.com",
    ),
    ScheduledRun("still no problem", ["ann,no"], 0, [], 0),
]


def test_two_weeks_of_runs_send_an_alert_for_each_change_and_one_reminder_a_day(
    connector: Connector, webhook: WebhookReceiver
) -> None:
    notify_line = f"notify: {json.dumps({'webhook': {'url': webhook.url, 'secret': SECRET}})}"
    fields_yaml, load_yaml = "email: email, is_active: active", "quiet_period: 30s"
    connector.write_job(notify_line, source=SOURCE, base="id: 7", fields=fields_yaml, load=load_yaml)
    virtual_time, run_started_at = VirtualTime(FIRST_RUN_AT), FIRST_RUN_AT - timedelta(hours=24)
    opt_out_lines: list[str] = []
    for scheduled_run in SCHEDULED_RUNS:
        run_started_at += timedelta(hours=scheduled_run.hours_since_previous_run)
        virtual_time.move_to(run_started_at)
        write_source(connector, scheduled_run.rows)
        webhook.next_statuses = [*scheduled_run.webhook_statuses]
        if scheduled_run.deactivated_email:
            change_in_service(connector, scheduled_run.deactivated_email, IsActive=False)
        environ = {"CRM_URL": connector.crm.url, **scheduled_run.environ}
        result = connector.sync("job.yaml", environ=environ, clock=virtual_time.clock)
        alerts = [] if scheduled_run.webhook_statuses else pop_verified_alerts(webhook, run_started_at)
        reasons = [alert["reason"] for alert in alerts]
        expected_values = (scheduled_run.exit_code, scheduled_run.alert_reasons, scheduled_run.problem_count)
        actual_values = (result.exit_code, reasons, count_open_problems(connector))
        assert actual_values == expected_values, (scheduled_run.name, result.stderr)
        if scheduled_run.webhook_statuses:
            assert len(webhook.pop_posts()) == len(scheduled_run.webhook_statuses)
            assert "failed 3 times" in result.stderr
        opt_out_lines += [line for alert in alerts for line in alert["text"].splitlines() if "opted out" in line]
    assert set(opt_out_lines) == {
        "1 subscriber opted out in the source and is still active in the service. Deactivate the subscriber there."
    }
    assert len(opt_out_lines) == 2
    runs = connector.run_json("status", "--last", "99").report["runs"]
    assert [run["exit_code"] for run in reversed(runs)] == [scheduled_run.exit_code for scheduled_run in SCHEDULED_RUNS]


def write_source(connector: Connector, rows: Sequence[str]) -> None:
    connector.crm.run("DROP TABLE IF EXISTS people", "CREATE TABLE people (email TEXT, active TEXT)")
    for name, activity in (row.split(",") for row in rows):
        email = name if name.startswith("<") else f"{name}@example.com"
        connector.crm.insert_rows("people", [(email, activity)])


def pop_verified_alerts(webhook: WebhookReceiver, run_started_at: datetime) -> list[dict[str, Any]]:
    """Return the received alerts. Check that each signature is valid, and that each alert was sent in the hour after
    `run_started_at`."""
    posts = webhook.pop_posts()
    for headers, body in posts:
        sent_at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        assert run_started_at <= sent_at + timedelta(seconds=1) < run_started_at + timedelta(hours=1)
        signature = Webhook(SECRET).sign(headers["webhook-id"], sent_at, body.decode())
        assert headers["webhook-signature"] == signature
    return [json.loads(body) for _, body in posts]


def count_open_problems(connector: Connector) -> int:
    """Return the number of open problems that `status` reports."""
    return sum(group["problems"] for group in connector.run_json("status").report["problems"])
