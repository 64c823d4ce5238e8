"""`time_limit` and `--time-limit`: a run past its time limit stops cleanly, and the next run continues."""

import pytest

from tests.pipelines.conftest import Connector
from tests.pipelines.emails.test_mail_command import write_job as write_mail_job

PEOPLE_COUNT = 60


def test_the_next_run_continues_a_load_that_exceeded_its_time_limit(connector: Connector) -> None:
    connector.write_addresses(PEOPLE_COUNT)
    connector.write_job("time_limit: 3s", load="quiet_period: 200ms, max_rate: 10")
    result = connector.sync()
    assert (result.exit_code, result.report["status"]) == (3, "aborted")
    assert "the time limit of 3s has passed" in result.report["messages"][0]
    assert result.rows.keys() == {"read", "created", "unsent"}
    connector.write_job("time_limit: 1h")
    second_result = connector.sync()
    assert (second_result.exit_code, second_result.rows["read"]) == (0, PEOPLE_COUNT)
    assert second_result.rows["exists"] >= result.rows["created"]
    assert set(connector.count_creates_by_email().values()) == {1}
    assert len(connector.count_creates_by_email()) == PEOPLE_COUNT


@pytest.mark.parametrize("command", ["export out.csv", "reconcile job.yaml --to out.csv", "mail mail.yaml"])
def test_a_command_writes_no_file_if_its_time_limit_ends_while_it_reads_the_list(
    connector: Connector, command: str
) -> None:
    connector.sandbox.switch(latency_ms=60_000)
    connector.write_people("email", "ann@x.org")
    connector.write_job()
    write_mail_job(connector.folder, {"to": "email", "subject": "Hello", "html": {"content": "<p>Hello</p>"}})
    result = connector.run_json(*command.split(), "--time-limit", "1s")
    assert result.exit_code == 3
    assert result.report["status"] == "aborted"
    assert "time limit" in result.report["messages"][0]
    assert not (connector.folder / "out.csv").exists()
