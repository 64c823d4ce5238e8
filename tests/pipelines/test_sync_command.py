"""`connector sync JOB…` loads the source of each job."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.pipelines.conftest import Connector

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


def test_a_database_is_synced_by_its_job(connector: Connector) -> None:
    write_customers(
        connector.folder / "crm.db",
        ("ann@x.org", "F", "a|b", "29/02/1980", 1012, 1),
        ("bob@x.org", None, None, None, None, 1),
        ("bad@x.org", "?", "", "31/02/1980", 1, 1),
        ("out@x.org", "M", "", "", 1, 0),
    )
    job = write_job(connector.folder, SQL_JOB)
    result = connector.run_json("sync", job).expect(1, read=3, invalid=1, created=2)
    assert result.report["command"] == "sync"
    subscribers = {event["subscriber"]["Email"]: event["subscriber"] for event in connector.sandbox.truth()["events"]}
    ann = subscribers["ann@x.org"]
    assert (ann["Gender"], ann["Tags"], ann["Birthday"], ann["Address"]["Zip"], ann["IsActive"]) == (
        "female", ["a", "b"], "1980-02-29", "1012", True,
    )  # fmt: skip
    connector.run_json("sync", job).expect_rows(read=3, invalid=1, exists=2)
