"""Lists that show some subscribers only to a request for their class: nobody is created twice or marked as gone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, Ended, count_stored, write_csv

EXISTING = 40


def import_anew(connector: Connector, path: Path, *options: str) -> Ended:
    """Import with a ledger of its own, as somebody does who begins with the connector."""
    state = {"CONNECTOR_STATE_DIR": str(connector.folder / f"state {path.name}")}
    return connector.run_json("import", path, "--base-name", "News", "--quiet-period", "200ms", *options, environ=state)


def write_people(folder: Path, *, active: object = "half", gender: str = "male") -> Path:
    """Write 40 people; `active` is the value for all, or half: every second one."""
    flags = [each % 2 == 0 if active == "half" else active for each in range(EXISTING)]
    lines = [
        f"person{each}@x.org,k{each},{gender if each % 3 else ''},{str(flag).lower()}"
        for each, flag in enumerate(flags)
    ]
    return write_csv(folder / "people.csv", "email,client_user_id,gender,is_active", *lines)


def fill(connector: Connector, people: Path) -> None:
    """Create the people, with a ledger that no test uses."""
    state = {"CONNECTOR_STATE_DIR": str(connector.folder / "first state")}
    ended = connector.run_json("import", people, "--base-name", "News", "--quiet-period", "200ms", environ=state)
    assert ended.rows == {"read": EXISTING, "created": EXISTING}


@pytest.mark.parametrize("hide", ["inactive", "male", "unspecified", "inactive,male"])
@pytest.mark.parametrize("active", ["half", False])
def test_nobody_of_a_class_that_the_list_hides_is_created_twice(
    connector: Connector, tmp_path: Path, hide: str, active: object
) -> None:
    people = write_people(tmp_path, active=active)
    fill(connector, people)
    connector.sandbox.switch(hide=hide)
    ended = import_anew(connector, people)
    assert set(count_stored(connector.sandbox).values()) == {1}, ended.report["messages"]
    if hide == "inactive,male" and not active:  # the list has no row, and each filter hides a part of its class
        assert (ended.code, ended.rows) == (3, {"read": EXISTING, "unsent": EXISTING})
        return
    assert (ended.code, ended.rows) == (0, {"read": EXISTING, "exists": EXISTING}), ended.report["messages"]
    assert any(
        "unless a request asks for them. They were read separately." in each for each in ended.report["messages"]
    )


@pytest.mark.parametrize("hide", ["inactive", "male", "unspecified", "inactive,male"])
def test_filters_alone_do_not_prove_that_somebody_of_a_hidden_class_is_absent(
    connector: Connector, tmp_path: Path, hide: str
) -> None:
    fill(connector, write_people(tmp_path))
    connector.sandbox.seed(15_000, base_id=50)
    connector.sandbox.switch(hide=hide, filters="icase")
    rows = [f"person{each}@x.org,k{each},male,false" for each in (1, 5, 7)]
    few = write_csv(tmp_path / "few.csv", "email,client_user_id,gender,is_active", *rows)

    ended = import_anew(connector, few)

    assert set(count_stored(connector.sandbox).values()) == {1}, ended.report["messages"]
    assert (ended.code, ended.rows) == (0, {"read": 3, "exists": 3}), ended.report["messages"]


@pytest.mark.parametrize("mode", ["replace", "upsert", "history"])
def test_an_export_has_the_classes_that_the_list_hides_and_marks_nobody_as_gone(
    connector: Connector, tmp_path: Path, mode: str
) -> None:
    people = write_people(tmp_path, active=True)
    fill(connector, people)
    unsubscribed = write_csv(
        tmp_path / "unsubscribed.csv", "email,is_active", *(f"person{each}@x.org,false" for each in range(8))
    )
    export = "export", f"sqlite:///{tmp_path}/out.db", "--table", "people", "--mode", mode
    assert connector.run_json(*export).code == 0
    connector.sandbox.switch(duplicates="upsert")
    connector.run_json(
        "import",
        unsubscribed,
        "--base-name",
        "News",
        "--look",
        "none",
        "--quiet-period",
        "200ms",
        environ={"CONNECTOR_STATE_DIR": str(tmp_path / "unsubscribing")},
    )
    connector.sandbox.switch(duplicates="accept", hide="inactive")

    ended = connector.run_json(*export)

    certificate = ended.report["certificate"]
    assert (ended.code, certificate["verdict"], certificate["distinct"]) == (0, "complete", EXISTING)
    assert certificate["hidden"] == {"is_active": [False]}
    assert (
        "The list shows no inactive subscribers unless a request asks for them. They were read separately."
        in (ended.report["messages"])
    )
    assert count_current(tmp_path / "out.db", mode) == {0: 8, 1: EXISTING - 8}


def count_current(path: Path, mode: str) -> dict[int, int]:
    """Return how many current subscribers a table has for each value of is_active."""
    gone = {"replace": "1", "upsert": "deleted_at IS NULL", "history": "is_current"}[mode]
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute(f"SELECT is_active, count(*) FROM people WHERE {gone} GROUP BY 1").fetchall())
