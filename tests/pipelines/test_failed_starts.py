"""Every start of a job leaves a line in `connector status`, also if the run could not begin."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connector import Connector as Library, ConnectorError
from connector.ledger.opening import open_ledger
from tests.pipelines.conftest import Connector, write_addresses

SUBSCRIBER = "subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}\n"
FILE = "source: {file: {path: people.csv}}\n"
SQL = "source: {sql: {url: '${CRM_URL}', table: people}}\n"
JOBS = {
    "good.yaml": f"job: good\n{FILE}{SUBSCRIBER}",
    "sql.yaml": f"job: crm\n{SQL}{SUBSCRIBER}",
    "key.yaml": f"job: mistyped\n{FILE}{SUBSCRIBER}nonsense: 1\n",
    "broken.yaml": "job: [",
    "silent.yaml": f"job: silent\n{FILE}subscriber: {{base: {{name: News}}, fields: {{email: email}}}}\n",
    "export.yaml": "job: out\nexport: {to: no-such-folder/out.csv}\n",
    "mail.yaml": f"job: hello\n{FILE}mail: {{campaign: hello, to: email, from: {{email: a@example.com}}, subject: Hi, "
    "text: missing.txt}\n",
}
CLOSED_PORT = {"CRM_URL": "postgresql://user:hunter2@127.0.0.1:1/crm"}


@pytest.fixture
def jobs(connector: Connector, tmp_path: Path) -> Connector:
    write_addresses(tmp_path / "people.csv", 2)
    for name, text in JOBS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return connector


def list_lines(connector: Connector) -> list[dict[str, Any]]:
    """The runs of `status`, the earliest first."""
    runs: list[dict[str, Any]] = connector.run_json("status").report["runs"]
    return runs[::-1]


@pytest.mark.parametrize(
    ("command", "environ", "line", "message"),
    [
        ("sync sql.yaml", CLOSED_PORT, ("crm", "sync", "aborted", 3), "Connection refused"),
        ("sync sql.yaml", {}, ("crm", "sync", "usage", 2), "CRM_URL"),
        ("reconcile sql.yaml", CLOSED_PORT, ("crm", "reconcile", "aborted", 3), "Connection refused"),
        ("sync key.yaml", {}, ("mistyped", "sync", "usage", 2), "nonsense: there is no such key"),
        ("sync broken.yaml", {}, ("broken", "sync", "usage", 2), "not YAML"),
        ("sync missing.yaml", {}, ("missing", "sync", "usage", 2), "no such job file"),
        ("sync silent.yaml", {}, ("silent", "sync", "usage", 2), "is_active"),
        ("sync good.yaml", {"CONNECTOR_TOKEN": None}, ("good", "sync", "usage", 2), "no token"),
        ("sync good.yaml", {"CONNECTOR_TOKEN": "another"}, ("good", "sync", "usage", 2), "heck the token"),
        ("export export.yaml", {}, ("out", "export", "usage", 2), "no-such-folder"),
        ("mail mail.yaml", {}, ("hello", "mail", "usage", 2), "missing.txt"),
    ],
)
def test_a_run_that_could_not_begin_is_a_line_of_status(
    jobs: Connector, command: str, environ: dict[str, str | None], line: tuple[str, str, str, int], message: str
) -> None:
    result = jobs.run(*command.split(), environ=environ)
    (run,) = list_lines(jobs)
    assert (run["job"], run["command"], run["status"], run["exit_code"]) == line
    assert result.code == line[3]
    assert message in run["messages"][0]
    assert run["messages"][0] in result.stderr
    assert "hunter2" not in str(run)
    assert run["rows"].get("created", 0) == run["rows"].get("written", 0) == 0
    shown = jobs.run("status").stdout
    assert f"{line[1]} {line[0]}" in shown
    assert f"    {run['messages'][0].splitlines()[0]}" in shown
    assert " 0 read" not in shown
    job_file = f"{jobs.folder}/{command.split()[1]}"
    again = f"Run the same command again:\n  connector {line[1]} {job_file}\n"
    assert (f"To find what else is wrong, run:\n  connector check {job_file}\n" if line[3] == 2 else again) in shown
    assert message in jobs.run("status", run["run_id"]).stdout


def test_a_run_that_another_run_keeps_out_is_one_line(jobs: Connector, tmp_path: Path) -> None:
    jobs.run_json("sync", "good.yaml")
    with open_ledger(f"sqlite:///{tmp_path}/state/ledger.db"):
        assert jobs.run_json("sync", "good.yaml").code == 4
    assert [(run["status"], run["exit_code"]) for run in list_lines(jobs)] == [("ok", 0), ("locked", 4)]


def test_each_of_several_jobs_has_a_line_if_one_of_them_is_at_fault(jobs: Connector) -> None:
    result = jobs.run_json("sync", "good.yaml", "key.yaml")
    assert result.is_refused
    assert sorted((run["job"], run["status"]) for run in list_lines(jobs)) == [("good", "usage"), ("mistyped", "usage")]
    assert all("key.yaml" in run["messages"][0] for run in list_lines(jobs))
    jobs.run("status", "--html", "health.html")
    assert "0 of 2 jobs ended well the last time." in (jobs.folder / "health.html").read_text(encoding="utf-8")


def test_of_several_jobs_one_that_is_refused_has_one_line_with_the_id_of_its_report(jobs: Connector) -> None:
    result = jobs.run_json("sync", "silent.yaml", "good.yaml")
    assert (result.code, [run["status"] for run in result.report["runs"]]) == (2, ["usage", "ok"])
    assert {run["run_id"] for run in list_lines(jobs)} == {run["run_id"] for run in result.report["runs"]}


def test_a_run_whose_ledger_cannot_be_reached_is_a_line_of_status(jobs: Connector) -> None:
    environ = {"CONNECTOR_LEDGER": "postgresql://127.0.0.1:1/ledger"}
    assert jobs.run("sync", "good.yaml", environ=environ).code == 3
    status = jobs.run_json("status", environ=environ)
    (run,) = status.report["runs"]
    assert (status.code, status.report["status"], run["job"], run["status"]) == (3, "aborted", "good", "aborted")
    shown = jobs.run("status", run["run_id"], environ=environ)
    assert (shown.code, "the ledger cannot be read" in shown.stdout, shown.stdout.count("sync good")) == (3, True, 2)
    assert jobs.run("status", "--html", "all.html", environ=environ).code == 3
    assert "the ledger cannot be read" in (jobs.folder / "all.html").read_text()


@pytest.mark.parametrize("command", ["sync key.yaml --dry-run", "plan key.yaml", "mail mail.yaml --preview 1"])
def test_a_plan_that_could_not_begin_leaves_no_line(jobs: Connector, command: str) -> None:
    assert jobs.run_json(*command.split()).is_refused
    assert list_lines(jobs) == []


CALLS: dict[str, Callable[[Library], object]] = {
    "sync": lambda library: library.sync("silent.yaml"),
    "export": lambda library: library.export("export.yaml"),
    "mail": lambda library: library.mail("mail.yaml"),
}


@pytest.mark.parametrize("command", CALLS)
def test_a_run_of_the_library_that_could_not_begin_is_a_line_too(
    jobs: Connector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    library = Library(base_url=jobs.sandbox.base_url, token=jobs.sandbox.token, state_dir=tmp_path / "state")
    with pytest.raises(ConnectorError) as refused:
        CALLS[command](library)
    (run,) = list_lines(jobs)
    assert (run["run_id"], run["command"], run["status"]) == (refused.value.run_id, command, "usage")
