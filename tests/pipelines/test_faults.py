"""Loads with the real client into a service that loses answers. tests/simulation has more kinds of services."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import Connector, count_stored_emails, write_addresses

FAULTS = {
    "drop_before": 0.01, "drop_after": 0.01, "error_before": 0.01, "error_after": 0.01, "cut_answer": 0.01,
    "garbage_after": 0.01, "refuse": 0.01, "refuse_retry_after_s": 0,
}  # fmt: skip
PEOPLE_COUNT = int(os.environ.get("CONNECTOR_TEST_PEOPLE", "1100"))  # more than a page

SERVICE_SWITCHES: dict[str, dict[str, Any]] = {
    "accepts duplicates, the list lags": {"list_lag_ms": 900},
    "200 for a duplicate, the list fails": {"duplicates": "reject_200", "error_shape": "plain", "list_error": 0.1},
    "list in no stable order, cuts by reset": {"order": "shuffled", "cut_by": "reset"},
}


@pytest.mark.parametrize("service_name", SERVICE_SWITCHES)
def test_a_load_under_faults_creates_each_row_once(connector: Connector, tmp_path: Path, service_name: str) -> None:
    connector.sandbox.switch(**FAULTS, **SERVICE_SWITCHES[service_name])
    result = connector.import_file(write_addresses(tmp_path / "people.csv", PEOPLE_COUNT))
    create_counts = count_stored_emails(connector.sandbox)
    assert (len(create_counts), set(create_counts.values())) == (PEOPLE_COUNT, {1})
    assert (result.exit_code, result.rows) == (0, {"read": PEOPLE_COUNT, "created": PEOPLE_COUNT})
    assert result.report["settled"]["found"] > 0
    assert result.report["settled"]["absent"] > 0


def test_an_unstable_list_and_ignored_filters_end_the_run_before_the_first_create(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.seed(3000, base_name="News")
    connector.sandbox.switch(order="shuffled", filters="ignored")
    result = connector.import_file(write_addresses(tmp_path / "people.csv", 5))
    assert result.exit_code == 3
    assert result.rows == {"read": 5, "unsent": 5}
    assert "could not be read whole" in result.stderr
    assert result.report["requests"]["create"]["sent"] == 0
