"""`connector sandbox`: the made-up service from the command line."""

import signal
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, write_addresses


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_serves_and_ends_with_a_signal(
    connector: Connector, tmp_path: Path, number: signal.Signals
) -> None:
    arguments = ("sandbox", "--port", "0", "--token", "try-me", "--data", "data", "--set", "order=id_desc")
    with connector.start_anew(*arguments) as process:
        assert process.stdout is not None
        base_url = process.stdout.readline().split()[-1]
        environ = {"CONNECTOR_BASE_URL": base_url, "CONNECTOR_TOKEN": "try-me"}
        people = write_addresses(tmp_path / "people.csv", 5)
        imported = connector.run_json("import", people, "--base-name", "News", environ=environ)
        exported = connector.run_json("export", "out.csv", environ=environ)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=30)
    assert imported.rows == {"read": 5, "created": 5}
    assert exported.report["certificate"]["order"] == "id_desc"
    assert process.returncode == 0
    assert "Traceback" not in stderr


def test_a_port_that_is_taken_is_told(connector: Connector) -> None:
    port = connector.sandbox.base_url.rpartition(":")[2]
    ended = connector.run("sandbox", "--port", port)
    assert ended.code == 2
    assert port in ended.stderr
