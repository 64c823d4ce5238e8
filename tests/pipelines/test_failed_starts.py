"""`connector status` lists every start of a job, even if the run could not begin."""

from pathlib import Path
from typing import Any

import pytest

from connector import Connector as Library, ConnectorError
from tests.pipelines.conftest import Connector, build_job

JOB_TEXT_BY_FILE_NAME = {
    "good.yaml": build_job(job="good"),
    "sql.yaml": build_job(source="sql: {url: '${CRM_URL}', table: people}"),
    "key.yaml": build_job("nonsense: 1", job="mistyped"),
    "broken.yaml": "job: [",
    "export.yaml": "job: out\nexport: {to: no-such-folder/out.csv}\n",
    "mail.yaml": "job: hello\nsource: {file: {path: people.csv}}\n"
    "mail: {campaign: hello, to: email, from: {email: a@example.com}, subject: Hi, text: missing.txt}\n",
}
CLOSED_PORT_ENVIRON = {"CRM_URL": "postgresql://user:hunter2@127.0.0.1:1/crm"}


@pytest.fixture
def jobs_connector(connector: Connector, tmp_path: Path) -> Connector:
    connector.write_addresses(2)
    for name, text in JOB_TEXT_BY_FILE_NAME.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return connector


def list_status_runs(connector: Connector) -> list[dict[str, Any]]:
    """Return the runs of `status`, the earliest first."""
    runs: list[dict[str, Any]] = connector.run_json("status").report["runs"]
    return runs[::-1]


def test_a_run_whose_ledger_file_is_not_a_database_is_refused(jobs_connector: Connector, tmp_path: Path) -> None:
    environ = {"CONNECTOR_LEDGER": f"sqlite:///{tmp_path}/people.csv"}
    result = jobs_connector.run_json("sync", "good.yaml", environ=environ)
    assert (result.exit_code, result.report["status"]) == (2, "usage")
    assert "the file is not a database" in result.report["messages"][0]
    assert jobs_connector.run("check", "good.yaml", environ=environ).exit_code == 2


@pytest.mark.parametrize(
    ("command", "environ", "expected_run", "message"),
    [
        ("sync sql.yaml", CLOSED_PORT_ENVIRON, ("crm", "sync", "aborted", 3), "Connection refused"),
        ("sync key.yaml", {}, ("mistyped", "sync", "usage", 2), "nonsense: there is no such key"),
        ("sync broken.yaml", {}, ("broken", "sync", "usage", 2), "not YAML"),
        ("sync good.yaml", {"CONNECTOR_TOKEN": "another"}, ("good", "sync", "usage", 2), "heck the token"),
        ("export export.yaml", {}, ("out", "export", "usage", 2), "no-such-folder"),
        ("mail mail.yaml", {}, ("hello", "mail", "usage", 2), "missing.txt"),
    ],
)
def test_status_lists_each_failed_start(
    jobs_connector: Connector,
    command: str,
    environ: dict[str, str | None],
    expected_run: tuple[object, ...],
    message: str,
) -> None:
    result = jobs_connector.run(*command.split(), environ=environ)
    (run,) = list_status_runs(jobs_connector)
    assert (run["job"], run["command"], run["status"], run["exit_code"]) == expected_run
    assert result.exit_code == expected_run[3]
    assert message in run["messages"][0]
    assert run["messages"][0] in result.stderr
    assert "hunter2" not in str(run)
    assert run["rows"].get("created", 0) == run["rows"].get("written", 0) == 0
    output = jobs_connector.run("status").stdout
    assert all(text in output for text in (f"{run['command']} {run['job']}", f"    {run['messages'][0]}", "Next: "))
    assert " 0 read" not in output
    assert run["messages"][0] in jobs_connector.run("status", run["run_id"]).stdout


def test_status_lists_a_run_whose_ledger_cannot_be_reached(jobs_connector: Connector) -> None:
    environ = {"CONNECTOR_LEDGER": "postgresql://127.0.0.1:1/ledger"}
    assert jobs_connector.run("sync", "good.yaml", environ=environ).exit_code == 3
    status_result = jobs_connector.run_json("status", environ=environ)
    (run,) = status_result.report["runs"]
    assert (status_result.exit_code, run["job"], run["status"]) == (3, "good", "aborted")
    result = jobs_connector.run("status", run["run_id"], environ=environ)
    assert (result.exit_code, result.stdout.count("sync good")) == (3, 2)
    assert "the ledger cannot be read" in result.stdout
    assert jobs_connector.run("status", "--html", "all.html", environ=environ).exit_code == 3
    assert "the ledger cannot be read" in (jobs_connector.folder / "all.html").read_text()


def test_status_does_not_list_a_failed_start_of_a_dry_run(jobs_connector: Connector) -> None:
    assert jobs_connector.sync("key.yaml", "--dry-run").is_refused
    assert list_status_runs(jobs_connector) == []


def test_status_lists_a_run_that_the_library_could_not_start(jobs_connector: Connector, tmp_path: Path) -> None:
    library = Library(
        base_url=jobs_connector.sandbox.base_url, token=jobs_connector.sandbox.token, state_dir=tmp_path / "state"
    )
    with pytest.raises(ConnectorError) as error_info:
        library.sync(tmp_path / "key.yaml")
    (run,) = list_status_runs(jobs_connector)
    assert (run["run_id"], run["command"], run["status"]) == (error_info.value.run_id, "sync", "usage")
