"""`connector reconcile JOB`: the report has exactly the differences that the test has made."""

import pytest

from connector.ledger.opening import open_ledger
from connector.ledger.records import start_run
from connector.listing.evidence import MAX_REQUESTS
from tests.pipelines.bases_by_row import write_job_with_bases
from tests.pipelines.conftest import Connector
from tests.pipelines.leftovers import produce_three_held_creates, record_lag_of_list, retry
from tests.pipelines.planned import count_requests, write_job
from tests.pipelines.reconciled import (
    NO_DIFFERENCES,
    UNKNOWN_DIFFERENCES,
    create_in_service,
    erase_oldest,
    find_differences,
    list_difference_lines,
    list_subscribers_by_email,
    read_differences,
    reconcile,
)
from tests.pipelines.virtual_time import skip_waits

CURSOR_SOURCE = "sql: {url: 'sqlite:///crm.db', table: people, cursor: {column: at, start: 1}}"


def write_people(connector: Connector, name_by_email: dict[str, str]) -> None:
    """Write each address with its name to a file and to a table. The table rows are newer than the cursor's start."""
    connector.write_people("email,name", *(f"{email},{name}" for email, name in name_by_email.items()))
    connector.crm.run("DROP TABLE IF EXISTS people", "CREATE TABLE people (email, name, at INTEGER)")
    connector.crm.insert_rows("people", [(email, name, 5) for email, name in name_by_email.items()])


@pytest.mark.parametrize(
    ("job_values", "base", "switches"),
    [
        ({"base": "id: 7"}, {"Id": 7}, {"filters": "ignored", "order": "email", "max_limit": 10}),
        ({"source": CURSOR_SOURCE}, {"Name": "News"}, {}),
    ],
    ids=["by id", "from a database"],
)
def test_a_reconciliation_finds_exactly_the_differences(
    connector: Connector, job_values: dict[str, str], base: dict[str, object], switches: dict[str, object]
) -> None:
    sandbox = connector.sandbox
    write_job(connector, **job_values)
    name_by_email = {f"person{index}@x.org": f"Ann {index}" for index in range(30)}
    write_people(connector, name_by_email)
    assert connector.sync().rows == {"read": 30, "created": 30}
    create_in_service(sandbox, "elsewhere@x.org", {"Name": "Shop"})
    assert reconcile(connector).exit_code == 0
    (erased_id,) = erase_oldest(sandbox)
    (erased_email,) = name_by_email.keys() - list_subscribers_by_email(sandbox).keys()
    listed_emails = sorted(list_subscribers_by_email(sandbox).keys() & name_by_email.keys())
    changed_email, doubled_email = listed_emails[0], listed_emails[1]
    extra_id = create_in_service(sandbox, "stranger@x.org", base, FirstName="Eve")
    doubled_id = create_in_service(sandbox, doubled_email.upper(), base, FirstName="Other")
    name_by_email[changed_email] = "Anna"
    name_by_email["new@x.org"] = "New"
    write_people(connector, name_by_email)
    sandbox.switch(**switches)
    result = reconcile(connector)
    assert (result.exit_code, result.report["status"]) == (1, "partial"), result.stderr
    assert (result.report["command"], result.report["job"]) == ("reconcile", "crm")
    assert result.report["requests"]["create"]["sent"] == 0
    assert result.report["differences_file"] == str(connector.folder / "differences.csv")
    assert result.report["differences"] == {"missing": 2, "extra": 1, "duplicated": 1, "drifted": 1, "vanished": 1}
    assert result.report["fields"] == {"first_name": 1}
    assert result.report["missing_by_ledger"] == {"confirmed": 1, "none": 1}
    lines = {(line["difference"], line["identity"]): line for line in read_differences(connector.folder)}
    assert lines.keys() == {
        ("missing", erased_email), ("vanished", erased_email), ("missing", "new@x.org"), ("extra", "stranger@x.org"),
        ("duplicated", doubled_email), ("drifted", changed_email),
    }  # fmt: skip
    first_id = list_subscribers_by_email(sandbox)[doubled_email]["Id"]
    assert lines["duplicated", doubled_email]["ids"] == f"{first_id}; {doubled_id}"
    assert lines["extra", "stranger@x.org"]["ids"] == str(extra_id)
    assert lines["vanished", erased_email]["ids"] == str(erased_id)
    drifted_line = lines["drifted", changed_email]
    service_value = list_subscribers_by_email(sandbox)[changed_email]["FirstName"]
    drifted_values = [drifted_line[name] for name in ("field", "source", "service")]
    assert drifted_values == ["first_name", "Anna", service_value]
    assert (lines["missing", "new@x.org"]["ledger"], lines["missing", erased_email]["ledger"]) == ("none", "confirmed")
    assert result.report["examples"]["extra"] == [extra_id]
    assert result.report["certificate"]["verdict"] == "complete"


def test_another_account_with_the_same_ids_is_reported(connector: Connector) -> None:
    write_job(connector)
    write_people(connector, {"ann@x.org": "Ann", "bob@x.org": "Bob"})
    assert connector.sync().rows == {"read": 2, "created": 2}
    connector.sandbox.reset()
    create_in_service(connector.sandbox, "other-ann@x.org")
    create_in_service(connector.sandbox, "other-bob@x.org")
    result = reconcile(connector)
    assert find_differences(result) == {"missing": 2, "extra": 2}
    (message,) = result.find_messages("none of the 2 subscribers that the ledger knows is listed")
    assert "another account" in message


def test_a_reconciliation_can_compare_by_client_user_id(connector: Connector) -> None:
    fields = "client_user_id: number, email: email, is_active: {value: true}"
    write_job(connector, fields=fields, subscriber="identity: client_user_id")
    connector.write_people("number,email", "a1,Ann@X.org", "b2,bob@x.org", "c3,cem@x.org")
    assert connector.sync().rows["created"] == 3
    create_in_service(connector.sandbox, "ann@x.org", ClientUserId="A1")  # not a1: ids are case-sensitive
    create_in_service(connector.sandbox, "dan@x.org")  # without a client_user_id
    connector.write_people("number,email", "a1,ann@x.org", "b2,bert@x.org", "c3,cem@x.org")
    result = reconcile(connector)
    assert find_differences(result) == {"extra": 2, "drifted": 1}
    assert list_difference_lines(connector.folder) == [
        ("drifted", "b2", "email"),
        ("extra", "A1", ""),
        ("extra", "", ""),
    ]
    assert result.find_messages("1 listed subscriber has no client_user_id")


@pytest.mark.parametrize(
    ("zips", "zip_rule", "service_fields", "expected_fields", "absent_fields"),
    [
        (["10115", "SW1A 1AA", "02134", ""], "omit", {}, [], "null"),
        (["10115"], "custom_field1", {"CustomField1": "SW1A 1AA"}, ["custom_field1", "address_zip"], "empty"),
    ],
)
def test_zips_are_compared_by_the_zip_rule_of_the_job(
    connector: Connector, zips: list[str], zip_rule: str, service_fields: dict[str, object],
    expected_fields: list[str], absent_fields: str,
) -> None:  # fmt: skip
    connector.sandbox.switch(absent_fields=absent_fields)
    fields = "email: email, address_zip: zip, address_state: state, address_line3: line, is_active: {value: true}"
    write_job(connector, base="id: 7", fields=fields, subscriber=f"zip: {zip_rule}")
    people = [f"person{index}@x.org,{zip_code},," for index, zip_code in enumerate(zips)]
    connector.write_people("email,zip,state,line", *people)
    if service_fields:
        create_in_service(connector.sandbox, "person0@x.org", {"Id": 7}, IsActive=True, **service_fields)
    else:
        assert connector.sync().rows["created"] == len(zips)
    result = reconcile(connector)
    assert find_differences(result) == ({"drifted": 1} if expected_fields else {})
    assert list(result.report["fields"]) == expected_fields


def test_missing_rows_are_reported_with_the_state_of_their_entries(connector: Connector) -> None:
    write_job(connector)
    connector.sandbox.switch(required="FirstName")
    connector.write_people("email,name", "there@x.org,Ann", "refused@x.org,")
    assert connector.sync().rows == {"read": 2, "created": 1, "rejected": 1}
    connector.sandbox.switch(drop_before=1)
    connector.write_people("email,name", *(f"lost{index}@x.org,L" for index in range(3)))
    assert connector.sync().rows == {"read": 3, "unknown": 3}
    connector.sandbox.switch(drop_before=0)
    rows = ["there@x.org,Ann", "refused@x.org,", "lost0@x.org,L", "new@x.org,N"]
    connector.write_people("email,name", *rows)
    result = reconcile(connector)
    assert result.report["missing_by_ledger"] == {"none": 1, "rejected": 1, "unknown": 1}
    ledger_states = {line["identity"]: (line["ledger"], line["message"]) for line in read_differences(connector.folder)}
    assert ledger_states["new@x.org"] == ("none", "never sent")
    assert ledger_states["refused@x.org"][0] == "rejected"
    assert "(400): Subscriber.FirstName is required" in ledger_states["refused@x.org"][1]
    assert ledger_states["lost0@x.org"][0] == "unknown"
    assert "connector retry" in ledger_states["lost0@x.org"][1]


def test_the_message_of_a_missing_row_names_the_command_that_dropped_its_create(connector: Connector) -> None:
    write_job(connector)
    connector.write_people("email,name", "there@x.org,Ann")
    connector.sync()
    path = connector.write_people("email,name", *(f"lost{index}@x.org,L" for index in range(3)))
    produce_three_held_creates(connector, path)
    retry(connector, "--held", "drop")
    result = reconcile(connector)
    assert result.report["missing_by_ledger"] == {"rejected": 3}
    for line in read_differences(connector.folder):
        if line["difference"] == "missing":
            assert line["message"].startswith("dropped by connector retry --held drop")


def test_a_row_that_is_invalid_or_a_duplicate_or_suppressed_causes_no_difference(connector: Connector) -> None:
    fields = "email: email, first_name: name, gender: sex, is_active: {value: true}"
    write_job(connector, "suppress: {file: {path: gone.csv, column: address}}", base="id: 7", fields=fields)
    connector.write_csv("gone.csv", "address", "gone@x.org", "never@x.org")
    for name in ("ann", "gone", "wrong"):
        create_in_service(connector.sandbox, f"{name}@x.org", {"Id": 7}, FirstName="Ann", IsActive=True)
    connector.write_people("email,name,sex", "ann@x.org,Ann,", "ANN@x.org,Other,", "gone@x.org,Changed,",
        "never@x.org,Ann,", "wrong@x.org,Ann,robot", "nobody,Ann,", 'torn@x.org',
    )  # fmt: skip
    result = reconcile(connector)
    assert (result.exit_code, result.report["differences"]) == (0, NO_DIFFERENCES), result.stdout
    assert result.rows == {"read": 7, "valid": 1, "invalid": 3, "duplicate": 1, "suppressed": 2}
    assert result.find_messages("2 of the invalid rows have no identity")


def test_an_incomplete_list_shows_duplicates_and_drift(connector: Connector) -> None:
    write_job(connector)
    write_people(connector, {f"person{index}@x.org": "Ann" for index in range(20)})
    connector.sync()
    for index in range(20):
        create_in_service(connector.sandbox, f"person{index}@x.org")
    write_people(connector, {f"person{index}@x.org": "Anna" for index in range(20)})
    connector.sandbox.switch(max_total=5)
    result = reconcile(connector)
    assert result.report["certificate"]["reason"] == "total_count"
    assert result.report["differences"] == {**UNKNOWN_DIFFERENCES, "duplicated": 20, "drifted": 20}
    (message,) = result.find_messages("is not known to be complete")
    assert "the missing, extra and vanished subscribers are not certain" in message
    result_without_total_count = reconcile(connector, "--ignore-total-count")
    assert result_without_total_count.report["differences"] == {**NO_DIFFERENCES, "duplicated": 20, "drifted": 20}


def test_the_differences_are_correct_even_if_the_list_changes_during_the_reading(connector: Connector) -> None:
    write_job(connector)
    write_people(connector, {f"person{index}@x.org": "Ann" for index in range(60)})
    connector.sync()
    connector.sandbox.switch(max_limit=10, churn_insert=1, churn_delete=1, churn_where="middle", id_step=5)
    result = reconcile(connector)
    connector.sandbox.switch(churn_insert=0, churn_delete=0)
    assert result.report["certificate"]["verdict"] == "complete", result.report["certificate"]
    remaining_emails = list_subscribers_by_email(connector.sandbox).keys()
    differences = list_difference_lines(connector.folder)
    assert {kind for kind, _, _ in differences} <= {"missing", "extra", "vanished"}
    assert not {identity for kind, identity, _ in differences if kind == "missing"} & remaining_emails
    assert all("churn-" in identity for kind, identity, _ in differences if kind == "extra")


def test_a_reconciliation_waits_as_long_as_the_largest_recorded_lag(connector: Connector) -> None:
    connector.sandbox.switch(list_lag_ms=2500)
    write_job(connector)
    write_people(connector, {f"person{index}@x.org": "Ann" for index in range(30)})
    assert connector.sync().exit_code == 1  # the list does not show the new subscribers yet
    record_lag_of_list(connector, 2.7)
    assert reconcile(connector).report["differences"] == NO_DIFFERENCES


def test_a_reconciliation_reports_a_load_that_has_not_ended(connector: Connector) -> None:
    write_job(connector)
    write_people(connector, {"ann@x.org": "Ann"})
    connector.sync().expect(0, read=1, created=1)
    with open_ledger(connector.ledger.url) as ledger:  # locks the ledger, as a load does
        with ledger.transaction() as connection:
            start_run(connection, "20261128T120000-0a1b2c", "crm", "sync", 0.0)
        result = connector.run_json("reconcile", "job.yaml")
    assert (result.exit_code, result.report["differences"]) == (0, NO_DIFFERENCES)
    assert result.find_messages("the run 20261128T120000-0a1b2c is active, or was killed")


def test_an_empty_source_is_refused(connector: Connector) -> None:
    connector.write_people("email,name")
    result = connector.run("reconcile", write_job(connector), "--to", connector.folder / "differences.csv")
    assert (result.exit_code, "has a header and no rows" in result.stderr) == (3, True), result.stderr
    assert not (connector.folder / "differences.csv").exists()


def test_an_unreadable_list_leaves_the_differences_file_unchanged(connector: Connector) -> None:
    write_people(connector, {"ann@x.org": "Ann"})
    write_job(connector)
    reconcile(connector)
    content_before = (connector.folder / "differences.csv").read_bytes()
    connector.sandbox.switch(list_error=1)
    result = reconcile(connector, clock=skip_waits())
    assert (result.exit_code, result.report["status"]) == (3, "aborted")
    assert "differences" not in result.report
    assert (connector.folder / "differences.csv").read_bytes() == content_before


def test_a_source_that_fails_in_the_middle_aborts_the_run(connector: Connector) -> None:
    connector.crm.run("CREATE TABLE numbers (email TEXT, name TEXT, at INTEGER)")
    connector.crm.insert_rows("numbers", [(f"p{number}@x.org", "Ann", number) for number in range(1, 4)])
    broken_sql = "CASE at WHEN 3 THEN json_extract('broken', '$') ELSE at END"  # the last row cannot be read
    connector.crm.run(f"CREATE VIEW people AS SELECT email, name, {broken_sql} AS at FROM numbers ORDER BY rowid")
    write_job(connector, source="sql: {url: 'sqlite:///crm.db', table: people}")
    result = reconcile(connector)
    assert (result.exit_code, result.report["status"]) == (3, "aborted"), result.stdout
    assert not (connector.folder / "differences.csv").exists()


def test_the_report_is_a_table_without_personal_data(connector: Connector) -> None:
    subscriber_id = create_in_service(connector.sandbox, "stranger@x.org")
    write_people(connector, {"ann@x.org": "Ann"})
    result = connector.run("reconcile", write_job(connector))
    assert result.exit_code == 1
    table_rows = [" ".join(line.strip("│").split("│")).split() for line in result.stdout.splitlines()]
    assert ["missing", "1", "rows", "2"] in table_rows
    assert ["ledger:", "none", "1"] in table_rows
    assert ["extra", "1", "ids", str(subscriber_id)] in table_rows
    assert "stranger" not in result.stdout
    assert not list((connector.folder / "state").glob("ledger*")), "a reconciliation creates no ledger"


ROWS = ("ann@x.org,news", "ann@x.org,shop", "bob@x.org,shop", "cem@x.org,club")


def test_each_base_is_compared_separately(connector: Connector) -> None:
    write_job_with_bases(connector, *ROWS)
    assert connector.sync().rows["created"] == 4
    assert reconcile(connector).exit_code == 0
    list_request_count = count_requests(connector.sandbox, "list")
    erase_oldest(connector.sandbox, BaseId=11)  # erases cem from the club
    create_in_service(connector.sandbox, "bob@x.org", {"Id": 7}, IsActive=True)  # in the source, bob is in base 9
    create_in_service(connector.sandbox, "ann@x.org", {"Id": 9})  # a second, inactive ann@x.org
    create_in_service(connector.sandbox, "ann@x.org", {"Id": 5})  # a base that the job does not have
    rows = (*ROWS[:3], "cem@x.org,news", "cem@x.org,club", "dan@x.org,nwes")
    write_job_with_bases(connector, *rows)
    result = reconcile(connector)
    # At most 6 requests read the list and find the subscriber to erase, and at most MAX_REQUESTS are for evidence.
    assert count_requests(connector.sandbox, "list") <= list_request_count + 6 + MAX_REQUESTS
    lines = read_differences(connector.folder)
    assert {f"{line['difference']} {line['base']} {line['identity']}" for line in lines} == {
        "missing Base 7 (id 7) cem@x.org", "extra Base 7 (id 7) bob@x.org", "duplicated Base 9 (id 9) ann@x.org",
        "missing Base 11 (id 11) cem@x.org", "vanished Base 11 (id 11) cem@x.org",
    }  # fmt: skip
    assert find_differences(result) == {"missing": 2, "extra": 1, "duplicated": 1, "vanished": 1}
    assert result.rows == {"read": 6, "valid": 5, "invalid": 1}
    assert any("1 of the invalid rows has no identity or no base" in message for message in result.report["messages"])


def test_a_base_without_rows_is_compared_if_the_job_names_the_base(connector: Connector) -> None:
    create_in_service(connector.sandbox, "ann@x.org", {"Id": 9})
    create_in_service(connector.sandbox, "bob@x.org", {"Id": 11})
    create_in_service(connector.sandbox, "cem@x.org", {"Id": 7}, IsActive=True)
    write_job_with_bases(connector, "cem@x.org,news", base="news: 7, shop: 9")
    assert find_differences(reconcile(connector)) == {"extra": 1}
    write_job_with_bases(connector, "cem@x.org,7", base="")  # a job without other bases
    assert find_differences(reconcile(connector)) == {}
