"""Consent: a load needs a value of is_active, and refuses a column of unsubscriptions that nothing maps or ignores."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import Connector, list_activity, list_stored_subscribers, write_csv
from tests.pipelines.leftovers import read_rejects

PEOPLE = ("email,unsubscribed", "ann@x.org,ja", "bob@x.org,nein", "eve@x.org,")
JOB = """
job: news
source: {file: {path: people.csv}}
subscriber: {base: {id: 7}, fields: {email: email, is_active: {value: true}}}
"""


@pytest.mark.parametrize(
    "lines",
    [
        PEOPLE,
        ("email,status", "ann@x.org,unsubscribed", "bob@x.org,subscribed"),
        ("email,is_active", "ann@x.org,no", "bob@x.org,yes"),
    ],
)
def test_an_import_is_refused_until_the_column_is_mapped(
    connector: Connector, tmp_path: Path, lines: tuple[str, ...]
) -> None:
    column = lines[0].partition(",")[2]
    people_path = write_csv(tmp_path / "people.csv", *lines)
    result = connector.run_json("import", people_path, "--base-id", "7", "--active")
    assert (result.exit_code, list_stored_subscribers(connector.sandbox)) == (2, {}), result.stderr
    assert f"--map is_active={column}" in result.stderr
    assert f"--ignore {column}" in result.stderr
    mapped_result = connector.run_json("import", people_path, "--base-id", "7", "--map", f"is_active={column}")
    assert mapped_result.exit_code == 0, mapped_result.stderr
    activity = list_activity(connector)
    assert activity == {line.partition(",")[0]: line.partition(",")[0] != "ann@x.org" for line in lines[1:]}


def test_an_ignored_column_has_no_effect(connector: Connector, tmp_path: Path) -> None:
    people_path = write_csv(tmp_path / "people.csv", *PEOPLE)
    arguments = ("import", people_path, "--base-id", "7", "--active")
    misspelt_result = connector.run("import", people_path, "--base-id", "7", "--active", "--ignore", "unsubscribd")
    assert misspelt_result.exit_code == 2
    assert "Did you mean unsubscribed?" in misspelt_result.stderr
    assert connector.run_json(*arguments, "--ignore", "unsubscribed").rows == {"read": 3, "created": 3}
    assert list_activity(connector) == dict.fromkeys(("ann@x.org", "bob@x.org", "eve@x.org"), True)


def test_a_column_that_is_ignored_fills_no_field(connector: Connector, tmp_path: Path) -> None:
    people_path = write_csv(tmp_path / "people.csv", "email,first_name,phone", "ann@x.org,Ann,+4930123456")
    assert connector.run_json("import", people_path, "--base-id", "7", "--active", "--ignore", "phone").exit_code == 0
    (subscriber,) = list_stored_subscribers(connector.sandbox).values()
    assert (subscriber.get("Phone"), subscriber["FirstName"]) == (None, "Ann")


def test_a_job_is_refused_until_it_maps_or_ignores_the_column(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", *PEOPLE)
    job = tmp_path / "job.yaml"
    job.write_text(JOB, encoding="utf-8")
    assert connector.run("sync", job).exit_code == 2
    for command in ("plan", "validate"):
        result = connector.run_json(command, job)
        assert (result.exit_code, result.report["status"]) == (1, "partial")
        assert any(
            message.startswith("an import of these rows is refused: the column unsubscribed")
            for message in result.report["messages"]
        )
    init_result = connector.run("init", "people.csv", "--base-id", "7", "-o", "drafted.yaml")
    assert init_result.exit_code == 0, init_result.stderr
    assert connector.run_json("sync", "drafted.yaml").rows == {"read": 3, "created": 3}
    assert list_activity(connector) == {"ann@x.org": False, "bob@x.org": True, "eve@x.org": True}
    job.write_text(JOB + "ignore: [unsubscribed]\n", encoding="utf-8")
    assert connector.run_json("plan", job).report["messages"] == ["columns not used: unsubscribed"]


def test_an_import_as_inactive_needs_no_mapping_of_the_column(connector: Connector, tmp_path: Path) -> None:
    people_path = write_csv(tmp_path / "people.csv", *PEOPLE)
    assert connector.run_json("import", people_path, "--base-id", "7", "--inactive").rows == {"read": 3, "created": 3}


def test_an_unsubscription_in_a_late_row_ends_the_load_before_the_first_create(
    connector: Connector, tmp_path: Path
) -> None:
    expected_row_counts = [f"p{index}@x.org,customer" for index in range(32_000)]
    expected_row_counts[31_000] = "p31000@x.org,unsubscribed"
    people_path = write_csv(tmp_path / "people.csv", "email,status", *expected_row_counts)
    result = connector.run_json("import", people_path, "--base-id", "7", "--active", "--limit", "32000")
    assert result.is_refused
    assert "the column status" in result.stderr
    assert list_stored_subscribers(connector.sandbox) == {}


def write_job(folder: Path, active_rule: str = "") -> Path:
    """Write a job with this rule of is_active."""
    job = folder / "job.yaml"
    job.write_text(JOB.replace(", is_active: {value: true}", active_rule) + "load: {quiet_period: 200ms}\n")
    return job


def test_a_load_without_a_value_of_is_active_is_refused_and_a_plan_warns(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email,active", "a@x.org,yes")
    job = write_job(tmp_path)
    result = connector.run("sync", job)
    assert (result.exit_code, connector.sandbox.stats()["subscribers"]) == (2, 0)
    assert "--active or --inactive (in a job: is_active: {value: true}; in Python: active=True)" in result.stderr
    for command in ("plan", "validate"):
        result = connector.run_json(command, job)
        assert result.exit_code == 1, result.stderr
        expected_text = "an import of these rows is refused: no column fills is_active"
        assert any(expected_text in message for message in result.report["messages"])


@pytest.mark.parametrize(
    ("rule", "expected_row_counts"),
    [
        ("active", {"read": 2, "invalid": 1, "created": 1}),
        ('{column: active, default: "no"}', {"read": 2, "created": 2}),
    ],
)
def test_an_empty_cell_of_is_active_is_invalid_unless_the_mapping_has_a_default(
    connector: Connector, tmp_path: Path, rule: str, expected_row_counts: dict[str, int]
) -> None:
    write_csv(tmp_path / "people.csv", "email,active", "a@x.org,yes", "b@x.org,")
    result = connector.run_json("sync", write_job(tmp_path, f", is_active: {rule}"))
    assert result.rows == expected_row_counts, result.stderr
    reject_codes = (
        [(row["_outcome"], row["_field"], row["_code"]) for row in read_rejects(result)] if result.exit_code else []
    )
    assert reject_codes == ([("invalid", "is_active", "required")] if "invalid" in expected_row_counts else [])


def test_each_command_reads_yes_and_no_in_the_language_of_the_header(connector: Connector, tmp_path: Path) -> None:
    people_path = write_csv(tmp_path / "people.csv", "email,Abonné", "ann@x.org,OUI", "bob@x.org,non")
    assert connector.run_json("validate", people_path).rows == {"read": 2, "valid": 2}
    plan_result = connector.run_json("plan", people_path, "--base-id", "7")
    assert plan_result.report["activity"] == {"active": 1, "inactive": 1}, plan_result.stderr
    assert connector.run_json("import", people_path, "--base-id", "7").rows == {"read": 2, "created": 2}
    assert connector.run("init", people_path, "--base-id", "8", "-o", "job.yaml").exit_code == 0
    assert connector.run_json("sync", "job.yaml").rows == {"read": 2, "created": 2}
    assert list_activity(connector) == {"ann@x.org": True, "bob@x.org": False}
