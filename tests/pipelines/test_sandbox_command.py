"""`connector sandbox` and `connector demo`: the imitation of the service from the command line."""

import re
import signal

from tests.pipelines.conftest import Connector


def test_the_sandbox_command_serves_requests_until_it_gets_a_signal(connector: Connector) -> None:
    arguments = ("sandbox", "--port", "0", "--token", "try-me", "--data", "data", "--set", "order=id_desc")
    with connector.start_new_interpreter(*arguments) as process:
        assert process.stdout is not None
        base_url = process.stdout.readline().split()[-1]
        environ = {"CONNECTOR_BASE_URL": base_url, "CONNECTOR_TOKEN": "try-me"}
        import_result = connector.import_file(connector.write_addresses(5), environ=environ)
        export_result = connector.run_json("export", "out.csv", environ=environ)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=30)
    assert import_result.rows == {"read": 5, "created": 5}
    assert export_result.report["certificate"]["order"] == "id_desc"
    assert (process.returncode, "Traceback" in stderr) == (0, False)


def test_the_message_about_a_port_in_use_names_the_port(connector: Connector) -> None:
    port = connector.sandbox.base_url.rpartition(":")[2]
    result = connector.run("sandbox", "--port", port)
    assert (result.exit_code, port in result.stderr) == (2, True)


def test_the_demo_reports_that_the_service_the_ledger_and_the_warehouse_agree(connector: Connector) -> None:
    result = connector.run("demo", "--folder", "demo", "--people", "400")
    assert result.exit_code == 0, result.stdout
    assert "verdict: service, ledger and warehouse agree" in result.stdout
    assert len(re.findall(r"^yes ", result.stdout, re.MULTILINE)) == 5
    assert {"crm.yaml", "warehouse.duckdb", "state"} <= {path.name for path in (connector.folder / "demo").iterdir()}
    assert (connector.folder / "demo").stat().st_mode & 0o077 == 0
