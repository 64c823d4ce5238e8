"""Consent: a load needs a value of is_active, and refuses a column of unsubscriptions if the job neither maps
nor ignores the column."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector
from tests.pipelines.leftovers import read_rejects


def test_an_import_with_an_unmapped_column_of_unsubscriptions_is_refused(connector: Connector) -> None:
    people_path = connector.write_people("email,status", "ann@x.org,unsubscribed", "bob@x.org,subscribed")
    result = connector.run_json("import", people_path, "--base-id", "7", "--active")
    assert (result.exit_code, connector.list_created_subscribers()) == (2, {}), result.stderr
    assert "--map is_active=status" in result.stderr
    assert "--ignore status" in result.stderr
    mapped_result = connector.run_json("import", people_path, "--base-id", "7", "--map", "is_active=status")
    assert mapped_result.exit_code == 0, mapped_result.stderr
    assert connector.read_is_active_by_email() == {"ann@x.org": False, "bob@x.org": True}


def test_an_ignored_column_fills_no_field(connector: Connector) -> None:
    people_path = connector.write_people("email,unsubscribed,first_name,phone", "ann@x.org,ja,Ann,+4930123456")
    arguments = ("import", people_path, "--base-id", "7", "--active")
    misspelt_result = connector.run(*arguments, "--ignore", "unsubscribd")
    assert misspelt_result.exit_code == 2
    assert "Did you mean unsubscribed?" in misspelt_result.stderr
    assert connector.run_json(*arguments, "--ignore", "unsubscribed", "--ignore", "phone").rows == {
        "read": 1, "created": 1,
    }  # fmt: skip
    (subscriber,) = connector.list_created_subscribers().values()
    assert (subscriber["IsActive"], subscriber.get("Phone"), subscriber["FirstName"]) == (True, None, "Ann")


UNMAPPED_COLUMN_MESSAGE = "an import of these rows is refused: the column unsubscribed"
NO_IS_ACTIVE_MESSAGE = "an import of these rows is refused: no column fills is_active"


@pytest.mark.parametrize(
    ("header", "fields", "expected_message", "advice"),
    [
        ("email,unsubscribed", "email: email, is_active: {value: true}", UNMAPPED_COLUMN_MESSAGE, "ignore"),
        (
            "email,active",
            "email: email",
            NO_IS_ACTIVE_MESSAGE,
            "--active or --inactive (in a job: `is_active: {value: true}`; in Python: ",
        ),
    ],
)
def test_a_sync_without_a_clear_rule_for_is_active_is_refused(
    connector: Connector, tmp_path: Path, header: str, fields: str, expected_message: str, advice: str
) -> None:
    connector.write_people(header, "ann@x.org,ja", "bob@x.org,nein", "eve@x.org,")
    connector.write_job(fields=fields)
    result = connector.run("sync", "job.yaml")
    assert (result.exit_code, connector.sandbox.stats()["subscribers"], advice in result.stderr) == (2, 0, True)
    for command in ("plan", "validate"):
        result = connector.run_json(command, "job.yaml")
        assert (result.exit_code, result.report["status"]) == (1, "partial")
        assert any(message.startswith(expected_message) for message in result.report["messages"])


def test_init_maps_the_column_of_unsubscriptions(connector: Connector) -> None:
    connector.write_people("email,unsubscribed", "ann@x.org,ja", "bob@x.org,nein", "eve@x.org,")
    init_result = connector.run("init", "people.csv", "--base-id", "7", "-o", "drafted.yaml")
    assert init_result.exit_code == 0, init_result.stderr
    assert connector.sync("drafted.yaml").rows == {"read": 3, "created": 3}
    assert connector.read_is_active_by_email() == {"ann@x.org": False, "bob@x.org": True, "eve@x.org": True}
    connector.write_job("ignore: [unsubscribed]", base="id: 7")
    assert connector.run_json("plan", "job.yaml").report["messages"] == ["columns not used: unsubscribed"]


def test_an_unsubscription_in_a_late_row_ends_the_load_before_the_first_create(connector: Connector) -> None:
    rows = [f"p{index}@x.org,{'unsubscribed' if index == 31_000 else 'customer'}" for index in range(32_000)]
    people_path = connector.write_people("email,status", *rows)
    result = connector.run_json("import", people_path, "--base-id", "7", "--active", "--limit", "32000")
    assert result.is_refused
    assert "the column status" in result.stderr
    assert connector.list_created_subscribers() == {}


def test_an_empty_cell_of_is_active_is_invalid(connector: Connector) -> None:
    connector.write_people("email,active", "a@x.org,yes", "b@x.org,")
    result = connector.sync(connector.write_job(fields="email: email, is_active: active"))
    result.expect(1, read=2, invalid=1, created=1)
    assert [(row["_field"], row["_code"]) for row in read_rejects(result)] == [("is_active", "required")]


def test_an_import_reads_yes_and_no_in_the_language_of_the_header(connector: Connector) -> None:
    people_path = connector.write_people("email,Abonné", "ann@x.org,OUI", "bob@x.org,non")
    assert connector.run_json("import", people_path, "--base-id", "7").rows == {"read": 2, "created": 2}
    assert connector.read_is_active_by_email() == {"ann@x.org": True, "bob@x.org": False}
