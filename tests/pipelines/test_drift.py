"""Changed rows name their fields, in a drift file beside the rejects: the service has no update (design 2, 4.12, 8)."""

import csv
import json
import sqlite3
import stat
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, Ended, write_addresses, write_csv
from tests.pipelines.test_sync_command import write_job

JOB = """
job: crm
source: {file: {path: people.csv}}
subscriber:
  base: {id: 7}
  fields:
    email: email
    is_active: {value: true}
    first_name: name
    tags: {column: segments, split: "|"}
    address_zip: zip
load: {quiet_period: 200ms}
"""
COLUMNS = ["identity", "field", "sent", "source", "_row", "_file", "_outcome", "_code", "_run_id", "_at"]


def sync(connector: Connector, *lines: str, job: str = JOB) -> Ended:
    """Sync a file of these people: email, name, segments, zip."""
    write_csv(connector.folder / "people.csv", "email,name,segments,zip", *lines)
    return connector.run_json("sync", write_job(connector.folder, job))


def read_drift(ended: Ended) -> list[dict[str, str]]:
    assert ended.report["drift_file"] is not None
    with Path(ended.report["drift_file"]).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_fields(ended: Ended) -> list[tuple[str, str, str, str]]:
    return sorted((each["identity"], each["field"], each["sent"], each["source"]) for each in read_drift(ended))


def edit_in_the_service(connector: Connector, **values: object) -> None:
    """Somebody else writes it there: a create of who is there already, which the service takes for an update."""
    connector.sandbox.switch(duplicates="upsert")
    body = json.dumps({"Subscriber": {"Base": {"Id": 7}, **values}}).encode()
    headers = {"Authorization": connector.sandbox.token, "Content-Type": "application/json"}
    url = f"{connector.sandbox.base_url}/api/subscribers/create-subscriber/"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
        assert json.load(answer)["success"] is True


def test_a_changed_row_names_its_fields_with_what_was_sent_and_what_the_source_says(connector: Connector) -> None:
    first = sync(connector, "Ann@x.org,Ann,a|b,1012", "bob@x.org,Bob,,", "eve@x.org,Eve,,7")
    assert (first.rows, first.report["drift_file"]) == ({"read": 3, "created": 3}, None)
    second = sync(connector, "Ann@x.org,Anna,a|c,1012", "bob@x.org,Bob,,", "eve@x.org,Eve,,")
    assert (second.code, second.rows) == (0, {"read": 3, "exists": 1, "changed": 2})
    assert read_fields(second) == [
        ("Ann@x.org", "first_name", "Ann", "Anna"),
        ("Ann@x.org", "tags", '["a","b"]', '["a","c"]'),
        ("eve@x.org", "address_zip", "7", ""),
    ]
    (line, *_), report = read_drift(second), second.report
    assert list(line) == COLUMNS
    file = str(connector.folder / "people.csv")
    assert [line[name] for name in COLUMNS[4:9]] == ["1", file, "changed", "changed", report["run_id"]]
    path = Path(report["drift_file"])
    assert path == connector.folder / "state" / "drift" / f"{report['run_id']}.csv"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]


def test_what_has_changed_is_told_night_after_night_while_the_source_says_so(connector: Connector) -> None:
    sync(connector, "ann@x.org,Ann,,")
    changed = [sync(connector, "ann@x.org,Anna,,") for _ in range(2)]
    assert [read_fields(each) for each in changed] == [[("ann@x.org", "first_name", "Ann", "Anna")]] * 2
    mended = sync(connector, "ann@x.org,Ann,,")
    assert (mended.rows, mended.report["drift_file"]) == ({"read": 1, "exists": 1}, None)


@pytest.mark.parametrize("filters", ["exact", "ignored"])
def test_what_the_service_has_otherwise_by_now_is_not_taken_for_what_was_sent(
    connector: Connector, filters: str
) -> None:
    sync(connector, "ann@x.org,Ann,,", "bob@x.org,Bob,,")
    edit_in_the_service(connector, Email="ann@x.org", FirstName="Annette")
    connector.sandbox.switch(filters=filters)
    changed = sync(connector, "ann@x.org,Anna,,", "bob@x.org,Rob,,")
    assert read_fields(changed) == [("ann@x.org", "first_name", "", "Anna"), ("bob@x.org", "first_name", "Bob", "Rob")]


def test_a_changed_mapping_warns_once_and_is_no_drift(connector: Connector) -> None:
    people = [f"p{each}@x.org,Ann{each},a,{each + 1}" for each in range(30)]
    sync(connector, *people)
    other = JOB.replace("first_name: name", "last_name: name").replace('split: "|"', 'default: "b", split: "|"')
    changed = sync(connector, *people, job=other)
    assert (changed.rows, changed.report["drift_file"]) == ({"read": 30, "changed": 30}, None)
    (message,) = [each for each in changed.report["messages"] if "mapping" in each]
    assert message.startswith("30 rows differ from what was sent only since the mapping has changed")
    assert "(first_name, last_name)" in message  # the rule of the tags is another one, and gives the same
    both = sync(connector, "p0@x.org,Ann0,a,99", *people[1:], job=other)
    assert read_fields(both) == [("p0@x.org", "address_zip", "1", "99")]
    assert any(each.startswith("29 rows") for each in both.report["messages"])


def test_a_zip_that_cannot_be_sent_is_told_when_its_row_is_created_and_not_again(connector: Connector) -> None:
    people = ["ann@x.org,Ann,,SW1A 1AA", "bob@x.org,Bob,,1012", "eve@x.org,Eve,,02134"]
    created = sync(connector, *people)
    assert created.rows == {"read": 3, "created": 3}
    assert read_fields(created) == [
        ("ann@x.org", "address_zip", "", "SW1A 1AA"),
        ("eve@x.org", "address_zip", "", "02134"),
    ]
    lines = [[each[name] for name in ("_row", "_outcome", "_code")] for each in read_drift(created)]
    assert sorted(lines) == [["1", "created", "zip_omitted"], ["3", "created", "zip_omitted"]]
    again = sync(connector, *people)
    assert (again.rows, again.report["drift_file"]) == ({"read": 3, "exists": 3}, None)


def test_whom_a_listing_brought_is_compared_with_what_the_first_row_said(connector: Connector) -> None:
    edit_in_the_service(connector, Email="ann@x.org", FirstName="Annette")
    assert sync(connector, "ann@x.org,Ann,,").rows == {"read": 1, "exists": 1}
    changed = sync(connector, "ann@x.org,Anna,,")
    assert read_fields(changed) == [("ann@x.org", "first_name", "", "Anna")]


def test_a_row_of_whom_an_older_version_sent_something_is_told_without_a_field(connector: Connector) -> None:
    sync(connector, "ann@x.org,Ann,,")
    with closing(sqlite3.connect(connector.folder / "state" / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE entry SET mapping_key = NULL, field_digests = NULL")
    changed = sync(connector, "ann@x.org,Anna,,")
    assert changed.rows == {"read": 1, "changed": 1}
    assert read_fields(changed) == [("ann@x.org", "", "", "")]
    assert any("does not know in which" in each for each in changed.report["messages"])


@pytest.mark.parametrize(("filters", "requests"), [("exact", 110), ("ignored", 10)])
def test_a_few_are_looked_up_and_all_are_told(connector: Connector, filters: str, requests: int) -> None:
    write_addresses(connector.folder / "people.csv", 250)
    job = write_job(
        connector.folder, "job: crm\nsource: {file: {path: people.csv}}\nsubscriber: {base: {id: 7}}\n", "all.yaml"
    )
    assert connector.run_json("sync", job).rows == {"read": 250, "created": 250}
    write_csv(
        connector.folder / "people.csv",
        "email,first_name,last_name,is_active",
        *(f"person{each}@example.com,Ann {each},Leigh,true" for each in range(250)),
    )
    connector.sandbox.switch(filters=filters)
    changed = connector.run_json("sync", job)
    assert changed.rows == {"read": 250, "changed": 250}
    fields = read_fields(changed)
    assert {each[:2] + each[3:] for each in fields} == {
        (f"person{each}@example.com", "last_name", "Leigh") for each in range(250)
    }
    assert len(fields) == 250
    assert [sum(each[2] == sent for each in fields) for sent in ("Lee", "")] == [100, 150]
    assert changed.report["requests"]["list"]["sent"] <= requests
    assert any("250 rows have changed" in each for each in changed.report["messages"])


def test_a_drift_file_that_cannot_be_written_ends_the_run(connector: Connector) -> None:
    sync(connector, "ann@x.org,Ann,,")
    (connector.folder / "state" / "drift").write_text("in its place")
    changed = sync(connector, "ann@x.org,Anna,,")
    assert (changed.code, changed.report["status"]) == (3, "aborted")
    assert "drift file" in changed.report["messages"][0]
