"""The webhook of a job receives alerts. A failed alert does not change the result of the run."""

import json
import stat
from typing import Any

from connector.ledger.opening import open_ledger
from tests.pipelines.conftest import CommandResult, Connector
from tests.pipelines.hooks import SECRET, WebhookReceiver
from tests.pipelines.virtual_time import skip_waits


def write_job(connector: Connector, receiver: WebhookReceiver, *job_lines: str, **notify_keys: Any) -> str:
    """Write a job that loads three subscribers and sends alerts to the webhook. Return its `notify` line."""
    connector.write_addresses(3)
    notify_line = f"notify: {json.dumps({'webhook': {'url': receiver.url}} | notify_keys)}"
    connector.write_job(notify_line, *job_lines)
    return notify_line


def run_sync(connector: Connector, **environ: str | None) -> CommandResult:
    """Sync the job on virtual time, in which the pause before an alert is sent again takes no time."""
    return connector.sync("job.yaml", environ=environ, clock=skip_waits())


def test_an_ok_run_sends_an_alert_only_if_the_job_asks_for_it(connector: Connector, webhook: WebhookReceiver) -> None:
    write_job(connector, webhook)
    assert run_sync(connector).exit_code == 0
    assert webhook.posts == []
    notify_line = write_job(connector, webhook, on="always")
    (connector.folder / "export.yaml").write_text(f"job: crm\nexport: {{to: out.csv}}\n{notify_line}\n")
    assert run_sync(connector).exit_code == 0
    assert connector.sync("job.yaml", "--dry-run").exit_code == 0
    export_result = connector.run_json("export", "export.yaml")
    assert "webhook-signature" not in webhook.posts[0][0]
    alerts = webhook.pop_alerts()
    assert [(alert["reason"], alert["report"]["command"]) for alert in alerts] == [("run", "sync"), ("run", "export")]
    assert alerts[1]["report"] == export_result.report


def test_a_failed_alert_is_reported_and_sent_again_by_the_next_run(
    connector: Connector, webhook: WebhookReceiver
) -> None:
    write_job(connector, webhook, webhook={"url": "${HOOK_URL}", "secret": "${HOOK_SECRET}"})
    connector.environ |= {"HOOK_URL": webhook.url, "HOOK_SECRET": SECRET}
    connector.write_people("email", "ann@example.com", "<nobody>")
    webhook.next_statuses = [500, 307, 404]
    failed_result = run_sync(connector)
    assert (failed_result.exit_code, failed_result.report["status"], len(webhook.posts)) == (1, "partial", 3)
    expected_text = "failed 3 times: 127.0.0.1 answered 404. The next run of the job sends the alert again."
    assert expected_text in failed_result.stderr
    assert not any(secret in failed_result.stderr + failed_result.stdout for secret in ("T0PS3CRET", SECRET))
    (record_path,) = (connector.folder / "state" / "alerts").iterdir()
    assert stat.S_IMODE(record_path.stat().st_mode) == 0o600
    webhook.pop_posts()
    connector.write_addresses(3)
    recovered_result = run_sync(connector)
    (headers, _), _ = webhook.posts
    assert headers["webhook-id"] == f"msg_{failed_result.report['run_id']}"
    alerts = webhook.pop_alerts()
    assert [alert["reason"] for alert in alerts] == ["failure", "recovery"]
    for alert, result in zip(alerts, (failed_result, recovered_result), strict=True):
        assert alert["report"]["run_id"] == result.report["run_id"]
    assert run_sync(connector).exit_code == 0
    assert webhook.posts == []


def test_a_failed_alert_of_a_successful_run_is_reported_despite_the_option_quiet(
    connector: Connector, webhook: WebhookReceiver
) -> None:
    write_job(connector, webhook, on="always")
    webhook.next_statuses = [500, 500, 500]
    result = connector.run("sync", "job.yaml", "--quiet", clock=skip_waits())
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("The job's alert failed 3 times")


def test_a_failed_alert_is_not_sent_again_without_a_state_folder(
    connector: Connector, webhook: WebhookReceiver
) -> None:
    write_job(connector, webhook)
    webhook.next_statuses = [500, 500, 500]
    result = run_sync(connector, CONNECTOR_STATE_DIR=str(connector.folder / "people.csv" / "state"))
    assert result.is_refused
    assert "No later run sends the alert again, because the state folder cannot be used." in result.stderr
    assert len(webhook.posts) == 3


def test_a_run_that_finds_the_ledger_locked_sends_one_alert(connector: Connector, webhook: WebhookReceiver) -> None:
    write_job(connector, webhook)
    run_sync(connector)
    with open_ledger(connector.ledger.url):
        assert run_sync(connector).exit_code == 4
        assert run_sync(connector).exit_code == 4
    (alert,) = webhook.pop_alerts()
    assert (alert["reason"], alert["report"]["status"]) == ("failure", "locked")
    assert "did not run, because another run holds the lock" in alert["text"]
    runs = connector.run_json("status").report["runs"]
    assert [(run["status"], run["exit_code"]) for run in runs] == [("locked", 4), ("locked", 4), ("ok", 0)]


def test_the_alert_about_a_refused_token_has_the_recorded_report(
    connector: Connector, webhook: WebhookReceiver
) -> None:
    write_job(connector, webhook)
    environ = {"CONNECTOR_TOKEN": "not-the-token-at-all"}
    result = connector.sync("job.yaml", environ=environ)
    assert result.is_refused
    (alert,) = webhook.pop_alerts()
    report = alert["report"]
    assert (report["job"], report["command"], report["status"]) == ("crm", "sync", "usage")
    assert report["messages"] == [result.report["message"]]
    (run,) = connector.run_json("status").report["runs"]
    assert (run["run_id"], run["account"]) == (report["run_id"], connector.sandbox.base_url)
    connector.sync("job.yaml", "--dry-run", environ=environ)
    assert webhook.posts == []


def test_a_refused_job_file_sends_an_alert(connector: Connector, webhook: WebhookReceiver) -> None:
    write_job(connector, webhook, "nonsense: 1")
    assert run_sync(connector).is_refused
    (alert,) = webhook.pop_alerts()
    assert (alert["report"]["job"], alert["report"]["status"]) == ("crm", "usage")
    assert "there is no such key" in alert["text"]
