"""Lists that show subscribers of a class (a value of a field, or a base) only to a request for the class: nobody is
created twice, and an export has these subscribers."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipelines.conftest import (
    CommandResult,
    Connector,
    count_stored_emails,
    list_stored_subscribers,
    write_addresses,
    write_csv,
)
from tests.pipelines.planned import write_job
from tests.pipelines.reconciled import create_in_service

EXISTING_COUNT = 40
FIRST_SANDBOX_ID = 100_001  # the first id of the sandbox
SMALL_OTHER_PERSON_COUNT, LARGE_OTHER_PERSON_COUNT = 300, 1_500
"""Numbers of subscribers in another base. With a large number, filters need fewer requests than a sweep."""


def import_people(
    connector: Connector, people_path: Path, base_option: str = "--base-id 7", *options: str, state_name: str = "state"
) -> CommandResult:
    """Import with a short quiet period, and with the ledger of this state folder."""
    environ = {"CONNECTOR_STATE_DIR": str(connector.folder / state_name)}
    return connector.run_json(
        "import", people_path, *base_option.split(), "--quiet-period", "200ms", *options, environ=environ
    )


def fill_base(
    connector: Connector,
    people_path: Path,
    base_option: str = "--base-id 7",
    *options: str,
    state_name: str = "first state",
) -> None:
    """Create the people with a ledger that no test uses."""
    result = import_people(connector, people_path, base_option, *options, state_name=state_name)
    assert result.rows["read"] == result.rows["created"]


def add_other_people(connector: Connector, other_person_count: int) -> None:
    """Add subscribers to another base. For a large number, use small pages, so that filters need fewer requests than a
    sweep."""
    if other_person_count:
        connector.sandbox.seed(other_person_count, base_id=50)
    connector.sandbox.switch(filters="icase", max_limit=50 if other_person_count == LARGE_OTHER_PERSON_COUNT else 1000)


def write_people(folder: Path) -> Path:
    """Write 40 people: every second person is active, and two of three people are male."""
    lines = [f"person{n}@x.org,k{n},{'male' if n % 3 else ''},{str(n % 2 == 0).lower()}" for n in range(EXISTING_COUNT)]
    return write_csv(folder / "people.csv", "email,client_user_id,gender,is_active", *lines)


def write_people_of_one_class(folder: Path, gender: str, is_active: bool, person_count: int = 5) -> Path:
    """Write people of one gender and activity."""
    rows = [f"person{n}@x.org,{gender},{str(is_active).lower()}" for n in range(person_count)]
    return write_csv(folder / "people.csv", "email,gender,is_active", *rows)


def hide_classes(connector: Connector, hidden_classes: str) -> None:
    """Hide these classes of the list. `base` means the base of the stored subscribers, or base 7."""
    base_ids = {row["Base"]["Id"] for row in list_stored_subscribers(connector.sandbox).values()} or {7}
    hidden_bases_text = ",".join(map(str, base_ids)) if "base" in hidden_classes else ""
    connector.sandbox.switch(
        hide=hidden_classes.replace(",base", "").replace("base", ""), hidden_bases=hidden_bases_text
    )


@pytest.mark.parametrize("hidden_classes", ["inactive", "unspecified", "inactive,male"])
@pytest.mark.parametrize("other_person_count", [0, LARGE_OTHER_PERSON_COUNT], ids=["sweep", "filters"])
def test_nobody_of_a_hidden_class_is_created_twice(
    connector: Connector, tmp_path: Path, hidden_classes: str, other_person_count: int
) -> None:
    people_path = write_people(tmp_path)
    fill_base(connector, people_path)
    add_other_people(connector, other_person_count)
    hide_classes(connector, hidden_classes)
    if other_person_count:  # few rows, so that filters need fewer requests than a sweep
        rows = [f"person{n}@x.org,k{n},male,false" for n in (1, 5, 7)]
        people_path = write_csv(tmp_path / "few.csv", "email,client_user_id,gender,is_active", *rows)
    result = import_people(connector, people_path)
    assert set(count_stored_emails(connector.sandbox).values()) == {1}, result.report["messages"]
    row_count = 3 if other_person_count else EXISTING_COUNT
    assert (result.exit_code, result.rows) == (0, {"read": row_count, "exists": row_count}), result.report["messages"]
    expected_text = "unless a request asks for them. They were read separately."
    assert other_person_count or any(expected_text in message for message in result.report["messages"])


CASES_OF_TWO_CLASSES = [
    ("inactive,male", "male", False, 0, "--base-id 7"),
    ("inactive,female", "female", False, SMALL_OTHER_PERSON_COUNT, "--base-name News"),
    ("inactive,unspecified", "", False, LARGE_OTHER_PERSON_COUNT, "--base-id 7"),
    ("inactive,base", "male", False, SMALL_OTHER_PERSON_COUNT, "--base-id 7"),
    ("male,base", "male", True, LARGE_OTHER_PERSON_COUNT, "--base-id 7"),
    ("inactive,male,base", "male", False, 0, "--base-id 7"),
]
"""Each case: the classes that the list hides together, the gender and the activity of all people, the number of people
in another base, and the option that names the base.
"""


@pytest.mark.parametrize(
    ("hidden_classes", "gender", "is_active", "other_person_count", "base_option"), CASES_OF_TWO_CLASSES
)
def test_nobody_of_two_hidden_classes_is_created_twice(
    connector: Connector,
    tmp_path: Path,
    hidden_classes: str,
    gender: str,
    is_active: bool,
    other_person_count: int,
    base_option: str,
) -> None:
    people_path = write_people_of_one_class(tmp_path, gender, is_active)
    fill_base(connector, people_path, base_option)
    add_other_people(connector, other_person_count)
    hide_classes(connector, hidden_classes)
    result = import_people(connector, people_path, base_option)
    assert set(count_stored_emails(connector.sandbox).values()) == {1}, result.report["messages"]
    assert (result.exit_code, result.rows) == (0, {"read": 5, "exists": 5}), result.report["messages"]


@pytest.mark.parametrize(
    ("hidden_classes", "is_active", "other_base_id"),
    [("inactive,male", False, 7), ("male,base", True, 50), ("inactive", False, 7)],
)
def test_a_hidden_class_is_requested_if_all_listed_subscribers_have_the_same_class(
    connector: Connector, tmp_path: Path, hidden_classes: str, is_active: bool, other_base_id: int
) -> None:
    """The first two runs find existing subscribers, and lost creates of the same class."""
    people_path = write_people_of_one_class(tmp_path, "male", is_active, 2)
    fill_base(connector, people_path)
    hide_classes(connector, hidden_classes)
    connector.sandbox.switch(max_limit=5, filters="icase")  # so that filters take fewer requests than a sweep
    for index in range(60):
        create_in_service(connector.sandbox, f"other{index}@x.org", {"Id": other_base_id}, IsActive=True)
    result = import_people(connector, people_path)
    assert (result.exit_code, result.rows) == (0, {"read": 2, "exists": 2}), result.report["messages"]
    connector.sandbox.switch(drop_after=1)
    rows = [f"new{index}@x.org,male,{str(is_active).lower()}" for index in range(2)]
    lost_result = import_people(connector, write_csv(tmp_path / "new.csv", "email,gender,is_active", *rows))
    assert (lost_result.exit_code, lost_result.rows) == (0, {"read": 2, "created": 2}), lost_result.report["messages"]
    assert set(count_stored_emails(connector.sandbox).values()) == {1}


@pytest.mark.parametrize(
    ("other_person_count", "fault"),
    [(0, "created_429"), (LARGE_OTHER_PERSON_COUNT, "drop_after")],
    ids=["sweep", "filters"],
)
def test_no_lost_create_of_a_hidden_class_is_sent_again(
    connector: Connector, tmp_path: Path, other_person_count: int, fault: str
) -> None:
    add_other_people(connector, other_person_count)
    rows = [f"person{n}@x.org,{str(n % 2 == 0).lower()}" for n in range(20)]
    people_path = write_csv(tmp_path / "people.csv", "email,is_active", *rows)
    connector.sandbox.switch(hide="inactive", **{fault: 0.3})
    result = import_people(connector, people_path, "--base-name News")
    assert set(count_stored_emails(connector.sandbox).values()) == {1}, result.report["messages"]
    assert (result.exit_code, sum(result.rows.values()) - result.rows["read"]) == (0, 20), result.report["messages"]
    assert len(count_stored_emails(connector.sandbox)) == 20


@pytest.mark.parametrize(
    ("other_person_count", "hidden_count"), [(1, 1), (1, EXISTING_COUNT), (LARGE_OTHER_PERSON_COUNT, 10)]
)
def test_a_load_ends_if_neither_the_list_nor_its_filters_show_subscribers_with_old_ids(
    connector: Connector, tmp_path: Path, other_person_count: int, hidden_count: int
) -> None:
    fill_base(connector, write_addresses(tmp_path / "people.csv", EXISTING_COUNT))
    add_other_people(connector, other_person_count)
    connector.sandbox.switch(hide="old_ids", old_ids_below=FIRST_SANDBOX_ID + hidden_count)
    result = import_people(connector, write_addresses(tmp_path / "few.csv", 2))
    assert set(count_stored_emails(connector.sandbox).values()) == {1}, result.report["messages"]
    assert (result.exit_code, result.rows) == (3, {"read": 2, "unsent": 2}), result.report["messages"]


def test_nobody_is_created_twice_if_the_list_hides_subscribers_without_an_email(
    connector: Connector, tmp_path: Path
) -> None:
    rows = [f"{'' if n % 4 == 0 else f'person{n}@x.org'},k{n},true" for n in range(EXISTING_COUNT)]
    people_path = write_csv(tmp_path / "people.csv", "email,client_user_id,is_active", *rows)
    fill_base(connector, people_path, "--base-id 7", "--identity", "client_user_id")
    connector.sandbox.switch(hide="no_email")
    result = import_people(connector, people_path, "--base-id 7", "--identity", "client_user_id")
    assert (result.exit_code, result.rows) == (0, {"read": EXISTING_COUNT, "exists": EXISTING_COUNT}), result.report[
        "messages"
    ]
    assert connector.run_json("export", "out.csv").report["certificate"]["reason"] == "cut_off"


# Exports


@pytest.mark.parametrize(("hidden_classes", "gender"), [("inactive,male", "male"), ("inactive,unspecified", "")])
def test_an_export_has_the_subscribers_of_two_hidden_classes(
    connector: Connector, tmp_path: Path, hidden_classes: str, gender: str
) -> None:
    fill_base(connector, write_people_of_one_class(tmp_path, gender, False))
    create_in_service(connector.sandbox, "other@x.org", {"Id": 7}, IsActive=True, Gender="" if gender else "male")
    hide_classes(connector, hidden_classes)
    result = connector.run_json("export", "out.csv")
    certificate = result.report["certificate"]
    assert (result.exit_code, certificate["verdict"], certificate["distinct"]) == (0, "complete", 6), certificate
    assert certificate["hidden"] == {"is_active": [False], "gender": [gender]}


def test_an_export_and_a_reconciliation_read_hidden_bases_that_the_ledger_knows(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.seed(SMALL_OTHER_PERSON_COUNT, base_id=50)
    write_csv(tmp_path / "people.csv", "email,name", *(f"person{n}@x.org,Ann" for n in range(EXISTING_COUNT)))
    job = write_job(tmp_path)
    assert connector.run_json("sync", job).rows == {"read": EXISTING_COUNT, "created": EXISTING_COUNT}
    connector.sandbox.switch(hidden_bases="51")
    result = connector.run_json("export", "out.csv")
    assert result.report["certificate"]["hidden"] == {"base_id": [51]}
    assert (result.exit_code, result.report["rows"]["written"]) == (0, SMALL_OTHER_PERSON_COUNT + EXISTING_COUNT)
    reconcile_result = connector.run_json("reconcile", job)
    assert (reconcile_result.exit_code, reconcile_result.report["certificate"]["hidden"]) == (0, {"base_id": [51]}), (
        reconcile_result.stdout
    )


@pytest.mark.parametrize("export_mode", ["replace", "upsert", "history"])
def test_an_export_reads_a_hidden_class_and_marks_nobody_as_deleted(
    connector: Connector, tmp_path: Path, export_mode: str
) -> None:
    fill_base(connector, write_addresses(tmp_path / "people.csv", EXISTING_COUNT))
    arguments = "export", f"sqlite:///{tmp_path}/out.db", "--table", "people", "--mode", export_mode
    assert connector.run_json(*arguments).exit_code == 0
    connector.sandbox.switch(duplicates="upsert")
    for index in range(8):
        create_in_service(connector.sandbox, f"person{index}@example.com", {"Id": 7}, IsActive=False)
    connector.sandbox.switch(duplicates="accept", hide="inactive")
    result = connector.run_json(*arguments)
    certificate = result.report["certificate"]
    assert (result.exit_code, certificate["verdict"], certificate["distinct"]) == (0, "complete", EXISTING_COUNT)
    assert certificate["hidden"] == {"is_active": [False]}
    expected_text = "The list shows no inactive subscribers unless a request asks for them. They were read separately."
    assert expected_text in result.report["messages"]
    assert count_current_subscribers(tmp_path / "out.db", export_mode) == {0: 8, 1: EXISTING_COUNT - 8}


def count_current_subscribers(path: Path, export_mode: str) -> dict[int, int]:
    """Return the number of current subscribers in a table for each value of is_active."""
    condition_sql = {"replace": "1", "upsert": "deleted_at IS NULL", "history": "is_current"}[export_mode]
    with closing(sqlite3.connect(path)) as database:
        return dict(
            database.execute(f"SELECT is_active, count(*) FROM people WHERE {condition_sql} GROUP BY 1").fetchall()
        )


# A hidden base


def prepare_base(connector: Connector, folder: Path, base_option: str, other_person_count: int) -> Path:
    """Fill the base with 3 people, add others to another base, and hide the base. Return a file of 5 people, of whom
    the first and the last are new."""
    add_other_people(connector, other_person_count)
    fill_base(connector, write_addresses(folder / "existing.csv", 3, first_index=1), base_option)
    hide_classes(connector, "base")
    return write_addresses(folder / "people.csv", 5)


@pytest.mark.parametrize(
    ("base_option", "other_person_count"),
    [
        ("--base-id 7", 0),
        ("--base-name News", 30),
        ("--base-id 7", LARGE_OTHER_PERSON_COUNT),
        ("--base-name News", LARGE_OTHER_PERSON_COUNT),
    ],
)
def test_nobody_in_a_hidden_base_is_created_twice(
    connector: Connector, tmp_path: Path, base_option: str, other_person_count: int
) -> None:
    people_path = prepare_base(connector, tmp_path, base_option, other_person_count)
    result = import_people(connector, people_path, base_option)
    assert (result.exit_code, result.rows) == (0, {"read": 5, "created": 2, "exists": 3}), result.report["messages"]
    expected_texts = ("until a request had its BaseId", "shows no subscribers of the base 7 unless")
    assert any(expected_text in message for expected_text in expected_texts for message in result.report["messages"])
    second_result = import_people(connector, write_addresses(tmp_path / "more.csv", 7), base_option)
    assert (second_result.exit_code, second_result.rows) == (0, {"read": 7, "created": 2, "exists": 5}), (
        second_result.report["messages"]
    )
    assert second_result.report["requests"]["list"]["sent"] < 60
    assert set(count_stored_emails(connector.sandbox).values()) == {1}


@pytest.mark.parametrize("other_person_count", [30, LARGE_OTHER_PERSON_COUNT], ids=["sweep", "filters"])
def test_a_lost_create_in_an_empty_hidden_base_is_found(
    connector: Connector, tmp_path: Path, other_person_count: int
) -> None:
    add_other_people(connector, other_person_count)
    connector.sandbox.switch(hidden_bases="7", drop_after=1.0)
    result = import_people(connector, write_addresses(tmp_path / "people.csv", 1))
    assert (result.exit_code, result.rows) == (0, {"read": 1, "created": 1}), result.report["messages"]
    assert count_stored_emails(connector.sandbox).total() == 1


def test_a_hidden_base_costs_only_two_more_requests(connector: Connector, tmp_path: Path) -> None:
    people_path = prepare_base(connector, tmp_path, "--base-id 7", LARGE_OTHER_PERSON_COUNT)
    connector.sandbox.switch(hidden_bases="")
    first_result = import_people(connector, people_path)
    assert first_result.rows == {"read": 5, "created": 2, "exists": 3}
    # The bound includes the counts of classes, look-ups below the first id, and look-ups of two new subscribers.
    assert first_result.report["requests"]["list"]["sent"] <= 11 + 2 + 8 + 2
    assert not any("BaseId" in message for message in first_result.report["messages"])
    unchanged_result = import_people(connector, people_path)
    assert unchanged_result.report["requests"]["list"]["sent"] == 1  # a look-up of one known subscriber by Id


@pytest.mark.parametrize("other_person_count", [0, 30], ids=["an empty list", "a sweep"])
def test_a_duplicate_in_a_hidden_base_with_only_hidden_subscribers_is_named(
    connector: Connector, tmp_path: Path, other_person_count: int
) -> None:
    """No request without the base's Id shows a subscriber, and only the answer to the first create has the Id."""
    add_other_people(connector, other_person_count)
    existing_ids = [
        create_in_service(connector.sandbox, f"person{index}@example.com", IsActive=False) for index in range(5)
    ]
    hide_classes(connector, "inactive,base")
    result = import_people(connector, write_addresses(tmp_path / "people.csv", 5), "--base-name News")
    assert (result.exit_code, connector.sandbox.stats()["subscribers"]) == (1, other_person_count + 6), result.stderr
    second_id = connector.sandbox.truth()["events"][-1]["id"]
    assert any(
        f"in the service twice (ids {existing_id} and {second_id})" in result.stderr for existing_id in existing_ids
    ), result.stderr
    assert "does not show the last new subscriber" not in result.stderr
