"""A base whose subscribers the account's list shows only to a request with the base's Id."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, Ended, count_stored, write_addresses
from tests.pipelines.reconciled import plant

OTHERS, MANY_OTHERS = 30, 15_000


def prepare(connector: Connector, folder: Path, base: str, others: int) -> Path:
    """Fill the base with 3 people, add `others` to other bases, and hide the base. Return a file of 5 people, of
    whom the first and the last are new."""
    if others:
        connector.sandbox.seed(others, base_id=50)
    existing = write_addresses(folder / "existing.csv", 3, first=1)
    first = connector.run_json(
        "import", existing, *base.split(), environ={"CONNECTOR_STATE_DIR": str(folder / "another state")}
    )
    assert first.rows == {"read": 3, "created": 3}
    (base_id,) = {
        each["subscriber"]["Base"]["Id"] for each in connector.sandbox.truth()["events"] if each["kind"] == "created"
    }
    connector.sandbox.switch(hidden_bases=str(base_id), filters="icase")
    return write_addresses(folder / "people.csv", 5)


def load(connector: Connector, people: Path, base: str) -> Ended:
    return connector.run_json("import", people, *base.split(), "--quiet-period", "200ms")


@pytest.mark.parametrize("base", ["--base-id 7", "--base-name News"])
@pytest.mark.parametrize("others", [0, OTHERS, MANY_OTHERS], ids=["an empty list", "a sweep", "filters"])
def test_nobody_in_a_base_that_the_list_hides_is_created_twice(
    connector: Connector, tmp_path: Path, base: str, others: int
) -> None:
    people = prepare(connector, tmp_path, base, others)
    ended = load(connector, people, base)
    assert (ended.code, ended.rows) == (0, {"read": 5, "created": 2, "exists": 3}), ended.report["messages"]
    assert set(count_stored(connector.sandbox).values()) == {1}
    assert any(
        "until a request had its BaseId" in each or "shows no subscribers of the base 7 unless" in each
        for each in ended.report["messages"]
    )
    again = load(connector, people, base)
    assert (again.code, again.rows) == (0, {"read": 5, "exists": 5}), again.report["messages"]


@pytest.mark.parametrize("base", ["--base-id 7", "--base-name News"])
@pytest.mark.parametrize("others", [OTHERS, MANY_OTHERS], ids=["a sweep", "filters"])
def test_a_later_run_with_new_rows_ends_where_the_list_hides_the_base(
    connector: Connector, tmp_path: Path, base: str, others: int
) -> None:
    load(connector, prepare(connector, tmp_path, base, others), base)
    ended = load(connector, write_addresses(tmp_path / "more.csv", 7), base)
    assert (ended.code, ended.rows) == (0, {"read": 7, "created": 2, "exists": 5}), ended.report["messages"]
    assert set(count_stored(connector.sandbox).values()) == {1}
    assert ended.report["requests"]["list"]["sent"] < 60


def test_a_lost_create_in_a_hidden_base_is_not_sent_again(connector: Connector, tmp_path: Path) -> None:
    people = prepare(connector, tmp_path, "--base-id 7", OTHERS)
    connector.sandbox.switch(drop_after=1.0)
    lost = load(connector, people, "--base-id 7")
    assert lost.rows["exists"] == 3
    connector.sandbox.switch(drop_after=0.0)
    ended = load(connector, people, "--base-id 7")
    assert ended.code == 0, ended.report["messages"]
    assert set(count_stored(connector.sandbox).values()) == {1}


@pytest.mark.parametrize("others", [OTHERS, MANY_OTHERS], ids=["a sweep", "filters"])
def test_a_lost_create_in_an_empty_hidden_base_is_found(connector: Connector, tmp_path: Path, others: int) -> None:
    connector.sandbox.seed(others, base_id=50)
    connector.sandbox.switch(hidden_bases="7", drop_after=1.0, filters="icase")
    ended = load(connector, write_addresses(tmp_path / "people.csv", 1), "--base-id 7")
    assert (ended.code, ended.rows) == (0, {"read": 1, "created": 1}), ended.report["messages"]
    assert count_stored(connector.sandbox).total() == 1


def test_a_base_that_filters_show_costs_two_more_requests_and_an_unchanged_run_none(
    connector: Connector, tmp_path: Path
) -> None:
    people = prepare(connector, tmp_path, "--base-id 7", MANY_OTHERS)
    connector.sandbox.switch(hidden_bases="")
    first = load(connector, people, "--base-id 7")
    assert first.rows == {"read": 5, "created": 2, "exists": 3}
    # Counts of classes, a look-up below the first id, and the first and the last new subscriber.
    assert first.report["requests"]["list"]["sent"] <= 11 + 2 + 8 + 2
    assert not any("BaseId" in each for each in first.report["messages"])
    unchanged = load(connector, people, "--base-id 7")
    assert unchanged.report["requests"]["list"]["sent"] == 1  # one known subscriber, by Id


@pytest.mark.parametrize("others", [0, OTHERS], ids=["an empty list", "a sweep"])
def test_a_base_given_by_its_name_and_hidden_in_two_ways_makes_a_duplicate_that_is_named(
    connector: Connector, tmp_path: Path, others: int
) -> None:
    """No request without the base's Id shows anybody, and only the answer to the first create has the Id."""
    sandbox = connector.sandbox
    if others:
        sandbox.seed(others, base_id=50)
    existing = [plant(sandbox, f"person{number}@example.com", IsActive=False) for number in range(5)]
    base_id = next(each["base_id"] for each in sandbox.truth()["events"] if each["kind"] == "created")
    sandbox.switch(hidden_bases=str(base_id), hide="inactive")
    ended = load(connector, write_addresses(tmp_path / "people.csv", 5), "--base-name News")
    assert (ended.code, sandbox.stats()["subscribers"]) == (1, others + 6), ended.stderr
    twin = sandbox.truth()["events"][-1]["id"]
    assert any(f"in the service twice (ids {each} and {twin})" in ended.stderr for each in existing), ended.stderr
    assert "not yet seen" not in ended.stderr
