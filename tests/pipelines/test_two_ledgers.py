"""Two runs with different ledgers that load into one base at the same time: the list shows each run the creates of the
other run."""

import os
import signal
from pathlib import Path

from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, CommandResult, Connector, wait_for_result
from tests.pipelines.planned import count_requests

FOREIGN_SUBSCRIBERS_TEXT = "this run did not create"


def import_during_another_import(connector: Connector, other_path: Path) -> tuple[CommandResult, CommandResult]:
    """Import 40 people, and import another file with another ledger while the first import is paused."""
    connector.import_file(connector.write_addresses(5, name="first.csv"))
    people_path = connector.write_addresses(40, first_index=5)
    connector.sandbox.switch(latency_ms=20)
    options = (*NEWS_IMPORT_OPTIONS, "--max-rate", "20", "--output", "json")
    with connector.start("import", people_path, *options) as process:
        connector.wait_for_subscribers(9)
        os.kill(process.pid, signal.SIGSTOP)
        environ = {"CONNECTOR_STATE_DIR": str(connector.folder / "another")}
        other_result = connector.import_file(other_path, environ=environ)
        os.kill(process.pid, signal.SIGCONT)
        return wait_for_result(process), other_result


def test_a_load_reports_all_subscribers_that_another_program_created_meanwhile(connector: Connector) -> None:
    other_path = connector.write_addresses(10, first_index=43, name="other.csv")
    result, other_result = import_during_another_import(connector, other_path)
    assert (result.rows, other_result.rows["created"]) == ({"read": 40, "created": 40}, 10)
    assert sorted(connector.count_creates_by_email().values())[-3:] == [1, 2, 2]
    (message,) = result.find_messages(FOREIGN_SUBSCRIBERS_TEXT)
    assert message.startswith("10 subscribers appeared in the base during this run")


def test_a_load_without_another_program_reports_no_foreign_subscriber(connector: Connector) -> None:
    people_path = connector.write_addresses(30)
    assert connector.import_file(people_path).find_messages(FOREIGN_SUBSCRIBERS_TEXT) == []
    connector.write_addresses(60, name=people_path)
    assert connector.import_file(people_path).find_messages(FOREIGN_SUBSCRIBERS_TEXT) == []
    requests = count_requests(connector.sandbox, "list")
    connector.import_file(people_path)
    assert count_requests(connector.sandbox, "list") <= requests + 1  # one request of the account guard
