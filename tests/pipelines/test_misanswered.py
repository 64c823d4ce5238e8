"""Creates that are answered with another base or identity (architecture 4.9): held until a person decides."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("omitted", "lag_ms", "filters"), [("Base", 150, "exact"), ("Email", 0, "exact"), ("Base,Email", 0, "ignored")]
)
def test_answers_without_the_base_or_the_email_are_proved_by_one_look_up(
    connector: Connector, tmp_path: Path, omitted: str, lag_ms: int, filters: str
) -> None:
    path = write_addresses(tmp_path / "people.csv", 20)
    connector.sandbox.seed(30, base_name="News")
    connector.sandbox.switch(answers_omit=omitted, list_lag_ms=lag_ms, filters=filters, max_limit=10)
    ended = connector.import_file(path)
    assert (ended.code, ended.rows) == (0, {"read": 20, "created": 20}), ended.stderr
    assert ended.report["echo"] == {}
    again = connector.import_file(path)
    assert (again.code, again.rows) == (0, {"read": 20, "exists": 20}), again.stderr


def test_a_provisional_id_without_the_base_is_proved_by_the_identity(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.seed(30, base_name="News")
    connector.sandbox.switch(answers_omit="Base,Email", provisional_ids=True, filters="ignored", max_limit=10)
    path = write_addresses(tmp_path / "people.csv", 20)
    for outcome in ("created", "exists"):
        ended = connector.import_file(path)
        assert (ended.code, ended.rows) == (0, {"read": 20, outcome: 20}), ended.stderr
    assert connector.sandbox.stats()["subscribers"] == 50


def test_an_answer_without_the_base_is_held_if_the_list_shows_another_base(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(answers_omit="Base", base_alias="News=Other")
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 5))
    assert (ended.code, ended.rows) == (3, {"read": 5, "unknown": 1, "unsent": 4}), ended.stderr
    assert "another base: Other" in ended.stderr


def test_an_answer_without_the_email_is_held_if_the_list_shows_another_email(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(answers_omit="Email", alter_identity=True)
    ended = connector.import_file(write_tagged(tmp_path))
    assert (ended.code, ended.rows) == (3, {"read": 3, "unknown": 1, "unsent": 2}), ended.stderr


def test_an_answered_subscriber_that_the_list_does_not_show_is_held_and_never_sent_again(
    connector: Connector, tmp_path: Path
) -> None:
    """A service may hide new subscribers until they confirm. The answered Id contradicts every proof of absence."""
    connector.sandbox.switch(answers_omit="Base", list_lag_ms=600_000)
    path = write_addresses(tmp_path / "people.csv", 1)
    for _ in range(3):
        ended = connector.import_file(path, "--quiet-period", "100ms")
        assert ended.rows == {"read": 1, "unknown": 1}, ended.stderr
        assert connector.sandbox.stats()["subscribers"] == 1
    accepted = connector.run_json("retry", "--held", "accept")
    assert (accepted.code, accepted.rows) == (0, {"read": 1, "exists": 1}), accepted.stderr
