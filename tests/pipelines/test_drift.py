"""The service has no update, so a run writes each changed field to a drift file (architecture 2, 4.12, 8)."""

import stat
from pathlib import Path

import pytest

from tests.pipelines.conftest import CommandResult, Connector, read_rows, wait_for, wait_for_result
from tests.pipelines.planned import count_requests
from tests.pipelines.reconciled import change_in_service, create_in_service, erase_oldest

FIELDS = (
    "email: email, is_active: {value: true}, first_name: name, tags: {column: segments, split: '|'}, address_zip: zip"
)
COLUMNS = ["identity", "field", "service", "source", "_row", "_file", "_outcome", "_code", "_run_id", "_at"]


def sync_lines(connector: Connector, *lines: str, **job_values: str) -> CommandResult:
    """Sync a file with these rows of email, name, segments and zip."""
    return connector.sync(write_files(connector, *lines, **job_values))


def write_files(connector: Connector, *lines: str, **job_values: str) -> Path:
    """Write the job, and its file with these rows."""
    connector.write_people("email,name,segments,zip", *lines)
    return connector.write_job(**{"base": "id: 7", "fields": FIELDS, **job_values})


def read_drift(result: CommandResult) -> list[dict[str, str]]:
    assert result.report["drift_file"] is not None
    return read_rows(Path(result.report["drift_file"]))


def read_drifted_fields(result: CommandResult) -> list[tuple[str, str, str, str]]:
    """Return the identity, the field, the value in the service and the value in the source for each drifted field."""
    return sorted((line["identity"], line["field"], line["service"], line["source"]) for line in read_drift(result))


def test_the_drift_file_shows_each_changed_field_with_both_values(connector: Connector) -> None:
    first_result = sync_lines(connector, "Ann@x.org,Ann,a|b,1012", "bob@x.org,Bob,,", "eve@x.org,Eve,,7")
    assert (first_result.rows, first_result.report["drift_file"]) == ({"read": 3, "created": 3}, None)
    second_result = sync_lines(connector, "Ann@x.org,Anna,a|c,1012", "bob@x.org,Bob,,", "eve@x.org,Eve,,")
    second_result.expect(0, read=3, exists=1, changed=2)
    assert read_drifted_fields(second_result) == [
        ("Ann@x.org", "first_name", "Ann", "Anna"),
        ("Ann@x.org", "tags", '["a","b"]', '["a","c"]'),
        ("eve@x.org", "address_zip", "7", ""),
    ]
    (line, *_), report = read_drift(second_result), second_result.report
    assert list(line) == COLUMNS
    file = str(connector.folder / "people.csv")
    assert [line[name] for name in COLUMNS[4:9]] == ["2", file, "changed", "changed", report["run_id"]]
    path = Path(report["drift_file"])
    assert path == connector.folder / "state" / "drift" / f"{report['run_id']}.csv"
    assert [stat.S_IMODE(private_path.stat().st_mode) for private_path in (path, path.parent)] == [0o600, 0o700]


def test_a_reported_change_is_reported_again_only_after_a_week(connector: Connector) -> None:
    sync_lines(connector, "ann@x.org,Ann,,")
    first_result = sync_lines(connector, "ann@x.org,Anna,,")
    assert read_drifted_fields(first_result) == [("ann@x.org", "first_name", "Ann", "Anna")]
    second_result = sync_lines(connector, "ann@x.org,Anna,,")
    assert (second_result.rows, second_result.report["drift_file"]) == ({"read": 1, "changed": 1}, None)
    assert any("in the drift file of an earlier run" in message for message in second_result.report["messages"])
    assert count_list_requests(second_result) < count_list_requests(first_result)
    connector.ledger.run("UPDATE entry SET reported_at = reported_at - 7 * 86400")
    assert read_drifted_fields(sync_lines(connector, "ann@x.org,Anna,,")) == read_drifted_fields(first_result)
    other_result = sync_lines(connector, "ann@x.org,Annie,,")
    assert read_drifted_fields(other_result) == [("ann@x.org", "first_name", "Ann", "Annie")]
    corrected_result = sync_lines(connector, "ann@x.org,Ann,,")
    assert (corrected_result.rows, corrected_result.report["drift_file"]) == ({"read": 1, "exists": 1}, None)


def count_list_requests(result: CommandResult) -> int:
    list_request_count: int = result.report["requests"]["list"]["sent"]
    return list_request_count


@pytest.mark.parametrize("filters", ["exact", "ignored"])
def test_a_changed_row_is_compared_with_the_current_values_of_the_service(connector: Connector, filters: str) -> None:
    sync_lines(connector, "ann@x.org,Ann,,", "bob@x.org,Bob,,", "eve@x.org,Eve,,")
    change_in_service(connector, "ann@x.org", FirstName="Annette")
    change_in_service(connector, "eve@x.org", FirstName="Eva", IsActive=True)
    connector.sandbox.switch(filters=filters)
    changed_result = sync_lines(connector, "ann@x.org,Anna,,", "bob@x.org,Rob,,", "eve@x.org,Eva,,")
    assert changed_result.rows == {"read": 3, "exists": 1, "changed": 2}
    assert read_drifted_fields(changed_result) == [
        ("ann@x.org", "first_name", "Annette", "Anna"),
        ("bob@x.org", "first_name", "Bob", "Rob"),
    ]


def test_a_sync_after_an_import_of_other_columns_reports_only_the_changed_value(connector: Connector) -> None:
    person_count = 250  # for this number of rows, the run reads the whole list instead of using filters
    rows = [f"p{index}@x.org,Ann {index},Lee,true" for index in range(person_count)]
    connector.write_csv("export.csv", "Email,First name,Last name,is_active", *rows)
    result = connector.run_json("import", "export.csv", "--base-id", "7")
    result.expect_rows(read=person_count, created=person_count)
    fields = f"{FIELDS}, last_name: {{value: Lee}}"
    changed_lines = [f"p{index}@x.org,{'Zoe' if index == 5 else 'Ann'} {index},," for index in range(person_count)]
    sync_result = sync_lines(connector, *changed_lines, fields=fields)
    assert sync_result.rows == {"read": person_count, "exists": person_count - 1, "changed": 1}
    assert read_drifted_fields(sync_result) == [("p5@x.org", "first_name", "Ann 5", "Zoe 5")]
    assert not any("mapping" in message for message in sync_result.report["messages"])
    assert count_list_requests(sync_result) <= person_count + 5
    second_result = sync_lines(connector, *changed_lines, fields=fields)
    assert (second_result.rows, second_result.report["drift_file"]) == (sync_result.rows, None)
    assert count_list_requests(second_result) <= 1


def test_values_that_the_service_altered_at_the_create_are_not_reported_as_changes(connector: Connector) -> None:
    connector.sandbox.switch(alter_fields=["FirstName"])
    create_result = sync_lines(connector, "ann@x.org,Annabel,,", "bob@x.org,Robert,a,")
    assert create_result.report["echo"] == {"first_name": 2}
    changed_result = sync_lines(connector, "ann@x.org,Annabel,b,", "bob@x.org,Robert,,")
    drifted_fields = read_drifted_fields(changed_result)
    assert [(identity, field) for identity, field, _, _ in drifted_fields] == [
        ("ann@x.org", "tags"),
        ("bob@x.org", "tags"),
    ]


def test_a_changed_row_of_an_unlisted_subscriber_is_reported_as_not_compared(connector: Connector) -> None:
    sync_lines(connector, "ann@x.org,Ann,,", "bob@x.org,Bob,,")
    erase_oldest(connector.sandbox, Email="ann@x.org")
    changed_result = sync_lines(connector, "ann@x.org,Anna,,", "bob@x.org,Rob,,")
    assert changed_result.rows == {"read": 2, "changed": 2}
    lines = [(line["identity"], line["field"], line["_code"]) for line in read_drift(changed_result)]
    assert lines == [("ann@x.org", "", "not_compared"), ("bob@x.org", "first_name", "changed")]
    assert any("the list did not show the subscriber" in message for message in changed_result.report["messages"])


def test_a_changed_row_is_not_compared_with_a_subscriber_whose_address_has_changed(connector: Connector) -> None:
    """The values in the service may belong to another person."""
    fields = "email: email, is_active: zip, first_name: name, tags: {column: segments, split: '|'}"
    sync_lines(connector, "ann@x.org,Ann,,yes", "bob@x.org,Bob,,yes", fields=fields)
    change_in_service(connector, "ann@x.org", FirstName="Ann", IsActive=True, Phone="0201")
    connector.sandbox.switch(merge_by=["Phone"])
    create_in_service(connector.sandbox, "bea@x.org", {"Id": 7}, FirstName="Bea", IsActive=True, Phone="0201")
    changed_result = sync_lines(connector, "ann@x.org,Anna,,no", "bob@x.org,Bob,,yes", fields=fields)
    assert connector.sandbox.stats()["subscribers"] == 2
    lines = [(line["identity"], line["field"], line["_code"]) for line in read_drift(changed_result)]
    assert lines == [("ann@x.org", "", "not_compared")]
    assert (changed_result.rows, changed_result.report["opt_outs"]) == ({"read": 2, "changed": 1, "exists": 1}, 0)


@pytest.mark.parametrize("other_person_count", [0, 1010], ids=["by a listing", "by look-ups"])
def test_a_row_of_an_existing_subscriber_is_compared_by_the_first_run(
    connector: Connector, other_person_count: int
) -> None:
    if other_person_count:
        connector.sandbox.seed(other_person_count, base_id=7)
        sync_lines(
            connector, "known@x.org,Kay,,"
        )  # now the ledger knows the id of the base, and the list has two pages
    change_in_service(connector, "ann@x.org", FirstName="Annette", IsActive=True)
    change_in_service(connector, "bob@x.org", FirstName="Bob", IsActive=True)
    plan_result = connector.run_json("plan", write_files(connector, "ann@x.org,Ann,,", "bob@x.org,Bob,,"))
    first_result = sync_lines(connector, "ann@x.org,Ann,,", "bob@x.org,Bob,,")
    assert first_result.rows == plan_result.rows == {"read": 2, "exists": 1, "changed": 1}
    assert read_drifted_fields(first_result) == [("ann@x.org", "first_name", "Annette", "Ann")]
    second_result = sync_lines(connector, "ann@x.org,Ann,,", "bob@x.org,Bob,,")
    assert (second_result.rows, second_result.report["drift_file"]) == (first_result.rows, None)
    changed_result = sync_lines(connector, "ann@x.org,Anna,,", "bob@x.org,Bob,,")
    assert read_drifted_fields(changed_result) == [("ann@x.org", "first_name", "Annette", "Anna")]


def test_a_held_row_is_compared_with_a_subscriber_that_another_program_created(connector: Connector) -> None:
    load = "quiet_period: 200ms, on_unknown: hold"
    connector.sandbox.switch(drop_before=1.0)
    sync_lines(connector, "ann@x.org,Ann,,", load=load)
    connector.sandbox.switch(drop_before=0)
    assert sync_lines(connector, "ann@x.org,Ann,,", load=load).rows == {"read": 1, "unknown": 1}
    change_in_service(connector, "ann@x.org", FirstName="Annette", IsActive=True)
    result = sync_lines(connector, "ann@x.org,Ann,,", "new@x.org,New,,", load=load)
    result.expect(0, read=2, created=1, changed=1)
    assert read_drifted_fields(result) == [("ann@x.org", "first_name", "Annette", "Ann")]


def test_a_comparison_that_fails_at_the_end_of_a_run_is_reported_in_a_message(connector: Connector) -> None:
    sandbox = connector.sandbox
    sync_lines(connector, "ann@x.org,Ann,,")
    write_files(connector, "ann@x.org,Anna,,")
    request_count = count_requests(sandbox, "list")
    sandbox.switch(latency_ms=2000)
    with connector.start("sync", "job.yaml", "--output", "json") as process:
        wait_for(lambda: count_requests(sandbox, "list") > request_count)  # the run has checked the account
        sandbox.switch(latency_ms=0, authorization="no longer {token}")
        result = wait_for_result(process)
    result.expect(0, read=1, changed=1)
    assert [(line["field"], line["_code"]) for line in read_drift(result)] == [("", "not_compared")]
    assert any("the list could not be read" in message for message in result.report["messages"])
    assert sandbox.stats()["requests"]["list"]["answers"].get("401", 0) >= 1


def test_an_omitted_zip_is_reported_once_even_if_the_answer_to_the_create_was_lost(connector: Connector) -> None:
    connector.sandbox.switch(error_after=0.3, drop_before=0.1)
    people = [*(f"p{index}@x.org,Ann,,SW{index}" for index in range(40)), "bob@x.org,Bob,,1012", "eve@x.org,Eve,,02134"]
    create_result = sync_lines(connector, *people)
    assert create_result.rows == {"read": 42, "created": 42}
    assert create_result.report["settled"]["found"] > 0
    omitted_zip_differences = [(f"p{index}@x.org", "address_zip", "", f"SW{index}") for index in range(40)]
    assert read_drifted_fields(create_result) == sorted(
        [*omitted_zip_differences, ("eve@x.org", "address_zip", "", "02134")]
    )
    lines = {tuple(line[name] for name in ("_outcome", "_code")) for line in read_drift(create_result)}
    assert lines == {("created", "zip_omitted")}
    second_result = sync_lines(connector, *people)
    assert (second_result.rows, second_result.report["drift_file"]) == ({"read": 42, "exists": 42}, None)
