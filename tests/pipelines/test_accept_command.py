"""`connector accept`: a known bad row turns no run partial, until it changes."""

import csv
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, write_csv

JOB = """
job: crm
source: {file: {path: people.csv}}
subscriber: {base: {name: News}, fields: {email: email, first_name: name, birthday: born, is_active: {value: true}}}
load: {quiet_period: 200ms}
"""
HEADER = "email,name,born,seen"
GOOD, BAD = "ann@x.org,Ann,1980-02-29,1", "bob@x.org,Bob,31.02.1980,1"
RAGGED, REFUSED = "cut,short", "tom@x.org,,1980-01-01,1"


@pytest.fixture
def job(connector: Connector, tmp_path: Path) -> Path:
    """A job whose source has one good row, and one of each kind that is bad."""
    write_csv(tmp_path / "people.csv", HEADER, GOOD, BAD, RAGGED, REFUSED)
    connector.sandbox.switch(required="FirstName")
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def sync(connector: Connector, job: Path) -> tuple[int, dict[str, int], list[str]]:
    """The exit code, what was accepted, and the addresses of the rejects file."""
    ended = connector.run_json("sync", job)
    report = ended.report
    if report["rejects_file"] is None:
        return ended.code, report.get("accepted", {}), []
    with Path(report["rejects_file"]).open(newline="") as file:
        return ended.code, report.get("accepted", {}), [row["email"] for row in csv.DictReader(file)]


def test_the_rows_of_a_rejects_file_make_no_run_partial_until_they_change(
    connector: Connector, job: Path, tmp_path: Path
) -> None:
    first = connector.run_json("sync", job)
    assert (first.code, first.rows["invalid"], first.rows["rejected"]) == (1, 2, 1)
    accepted = connector.run_json("accept", first.report["rejects_file"])
    assert (accepted.code, accepted.report["accepted"]) == (0, 3)
    for name in ("accepted.html", "accepted.json") * 2:  # its own earlier report is replaced
        assert connector.run("accept", first.report["rejects_file"], "--report", name).code == 0
    assert "rejected" in connector.run("status").stdout  # as far as it is known before another run
    assert sync(connector, job) == (0, {"invalid": 2, "rejected": 1}, [])
    assert connector.run_json("status").report["next"] == []
    assert connector.run_json("report", "--out", "health.html").report["next"] == []
    assert connector.run_json("plan", job).code == 0

    changed = BAD.replace("31.02", "32.02"), REFUSED.replace("1980", "1981")
    write_csv(tmp_path / "people.csv", HEADER, GOOD, *changed, RAGGED)
    assert sync(connector, job) == (1, {"invalid": 1}, ["bob@x.org", "tom@x.org"])
    write_csv(tmp_path / "people.csv", HEADER, GOOD, BAD[:-1] + "2", RAGGED, REFUSED)  # in a column that is not used
    assert sync(connector, job)[0] == 0

    assert connector.run_json("accept", "--revoke", "--job", job).report["accepted"] == 3
    assert sync(connector, job)[:2] == (1, {})


def test_a_row_is_accepted_for_its_base_alone(connector: Connector, job: Path) -> None:
    assert connector.run("accept", connector.run_json("sync", job).report["rejects_file"]).code == 0
    job.write_text(JOB.replace("News", "Shop"))
    assert sync(connector, job) == (1, {}, ["", "bob@x.org", "tom@x.org"])


def test_a_row_is_accepted_by_its_identity(connector: Connector, job: Path) -> None:
    sync(connector, job)
    accepted = connector.run_json("accept", "--job", job, "BOB@x.org", "nowhere@x.org")
    assert (accepted.code, accepted.report["accepted"]) == (1, 1)
    assert sync(connector, job) == (1, {"invalid": 1}, ["", "tom@x.org"])
    left = connector.run_json("accept", "--job", job, "-", stdin="tom@x.org\ncut\n")
    assert left.report["accepted"] == 1


def test_what_no_run_of_this_ledger_wrote_is_refused(connector: Connector, job: Path, tmp_path: Path) -> None:
    connector.run("validate", job, "--rejects", "rejects.csv")
    for path, words in (("people.csv", "no rejects file"), ("rejects.csv", "the ledger knows no import or sync")):
        sync(connector, job)
        refused = connector.run("accept", path)
        assert refused.code == 2
        assert words in refused.stderr
    assert connector.run("accept").is_refused
    refused = connector.run("accept", "rejects.csv", "--job", job)
    assert (refused.code, "rejects.csv is a file" in refused.stderr) == (2, True)
