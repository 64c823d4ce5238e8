"""Creates that are answered with another base or identity (architecture 4.9): held until a person decides."""

from pathlib import Path

from tests.pipelines.conftest import Connector, count_stored, write_addresses, write_csv
from tests.pipelines.leftovers import read_rejects, read_states, retry
from tests.pipelines.reconciled import plant

TAGGED = ("ann+news@x.org,true", "bob@x.org,true", "cyd@x.org,true")


def write_tagged(folder: Path) -> Path:
    return write_csv(folder / "people.csv", "email,is_active", *TAGGED)


def test_a_base_that_is_answered_as_another_gets_one_wrong_create_only(connector: Connector, tmp_path: Path) -> None:
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 5)
    sandbox.switch(base_alias="News=Other")
    first = connector.import_file(path)
    assert (first.code, first.rows) == (3, {"read": 5, "unknown": 1, "unsent": 4}), first.stderr
    assert "another base: Other" in first.stderr
    assert [row["_code"] for row in read_rejects(first)] == ["held"]
    for options in ((), ("--dry-run",), ("--quiet-period", "100ms")):
        later = connector.import_file(path, *options)
        assert later.is_refused, later.stderr
        assert "Other" in later.stderr
    assert sandbox.stats()["subscribers"] == 1
    by_its_name = connector.run_json("import", path, "--base-name", "Other", "--quiet-period", "200ms")
    assert (by_its_name.code, by_its_name.rows) == (0, {"read": 5, "exists": 1, "created": 4}), by_its_name.stderr
    assert set(count_stored(sandbox).values()) == {1}


def test_a_base_that_was_answered_as_another_is_tried_again_with_held_resend(
    connector: Connector, tmp_path: Path
) -> None:
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 3)
    sandbox.switch(base_alias="News=Other")
    assert connector.import_file(path).code == 3
    looked = retry(connector)
    assert (looked.code, looked.rows) == (1, {"read": 1, "unknown": 1}), looked.stderr
    assert retry(connector, "--rejected").code == 2
    sandbox.switch(base_alias="")
    again = retry(connector, "--held", "resend")
    assert (again.code, again.rows) == (0, {"read": 1, "created": 1}), again.stderr
    assert connector.import_file(path).rows == {"read": 3, "exists": 1, "created": 2}


def test_a_held_create_that_a_person_repeated_by_hand_frees_its_base(connector: Connector, tmp_path: Path) -> None:
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 3)
    sandbox.switch(base_alias="News=Other")
    assert connector.import_file(path).code == 3
    sandbox.switch(base_alias="")
    plant(sandbox, "person0@example.com", {"Name": "News"})
    assert retry(connector, "--held", "resend").rows == {"read": 1, "exists": 1}
    assert connector.import_file(path).rows == {"read": 3, "exists": 1, "created": 2}


def test_an_identity_that_the_service_alters_is_held_and_never_sent_again(connector: Connector, tmp_path: Path) -> None:
    sandbox, path = connector.sandbox, write_tagged(tmp_path)
    sandbox.switch(alter_identity=True)
    first = connector.import_file(path)
    assert (first.code, first.rows) == (3, {"read": 3, "unknown": 1, "unsent": 2}), first.stderr
    assert "ann" not in first.stderr
    for counted in ("created", "exists", "exists"):
        later = connector.import_file(path)
        assert (later.code, later.rows) == (1, {"read": 3, counted: 2, "unknown": 1}), later.stderr
    assert count_stored(sandbox)["ann@x.org"] == 1
    assert sandbox.stats()["subscribers"] == 3


def test_a_held_create_is_accepted_with_held_accept(connector: Connector, tmp_path: Path) -> None:
    path = write_tagged(tmp_path)
    connector.sandbox.switch(alter_identity=True)
    connector.import_file(path)
    accepted = retry(connector, "--held", "accept")
    assert (accepted.code, accepted.rows) == (0, {"read": 1, "exists": 1}), accepted.stderr
    last = connector.import_file(path)
    assert (last.code, last.rows) == (0, {"read": 3, "exists": 1, "created": 2}), last.stderr
    assert read_states(connector) == []
