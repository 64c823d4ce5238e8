"""`time_limit` and `--time-limit`: a run past its time limit stops cleanly, and the next run continues."""

import pytest

from tests.pipelines.conftest import Connector, count_stored_emails, write_addresses, write_csv
from tests.pipelines.emails.test_mail_command import write_job as write_mail_job
from tests.pipelines.planned import write_job

PEOPLE_COUNT = 60


def test_a_load_past_its_time_limit_stops_cleanly_and_the_next_run_continues(connector: Connector) -> None:
    write_addresses(connector.folder / "people.csv", PEOPLE_COUNT)
    path = write_job(connector.folder, "time_limit: 3s")
    text = path.read_text().replace("first_name: name, ", "").replace("200ms}", "200ms, max_rate: 10}")
    (connector.folder / "limited.yaml").write_text(text)
    (connector.folder / "job.yaml").write_text(
        text.replace("time_limit: 3s", "time_limit: 1h").replace(", max_rate: 10", "")
    )
    result = connector.run_json("sync", "limited.yaml")
    assert (result.exit_code, result.report["status"]) == (3, "aborted")
    assert "the time limit of 3s has passed" in result.report["messages"][0]
    assert result.rows.keys() == {"read", "created", "unsent"}

    second_result = connector.run_json("sync", "job.yaml")
    assert (second_result.exit_code, second_result.rows["read"]) == (0, PEOPLE_COUNT)
    assert second_result.rows["exists"] >= result.rows["created"]
    assert set(count_stored_emails(connector.sandbox).values()) == {1}
    assert len(count_stored_emails(connector.sandbox)) == PEOPLE_COUNT


@pytest.mark.parametrize("command", ["export out.csv", "reconcile job.yaml --to out.csv", "mail mail.yaml"])
def test_a_listing_past_its_time_limit_is_aborted_and_writes_no_file(connector: Connector, command: str) -> None:
    connector.sandbox.switch(latency_ms=60_000)
    write_csv(connector.folder / "people.csv", "email,name", "ann@x.org,Ann")
    write_job(connector.folder)
    write_mail_job(connector.folder, {"to": "email", "subject": "Hello", "html": {"content": "<p>Hello</p>"}})
    result = connector.run_json(*command.split(), "--time-limit", "1s")
    assert (result.exit_code, result.report["status"], "time limit" in result.report["messages"][0]) == (
        3,
        "aborted",
        True,
    )
    assert not (connector.folder / "out.csv").exists()
