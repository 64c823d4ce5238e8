"""Night after night: what changes in the service, or in the ledger, between two runs makes nobody twice."""

from pathlib import Path

from tests.pipelines.conftest import Connector, Ended, count_stored, write_addresses, write_csv
from tests.pipelines.leftovers import lose_three


def sign_up(connector: Connector, folder: Path, path: Path, *options: str) -> Ended:
    """People come into the base by another way: somebody else's ledger, which ours knows nothing of."""
    elsewhere = {"CONNECTOR_STATE_DIR": str(folder / "elsewhere")}
    return connector.run_json("import", path, "--base-name", "News", *options, environ=elsewhere)


def test_people_who_came_by_another_way_between_two_nights_are_not_created_again(
    connector: Connector, tmp_path: Path
) -> None:
    assert connector.import_file(write_addresses(tmp_path / "first.csv", 20)).rows == {"read": 20, "created": 20}
    others = write_csv(tmp_path / "others.csv", "email", "Person25@Example.com", "person26@example.com")
    assert sign_up(connector, tmp_path, others).rows == {"read": 2, "created": 2}
    second = connector.import_file(write_addresses(tmp_path / "second.csv", 30))
    assert (second.code, second.rows) == (0, {"read": 30, "exists": 20, "changed": 2, "created": 8})
    assert set(count_stored(connector.sandbox).values()) == {1}


def test_people_left_unknown_who_came_by_another_way_in_capitals_are_not_created_again(
    connector: Connector, tmp_path: Path
) -> None:
    """By a filter that tells capitals apart they do not show: the list, long as it is, is read before a re-send."""
    connector.sandbox.seed(20_000, base_name="Others")
    connector.sandbox.switch(filters="exact")
    left = write_csv(tmp_path / "left.csv", "email", "ann@example.com", "bob@example.com", "eva@example.com")
    lose_three(connector, left, drop_before=1)
    others = write_csv(tmp_path / "others.csv", "email", "Ann@Example.com", "bob@Example.com")
    assert sign_up(connector, tmp_path, others).rows == {"read": 2, "created": 2}
    ended = connector.import_file(left)
    assert (ended.code, ended.rows) == (0, {"read": 3, "exists": 2, "created": 1}), ended.stderr
    assert ended.report["settled"] == {"found": 2, "absent": 1}
    assert {name: number for name, number in count_stored(connector.sandbox).items() if "@example.com" in name} == {
        "ann@example.com": 1,
        "bob@example.com": 1,
        "eva@example.com": 1,
    }


def test_a_lost_ledger_creates_nobody_twice(connector: Connector, tmp_path: Path) -> None:
    path = write_addresses(tmp_path / "people.csv", 50)
    assert connector.import_file(path).rows == {"read": 50, "created": 50}
    for file in (tmp_path / "state").glob("ledger*"):
        file.unlink()
    ended = connector.import_file(path)
    assert (ended.code, ended.rows) == (0, {"read": 50, "exists": 50})
    assert ended.report["requests"]["create"]["sent"] == 0


def test_somebody_who_is_in_the_base_twice_already_exists_and_is_told_of(connector: Connector, tmp_path: Path) -> None:
    twice = write_csv(tmp_path / "twice.csv", "email", "ann@example.com", "bob@example.com")
    for folder in ("one", "two"):  # with nobody looking, a service that accepts duplicates makes two of each
        environ = {"CONNECTOR_STATE_DIR": str(tmp_path / folder)}
        ended = connector.run_json("import", twice, "--base-name", "News", "--look", "none", environ=environ)
        assert ended.rows == {"read": 2, "created": 2}
    path = write_csv(tmp_path / "people.csv", "email", "ann@example.com", "cem@example.com")
    ended = connector.import_file(path)
    assert (ended.code, ended.rows) == (0, {"read": 2, "exists": 1, "created": 1})
    assert "in the base more than once already: 2" in ended.stderr
