"""The request rate of real runs: during a pause of the service, and at the limit that the last load has found."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from connector.ledger.opening import open_ledger
from tests.pipelines.conftest import Connector, wait_for_result, write_addresses
from tests.pipelines.emails.test_mail_command import write_job as write_mail_job
from tests.pipelines.forked import ForkedProcess
from tests.pipelines.planned import JOB, write_job


@pytest.mark.parametrize(
    "limit_switches",
    [{"limiter": "fixed_window", "retry_after": "unix"}, {"limit_status": 403}],
    ids=["by 429 until a Unix time", "by 403"],
)
def test_no_request_is_sent_during_a_pause_of_the_service_and_no_row_is_lost(
    connector: Connector, tmp_path: Path, limit_switches: dict[str, object]
) -> None:
    connector.sandbox.switch(**({"rate": 150, "retry_after": "seconds", "latency_ms": 5} | limit_switches))
    result = connector.import_file(write_addresses(tmp_path / "people.csv", 300))
    assert (result.exit_code, result.rows) == (0, {"read": 300, "created": 300}), result.stderr
    create_counts = result.report["requests"]["create"]
    assert (create_counts["limited"] > 0, create_counts["failed"]) == (True, 0)
    assert connector.sandbox.stats()["inside_retry_after"]["told"] == 0


def test_a_very_long_pause_ends_the_run_with_the_time_of_its_end(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(refuse=1, refuse_retry_after_s=7200)
    result = connector.import_file(write_addresses(tmp_path / "people.csv", 10))
    assert (result.exit_code, result.report["status"], result.rows) == (
        3,
        "aborted",
        {"read": 10, "rejected": 1, "unsent": 9},
    )
    assert "run again after 20" in result.stderr
    assert connector.sandbox.stats()["requests"]["create"]["received"] == 1


LIMIT_SWITCHES = {"rate": 50, "burst": 2, "retry_after": "none", "latency_ms": 5, "max_limit": 20}
MAIL_KEYS = {"to": {"email": "email"}, "subject": "Hello"}


@pytest.mark.parametrize("command", ["export people.parquet", "reconcile job.yaml", "mail mail.yaml"])
def test_each_command_begins_at_the_limit_that_the_last_load_found(
    connector: Connector, tmp_path: Path, command: str
) -> None:
    prepare_run(connector, tmp_path)
    connector.import_file(tmp_path / "people.csv", "--limit", "1")  # creates the ledger, and reaches no limit
    connector.sandbox.switch(**LIMIT_SWITCHES)
    limited_request_counts = []
    for campaign in ("first", "second"):
        write_mail_job(tmp_path, {"campaign": campaign, "retry_limited": True} | MAIL_KEYS)
        limited_count_before = connector.sandbox.stats()["limited"]
        result = connector.run_json(*command.split())
        assert result.exit_code in (0, 1), result.stderr
        limited_request_counts.append(connector.sandbox.stats()["limited"] - limited_count_before)
        if campaign == "first":
            load_result = connector.import_file(write_addresses(tmp_path / "more.csv", 40, 1000))
            assert load_result.rows == {"read": 40, "created": 40}, load_result.stderr
    assert limited_request_counts[1] < limited_request_counts[0]


@pytest.mark.parametrize("ledger_state", ["none", "held", "not writable"])
def test_an_export_under_a_rate_limit_needs_no_ledger(connector: Connector, tmp_path: Path, ledger_state: str) -> None:
    prepare_run(connector, tmp_path)
    ledger_path, url = tmp_path / "ledger" / "ledger.db", f"sqlite:///{tmp_path}/ledger/ledger.db"
    with ExitStack() as exit_stack:
        ledger_holder = exit_stack.enter_context(ExitStack())
        if ledger_state != "none":
            ledger_holder.enter_context(open_ledger(url))
        if ledger_state == "not writable":
            ledger_holder.close()
            for path in (ledger_path, ledger_path.with_name("ledger.db.lock"), ledger_path.parent):
                path.chmod(0o500)
            exit_stack.callback(ledger_path.parent.chmod, 0o700)
        ledger_bytes = ledger_path.exists() and ledger_path.read_bytes()
        connector.sandbox.switch(**LIMIT_SWITCHES)
        environ = os.environ | connector.environ | {"CONNECTOR_LEDGER": url}
        with ForkedProcess(
            ["export", "people.parquet", "--output", "json"], environ, tmp_path, is_unprivileged=True
        ) as process:
            result = wait_for_result(process)
        assert (result.exit_code, result.report["status"]) == (0, "ok"), result.stderr
        assert connector.sandbox.stats()["limited"] > 0
        assert (ledger_path.exists() and ledger_path.read_bytes()) == ledger_bytes
    assert ledger_path.parent.exists() == (ledger_state != "none")


def prepare_run(connector: Connector, folder: Path) -> None:
    """Fill a list of ten pages, and write thirty rows and a job that can be reconciled."""
    connector.sandbox.seed(200, base_name="News")
    write_addresses(folder / "people.csv", 30)
    write_job(folder, text=JOB.replace("first_name: name, ", ""))
    (folder / "welcome.html").write_text("<p>Hello</p>", encoding="utf-8")
