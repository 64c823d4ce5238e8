"""Lists that show some subscribers only to a request for their class: nobody is created twice or marked as gone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipelines.conftest import INTO_NEWS, Connector, Ended, count_stored, list_stored, write_csv
from tests.pipelines.planned import write_job
from tests.pipelines.reconciled import plant

EXISTING = 40
FIRST_ID = 100_001  # of the sandbox


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
    assert (ended.code, ended.rows) == (0, {"read": EXISTING, "exists": EXISTING}), ended.report["messages"]
    assert any(
        "unless a request asks for them. They were read separately." in each for each in ended.report["messages"]
    )


TWO_CLASSES = [
    ("inactive,male", "male", False),
    ("inactive,female", "female", False),
    ("inactive,unspecified", "", False),
    ("inactive,base", "male", False),
    ("male,base", "male", True),
    ("inactive,male,base", "male", False),
]
"""Classes that a list hides together (base: the base of the load), and the gender and activity of all subscribers."""


def hide_classes(connector: Connector, hide: str) -> None:
    """Hide these classes, or the base of the subscribers that are stored."""
    base_ids = {row["Base"]["Id"] for row in list_stored(connector.sandbox).values()}
    hidden_bases = ",".join(map(str, base_ids)) if "base" in hide else ""
    connector.sandbox.switch(hide=hide.replace(",base", ""), hidden_bases=hidden_bases, filters="icase")


def write_alike(folder: Path, gender: str, active: bool, number: int = 5) -> Path:
    """Write people who are all of one gender and activity."""
    rows = [f"person{each}@x.org,{gender},{str(active).lower()}" for each in range(number)]
    return write_csv(folder / "people.csv", "email,gender,is_active", *rows)


@pytest.mark.parametrize("base", ["--base-id 7", "--base-name News"])
@pytest.mark.parametrize("others", [0, 300, 1500], ids=["an empty list", "a sweep", "filters"])
@pytest.mark.parametrize(("hide", "gender", "active"), TWO_CLASSES)
def test_nobody_of_two_classes_that_the_list_hides_is_created_twice(
    connector: Connector, tmp_path: Path, hide: str, gender: str, active: bool, others: int, base: str
) -> None:
    if others:
        connector.sandbox.seed(others, base_id=50)
    connector.sandbox.switch(max_limit=50 if others == 1500 else 1000)
    people, first = write_alike(tmp_path, gender, active), {"CONNECTOR_STATE_DIR": str(tmp_path / "first state")}
    assert connector.run_json("import", people, *base.split(), environ=first).rows == {"read": 5, "created": 5}
    hide_classes(connector, hide)

    ended = connector.run_json("import", people, *base.split(), "--quiet-period", "200ms")

    if "base" in hide and "name" in base:  # only the answer to the first create shows the Id of the base
        assert count_stored(connector.sandbox).total() <= 6, ended.report["messages"]
        return
    assert set(count_stored(connector.sandbox).values()) == {1}, ended.report["messages"]
    assert (ended.code, ended.rows) == (0, {"read": 5, "exists": 5}), ended.report["messages"]


@pytest.mark.parametrize("base_of_others", [50, 7])
@pytest.mark.parametrize(("hide", "gender", "active"), TWO_CLASSES)
def test_nobody_of_two_classes_that_the_list_hides_is_created_twice_where_all_others_are_alike(
    connector: Connector, tmp_path: Path, hide: str, gender: str, active: bool, base_of_others: int
) -> None:
    people, first = write_alike(tmp_path, gender, active, 2), {"CONNECTOR_STATE_DIR": str(tmp_path / "first state")}
    assert connector.run_json("import", people, "--base-id", "7", environ=first).rows == {"read": 2, "created": 2}
    hide_classes(connector, hide)
    connector.sandbox.switch(max_limit=5)  # so that filters take fewer requests than a sweep
    for number in range(60):
        plant(connector.sandbox, f"other{number}@x.org", {"Id": base_of_others}, IsActive=True)

    ended = connector.run_json("import", people, "--base-id", "7", "--quiet-period", "200ms")

    assert set(count_stored(connector.sandbox).values()) == {1}, ended.report["messages"]
    assert (ended.code, ended.rows) == (0, {"read": 2, "exists": 2}), ended.report["messages"]


@pytest.mark.parametrize("hide", ["inactive", "male", "inactive,male"])
def test_lost_creates_are_found_if_they_are_the_first_of_a_class_that_the_list_hides(
    connector: Connector, tmp_path: Path, hide: str
) -> None:
    for number in range(60):
        plant(connector.sandbox, f"other{number}@x.org", {"Id": 7}, IsActive=True)
    connector.sandbox.switch(max_limit=5, hide=hide, filters="icase", drop_after=1)

    ended = connector.run_json(
        "import", write_alike(tmp_path, "male", False, 2), "--base-id", "7", "--quiet-period", "200ms"
    )

    assert (ended.code, ended.rows) == (0, {"read": 2, "created": 2}), ended.report["messages"]


@pytest.mark.parametrize("others", [0, 300, 1500], ids=["an empty list", "a sweep", "filters"])
@pytest.mark.parametrize(("hide", "gender", "active"), TWO_CLASSES)
def test_no_lost_create_of_two_classes_that_the_list_hides_is_sent_again(
    connector: Connector, tmp_path: Path, hide: str, gender: str, active: bool, others: int
) -> None:
    if others:
        connector.sandbox.seed(others, base_id=50)
    connector.sandbox.switch(
        hide=hide.replace(",base", ""),
        hidden_bases="7" if "base" in hide else "",
        filters="icase",
        max_limit=50 if others == 1500 else 1000,
        drop_after=0.4,
    )

    ended = connector.run_json(
        "import", write_alike(tmp_path, gender, active), "--base-id", "7", "--quiet-period", "200ms"
    )

    assert set(count_stored(connector.sandbox).values()) == {1}, ended.report["messages"]
    assert ended.rows["created"] + ended.rows.get("unknown", 0) == 5, ended.report["messages"]


@pytest.mark.parametrize(("hide", "gender", "active"), TWO_CLASSES[:3])
def test_an_export_has_the_subscribers_of_two_classes_that_the_list_hides(
    connector: Connector, tmp_path: Path, hide: str, gender: str, active: bool
) -> None:
    people = write_alike(tmp_path, gender, active)
    assert connector.run_json("import", people, "--base-id", "7").rows == {"read": 5, "created": 5}
    others = write_csv(
        tmp_path / "others.csv", "email,gender,is_active", f"other@x.org,{'male' if gender != 'male' else ''},true"
    )
    assert connector.run_json("import", others, "--base-id", "7").rows == {"read": 1, "created": 1}
    hide_classes(connector, hide)

    ended = connector.run_json("export", "out.csv")

    certificate = ended.report["certificate"]
    assert (ended.code, certificate["verdict"], certificate["distinct"]) == (0, "complete", 6), certificate
    assert certificate["hidden"] == {"is_active": [False], "gender": [gender]}


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


@pytest.mark.parametrize("others", [0, 1500], ids=["a sweep", "filters"])
@pytest.mark.parametrize("fault", ["drop_after", "created_429"])
def test_no_lost_create_of_a_hidden_class_is_sent_again(
    connector: Connector, tmp_path: Path, others: int, fault: str
) -> None:
    if others:
        connector.sandbox.seed(others, base_id=50)
    rows = [f"person{each}@x.org,{str(each % 2 == 0).lower()}" for each in range(20)]
    people = write_csv(tmp_path / "people.csv", "email,is_active", *rows)
    connector.sandbox.switch(hide="inactive", filters="icase", max_limit=100, **{fault: 0.3})

    first = connector.run_json("import", people, *INTO_NEWS[:2], *INTO_NEWS[3:])

    assert set(count_stored(connector.sandbox).values()) == {1}, first.report["messages"]
    assert (first.code, sum(first.rows.values()) - first.rows["read"]) == (0, 20), first.report["messages"]
    assert len(count_stored(connector.sandbox)) == 20


@pytest.mark.parametrize("others", [0, 15_000], ids=["a sweep", "filters"])
@pytest.mark.parametrize("hidden", [1, 10, EXISTING])
def test_a_load_ends_if_neither_the_list_nor_its_filters_show_subscribers_with_old_ids(
    connector: Connector, tmp_path: Path, others: int, hidden: int
) -> None:
    fill(connector, write_people(tmp_path, active=True))
    connector.sandbox.seed(others or 1, base_id=50)
    connector.sandbox.switch(hide="old_ids", old_ids_below=FIRST_ID + hidden, filters="icase")
    few = write_csv(tmp_path / "few.csv", "email,is_active", *(f"person{each}@x.org,true" for each in (0, 1)))

    ended = import_anew(connector, few)

    assert set(count_stored(connector.sandbox).values()) == {1}, ended.report["messages"]
    assert (ended.code, ended.rows) == (3, {"read": 2, "unsent": 2}), ended.report["messages"]


def test_a_list_that_hides_subscribers_without_an_email_costs_no_duplicate(
    connector: Connector, tmp_path: Path
) -> None:
    rows = [f"{'' if each % 4 == 0 else f'person{each}@x.org'},k{each},true" for each in range(EXISTING)]
    people = write_csv(tmp_path / "people.csv", "email,client_user_id,is_active", *rows)
    first = {"CONNECTOR_STATE_DIR": str(tmp_path / "first state")}
    options = "--base-name", "News", "--identity", "client_user_id", "--quiet-period", "200ms"
    assert connector.run_json("import", people, *options, environ=first).rows == {"read": EXISTING, "created": EXISTING}
    connector.sandbox.switch(hide="no_email")

    ended = connector.run_json("import", people, *options)

    assert (ended.code, ended.rows) == (0, {"read": EXISTING, "exists": EXISTING}), ended.report["messages"]
    assert connector.run_json("export", "out.csv").report["certificate"]["reason"] == "cut_off"


def test_an_export_has_the_bases_that_only_the_ledger_knows(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.seed(300, base_id=50)
    write_csv(tmp_path / "people.csv", "email,name", *(f"person{each}@x.org,Ann" for each in range(EXISTING)))
    job = write_job(tmp_path)
    assert connector.run_json("sync", job).rows == {"read": EXISTING, "created": EXISTING}
    connector.sandbox.switch(hidden_bases="51")

    ended = connector.run_json("export", "out.csv")

    assert ended.report["certificate"]["hidden"] == {"base_id": [51]}
    assert (ended.code, ended.report["rows"]["written"]) == (0, 300 + EXISTING)
    reconciled = connector.run_json("reconcile", job)
    assert (reconciled.code, reconciled.report["certificate"]["hidden"]) == (0, {"base_id": [51]}), reconciled.stdout


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
