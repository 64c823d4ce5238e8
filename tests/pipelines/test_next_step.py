"""The report on a terminal ends with the next command, which works when it is copied."""

import shlex
from pathlib import Path

from tests.pipelines.conftest import Connector, count_stored, write_csv

JOB = """\
job: crm
source: {file: {path: people.csv}}
subscriber:
  base: {name: News}
  fields: {email: email, first_name: first, is_active: {value: true}}
"""


def test_the_last_line_of_a_sync_imports_the_corrected_rejects(connector: Connector, tmp_path: Path) -> None:
    (tmp_path / "crm.yaml").write_text(JOB)
    write_csv(tmp_path / "people.csv", "email,first", "ann@example.com,Ann", "nobody,Bob")
    ended = connector.run("sync", "crm.yaml")
    assert ended.code == 1
    words, command = ended.stdout.splitlines()[-2:]
    assert words == "Next: Correct the rows in the rejects file, then import it:"
    program, *arguments = shlex.split(command)
    assert program == "connector"
    rejects = Path(arguments[1])
    rejects.write_text(rejects.read_text("utf-8-sig").replace("nobody", "bob@example.com"), "utf-8")
    assert connector.run(*arguments).code == 0
    assert count_stored(connector.sandbox).total() == 2


def test_the_report_of_a_sync_advises_a_retry_with_its_job(connector: Connector, tmp_path: Path) -> None:
    (tmp_path / "crm.yaml").write_text(JOB)
    write_csv(tmp_path / "people.csv", "email,first", "ann@example.com,Ann")
    connector.sandbox.switch(required="Phone", error_status=422)
    refused = connector.run("sync", "crm.yaml").stdout
    assert f"connector retry --rejected --job {tmp_path}/crm.yaml" in refused.splitlines()[-1]


def test_a_run_that_is_ok_names_no_next_step(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email,first", "ann@example.com,Ann")
    ended = connector.run("import", "people.csv", "--base-name", "News", "--active")
    assert ended.code == 0
    assert "Next:" not in ended.stdout
