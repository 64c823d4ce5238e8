"""A load creates nobody while a column says who has unsubscribed and nothing reads that column (design: consent)."""

from pathlib import Path
from typing import Any

import pytest

from connector import Connector as Library
from connector.errors import ConfigurationError
from tests.pipelines.conftest import Connector, list_stored, write_csv

PEOPLE = ("email,unsubscribed", "ann@x.org,ja", "bob@x.org,nein", "eve@x.org,")
JOB = """
job: news
source: {file: {path: people.csv}}
subscriber: {base: {id: 7}, fields: {email: email, is_active: {value: true}}}
"""


def list_activity(connector: Connector) -> dict[str, bool]:
    return {email: subscriber["IsActive"] for email, subscriber in list_stored(connector.sandbox).items()}


@pytest.mark.parametrize("lines", [PEOPLE, ("email,status", "ann@x.org,unsubscribed", "bob@x.org,subscribed")])
def test_an_import_is_refused_and_says_the_two_ways_out(
    connector: Connector, tmp_path: Path, lines: tuple[str, ...]
) -> None:
    column = lines[0].partition(",")[2]
    people = write_csv(tmp_path / "people.csv", *lines)
    ended = connector.run_json("import", people, "--base-id", "7", "--active")
    assert (ended.code, list_stored(connector.sandbox)) == (2, {}), ended.stderr
    assert f"--map is_active={column}" in ended.stderr
    assert f"--ignore {column}" in ended.stderr
    mapped = connector.run_json("import", people, "--base-id", "7", "--map", f"is_active={column}")
    assert mapped.code == 0, mapped.stderr
    activity = list_activity(connector)
    assert activity == {line.partition(",")[0]: line.partition(",")[0] != "ann@x.org" for line in lines[1:]}


def test_an_ignored_column_says_nothing(connector: Connector, tmp_path: Path) -> None:
    people = write_csv(tmp_path / "people.csv", *PEOPLE)
    given = ("import", people, "--base-id", "7", "--active")
    misspelt = connector.run("import", people, "--base-id", "7", "--active", "--ignore", "unsubscribd")
    assert misspelt.code == 2
    assert "Did you mean unsubscribed?" in misspelt.stderr
    assert connector.run_json(*given, "--ignore", "unsubscribed").rows == {"read": 3, "created": 3}
    assert list_activity(connector) == dict.fromkeys(("ann@x.org", "bob@x.org", "eve@x.org"), True)


def test_a_job_is_refused_until_it_maps_or_ignores_the_column(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", *PEOPLE)
    job = tmp_path / "job.yaml"
    job.write_text(JOB, encoding="utf-8")
    assert connector.run("sync", job).code == 2
    for command in ("plan", "validate"):
        messages = connector.run_json(command, job).report["messages"]
        assert any(each.startswith("an import of these rows is refused: the column unsubscribed") for each in messages)
    drafted = connector.run("init", "people.csv", "--base-id", "7", "-o", "drafted.yaml")
    assert drafted.code == 0, drafted.stderr
    assert connector.run_json("sync", "drafted.yaml").rows == {"read": 3, "created": 3}
    assert list_activity(connector) == {"ann@x.org": False, "bob@x.org": True, "eve@x.org": True}
    job.write_text(JOB + "ignore: [unsubscribed]\n", encoding="utf-8")
    assert connector.run_json("plan", job).report["messages"] == ["columns not used: unsubscribed"]


def test_rows_that_are_all_created_inactive_need_no_word(connector: Connector, tmp_path: Path) -> None:
    people = write_csv(tmp_path / "people.csv", *PEOPLE)
    assert connector.run_json("import", people, "--base-id", "7", "--inactive").rows == {"read": 3, "created": 3}


def test_a_word_far_down_ends_the_load_before_anything_is_sent(connector: Connector, tmp_path: Path) -> None:
    rows = [f"p{number}@x.org,customer" for number in range(60_000)]
    rows[50_000] = "p50000@x.org,unsubscribed"
    people = write_csv(tmp_path / "people.csv", "email,status", *rows)
    ended = connector.run_json("import", people, "--base-id", "7", "--active", "--limit", "60000")
    assert ended.is_refused
    assert "the column status" in ended.stderr
    assert list_stored(connector.sandbox) == {}


def test_the_library_refuses_it_too(connector: Connector, tmp_path: Path) -> None:
    people = write_csv(tmp_path / "people.csv", *PEOPLE)
    settings: Any = {"base_url": connector.sandbox.base_url, "token": connector.sandbox.token, "state_dir": tmp_path}
    with pytest.raises(ConfigurationError, match="the column unsubscribed"):
        Library(**settings).import_file(people, base_id=7, active=True).raise_for_status()
    report = Library(**settings).import_file(people, base_id=7, active=True, ignore=["unsubscribed"])
    assert report.rows["created"] == 3
