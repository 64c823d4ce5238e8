"""`connector sync JOB…` loads the source of each job."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.pipelines.conftest import Connector, count_stored, write_addresses

SQL_JOB = """
job: crm
source: {sql: {url: "sqlite:///crm.db", query: "select * from customers where wanted = 1 order by mail"}}
subscriber:
  base: {name: News}
  fields:
    email: mail
    is_active: {value: true}
    gender: {column: sex, values: {F: female, M: male}}
    tags: {column: segments, split: "|"}
    birthday: {column: dob, format: "%d/%m/%Y"}
    address_zip: zip
load: {quiet_period: 200ms}
"""


def write_job(folder: Path, text: str, name: str = "job.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def write_customers(path: Path, *rows: tuple[object, ...]) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE customers (mail, sex, segments, dob, zip, wanted)")
        database.executemany("INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?)", rows)


def test_a_database_is_synced_by_its_job(connector: Connector, tmp_path: Path) -> None:
    write_customers(
        tmp_path / "crm.db",
        ("ann@x.org", "F", "a|b", "29/02/1980", 1012, 1),
        ("bob@x.org", None, None, None, None, 1),
        ("bad@x.org", "?", "", "31/02/1980", 1, 1),
        ("out@x.org", "M", "", "", 1, 0),
    )
    job = write_job(tmp_path, SQL_JOB)
    result = connector.run_json("sync", job)
    assert (result.code, result.rows) == (1, {"read": 3, "invalid": 1, "created": 2})
    assert result.report["command"] == "sync"
    subscribers = {event["subscriber"]["Email"]: event["subscriber"] for event in connector.sandbox.truth()["events"]}
    ann = subscribers["ann@x.org"]
    assert (ann["Gender"], ann["Tags"], ann["Birthday"], ann["Address"]["Zip"], ann["IsActive"]) == (
        "female", ["a", "b"], "1980-02-29", "1012", True,
    )  # fmt: skip
    second_result = connector.run_json("sync", job)
    assert second_result.rows == {"read": 3, "invalid": 1, "exists": 2}


def test_a_job_with_a_refused_token_does_not_prevent_other_jobs(connector: Connector, tmp_path: Path) -> None:
    text = "job: {0}\nsource: {{file: {{path: {0}.csv}}}}\nsubscriber: {{base: {{id: 7}}}}\n"
    names = ("one", "two", "three")
    for index, name in enumerate(names):
        write_addresses(tmp_path / f"{name}.csv", 2, first_index=2 * index)
    service_key = 'service: {authorization: "Bearer {token}"}\n'
    jobs = [write_job(tmp_path, text.format(name) + service_key * (name == "two"), f"{name}.yaml") for name in names]
    result = connector.run_json("sync", *jobs, "--metrics", tmp_path / "jobs.prom", "--report", tmp_path / "jobs.html")
    assert (result.code, result.report["status"]) == (2, "usage")
    runs = {run["job"]: run for run in result.report["runs"]}
    assert [runs[name]["status"] for name in names] == ["ok", "usage", "ok"]
    assert "401" in runs["two"]["messages"][0]
    assert sum(run["rows"]["created"] for run in runs.values()) == len(count_stored(connector.sandbox)) == 4
