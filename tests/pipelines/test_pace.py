"""Runs send no request during a pause of the service, and begin at the rate limit that the last load has found."""

import pytest

from connector.ledger.opening import open_ledger
from tests.pipelines.conftest import Connector


@pytest.mark.parametrize(
    "limit_switches",
    [{"limiter": "fixed_window", "retry_after": "unix"}, {"limit_status": 403}],
    ids=["by 429 until a Unix time", "by 403"],
)
def test_no_request_is_sent_during_a_pause_that_the_service_requires(
    connector: Connector, limit_switches: dict[str, object]
) -> None:
    connector.sandbox.switch(**({"rate": 40, "retry_after": "seconds", "latency_ms": 5} | limit_switches))
    result = connector.import_file(connector.write_addresses(80)).expect(0, read=80, created=80)
    create_counts = result.report["requests"]["create"]
    assert (create_counts["limited"] > 0, create_counts["failed"]) == (True, 0)
    assert connector.sandbox.stats()["inside_retry_after"]["told"] == 0


def test_a_very_long_pause_ends_the_run_and_a_message_names_the_end_of_the_pause(connector: Connector) -> None:
    connector.sandbox.switch(refuse=1, refuse_retry_after_s=7200)
    result = connector.import_file(connector.write_addresses(10))
    result.expect(3, read=10, rejected=1, unsent=9)
    assert "run again after 20" in result.stderr
    assert connector.sandbox.stats()["requests"]["create"]["received"] == 1


LIMIT_SWITCHES = {"rate": 50, "burst": 2, "retry_after": "none", "latency_ms": 5, "max_limit": 20}


def test_an_export_begins_at_the_rate_limit_that_the_last_load_found(connector: Connector) -> None:
    connector.sandbox.seed(200, base_name="News")
    connector.import_file(connector.write_addresses(1, name="one.csv"))  # creates the ledger, and reaches no limit
    connector.sandbox.switch(**LIMIT_SWITCHES)
    refused_request_counts = []
    for index in range(2):
        refused_count_before = connector.sandbox.stats()["limited"]
        assert connector.run_json("export", "people.parquet").exit_code == 0
        refused_request_counts.append(connector.sandbox.stats()["limited"] - refused_count_before)
        if index == 0:
            path = connector.write_addresses(40, first_index=1000, name="more.csv")
            connector.import_file(path).expect_rows(read=40, created=40)
    assert refused_request_counts[1] < refused_request_counts[0]


def test_an_export_under_a_rate_limit_does_not_wait_for_the_run_that_holds_the_ledger(connector: Connector) -> None:
    connector.sandbox.seed(200, base_name="News")
    connector.sandbox.switch(**LIMIT_SWITCHES)
    (connector.folder / "state").mkdir()
    with open_ledger(connector.ledger.url):
        result = connector.run_json("export", "people.parquet")
    assert (result.exit_code, connector.sandbox.stats()["limited"] > 0) == (0, True), result.stderr
