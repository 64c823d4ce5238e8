"""Opt-outs: inactive rows whose subscribers are active in the service. The service has no update, so each run counts
the opt-outs and is partial until a person deactivates the subscribers in the service (architecture 4.17)."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pipelines.conftest import CommandResult, Connector, read_rows
from tests.pipelines.planned import plan
from tests.pipelines.reconciled import change_in_service, erase_oldest
from tests.pipelines.test_drift import count_list_requests, read_drift


def write_files(connector: Connector, *lines: str, job_lines: Sequence[str] = ()) -> Path:
    """Write a job and its source file. Each line has an email, a name, and `yes` or `no` for `is_active`."""
    connector.write_people("email,name,active", *lines)
    return connector.write_job(*job_lines, base="id: 7", fields="email: email, first_name: name, is_active: active")


def sync_lines(connector: Connector, *lines: str, job_lines: Sequence[str] = ()) -> CommandResult:
    return connector.sync(write_files(connector, *lines, job_lines=job_lines))


def list_opt_outs(result: CommandResult) -> list[str]:
    """Return the identities that the drift file lists as opted out. Check that the report has the same count."""
    lines = read_drift(result) if result.report["drift_file"] else []
    identities = [line["identity"] for line in lines if line["_code"] == "opted_out"]
    assert result.report["opt_outs"] == len(identities)
    return identities


LINE_COLUMNS = ("field", "service", "source", "_row", "_outcome")


def check_no_opt_out(result: CommandResult) -> None:
    """Check that the run is ok and has no opt-out."""
    assert (result.exit_code, result.report["opt_outs"], result.report["status"]) == (0, 0, "ok"), result.report


@pytest.mark.parametrize(("filters", "job_lines"), [("icase", []), ("ignored", ["guard: {max_creates: 5}"])])
def test_an_opt_out_makes_each_run_partial_until_the_service_shows_the_subscriber_inactive(
    connector: Connector, filters: str, job_lines: list[str]
) -> None:
    connector.sandbox.switch(filters=filters)
    check_no_opt_out(sync_lines(connector, "ann@x.org,Ann,yes", "bob@x.org,Bob,yes", job_lines=job_lines))
    results = [sync_lines(connector, "ann@x.org,Anna,no", "bob@x.org,Rob,yes", job_lines=job_lines) for _ in range(3)]
    for result in results:
        assert (result.exit_code, result.report["status"]) == (1, "partial"), result.report
        assert result.rows == {"read": 2, "changed": 2}
        assert list_opt_outs(result) == ["ann@x.org"]
        (line,) = [line for line in read_drift(result) if line["field"] == "is_active"]
        assert [line[name] for name in LINE_COLUMNS] == ["is_active", "true", "false", "2", "changed"]
        (message,) = result.find_messages("opted out")
        assert message.startswith("1 subscriber opted out in the source and is still active in the service. Deactivate")
        assert message.endswith(result.report["drift_file"])
    if filters == "icase":
        assert [sorted(line["field"] for line in read_drift(result)) for result in results] == [
            ["first_name", "first_name", "is_active"],
            *[["first_name", "is_active"]] * 2,  # the two later runs do not report bob's change again
        ]
        assert count_list_requests(results[2]) <= 3
    result_without_row = sync_lines(connector, "bob@x.org,Rob,yes", job_lines=job_lines)
    assert (result_without_row.exit_code, list_opt_outs(result_without_row)) == (1, ["ann@x.org"])
    (line,) = [line for line in read_drift(result_without_row) if line["_code"] == "opted_out"]
    assert [line[name] for name in LINE_COLUMNS] == ["is_active", "true", "false", "", ""]
    change_in_service(connector, "ann@x.org", IsActive=False)
    check_no_opt_out(sync_lines(connector, "bob@x.org,Rob,yes", job_lines=job_lines))
    for _ in range(2):
        check_no_opt_out(sync_lines(connector, "ann@x.org,Anna,no", "bob@x.org,Rob,yes", job_lines=job_lines))


def test_an_inactive_row_of_an_existing_subscriber_is_an_opt_out_in_the_first_run(connector: Connector) -> None:
    connector.sandbox.seed(1010, base_id=7)  # for a list of this length, the run looks up each row
    sync_lines(connector, "known@x.org,Kay,yes")
    change_in_service(connector, "ann@x.org", IsActive=True, FirstName="Ann")
    for _ in range(2):
        assert list_opt_outs(sync_lines(connector, "ann@x.org,Ann,no", "bob@x.org,Bob,no")) == ["ann@x.org"]


def test_many_opt_outs_are_compared_by_one_reading_of_the_list(connector: Connector) -> None:
    people = [f"p{index}@x.org,Pat" for index in range(120)]
    sync_lines(connector, *(f"{person},yes" for person in people))
    for _ in range(2):
        result = sync_lines(connector, *(f"{person},no" for person in people))
        assert (result.exit_code, len(list_opt_outs(result))) == (1, 120)
        assert count_list_requests(result) < 40


def test_opt_outs_are_counted_correctly_if_the_list_hides_inactive_subscribers(connector: Connector) -> None:
    connector.sandbox.seed(20, base_id=7)
    people = [f"p{index}@x.org,Pat,no" for index in range(5)]
    sync_lines(connector, "ann@x.org,Ann,yes", "bob@x.org,Bob,yes", *people)
    connector.sandbox.switch(hide="inactive")
    for _ in range(2):
        result = sync_lines(connector, "ann@x.org,Ann,no", "bob@x.org,Bob,no", *people)
        assert sorted(list_opt_outs(result)) == ["ann@x.org", "bob@x.org"], result.report["messages"]
    change_in_service(connector, "ann@x.org", IsActive=False)
    result = sync_lines(connector, "ann@x.org,Ann,no", "bob@x.org,Bob,no", *people)
    assert (result.exit_code, list_opt_outs(result)) == (1, ["bob@x.org"])
    change_in_service(connector, "bob@x.org", IsActive=False)
    check_no_opt_out(sync_lines(connector, "ann@x.org,Ann,no", "bob@x.org,Bob,no", *people))


def test_an_erased_subscriber_ends_the_opt_out(connector: Connector) -> None:
    sync_lines(connector, "ann@x.org,Ann,yes", "bob@x.org,Bob,yes")
    sync_lines(connector, "ann@x.org,Ann,no", "bob@x.org,Bob,yes")
    erase_oldest(connector.sandbox, Email="ann@x.org")
    for _ in range(2):
        check_no_opt_out(sync_lines(connector, "bob@x.org,Bob,yes"))


def test_a_row_that_says_active_again_ends_the_opt_out(connector: Connector) -> None:
    sync_lines(connector, "ann@x.org,Ann,yes", "bob@x.org,Bob,yes")
    result = sync_lines(connector, "ann@x.org,Ann,no", "bob@x.org,Bob,yes")
    assert (list_opt_outs(result), result.report["problems"]["open"]) == (["ann@x.org"], 1)
    result = sync_lines(connector, "ann@x.org,Ann,yes", "bob@x.org,Bob,yes")
    check_no_opt_out(result)
    assert result.report["problems"]["open"] == 0
    check_no_opt_out(sync_lines(connector, "bob@x.org,Bob,yes"))


def test_an_opt_out_counts_while_the_list_does_not_show_the_subscriber(connector: Connector) -> None:
    """The list is cut off before the subscriber, and no filter finds the subscriber."""
    people = [f"p{index}@x.org,Pat,yes" for index in range(10)]
    sync_lines(connector, *people)
    connector.sandbox.seed(150, base_id=7)
    sync_lines(connector, "ann@x.org,Ann,yes")
    assert list_opt_outs(sync_lines(connector, "ann@x.org,Ann,no")) == ["ann@x.org"]
    connector.sandbox.switch(filters="ignored", result_window=130)
    for _ in range(2):
        result = sync_lines(connector, *people)
        assert (result.exit_code, len(list_opt_outs(result))) == (1, 1), result.report["messages"]
        assert result.find_messages("could not see whether")
    connector.sandbox.switch(filters="exact", result_window=0)
    assert list_opt_outs(sync_lines(connector, *people)) == ["ann@x.org"]


def test_an_import_of_a_file_with_a_new_name_reports_the_opt_outs_of_its_rows(connector: Connector) -> None:
    def run(name: str, *lines: str) -> CommandResult:
        path = connector.write_csv(name, "email,is_active", *lines)
        return connector.run_json("import", path, "--base-id", "7", "--quiet-period", "200ms")

    run("monday.csv", "ann@x.org,yes", "bob@x.org,yes")
    for name in ("tuesday.csv", "wednesday.csv"):
        assert list_opt_outs(run(name, "ann@x.org,no", "bob@x.org,yes")) == ["ann@x.org"]
    check_no_opt_out(run("new.csv", "eve@x.org,yes"))


def test_a_plan_counts_opt_outs_and_changes_nothing(connector: Connector) -> None:
    sync_lines(connector, "ann@x.org,Ann,yes", "bob@x.org,Bob,yes", "cem@x.org,Cem,yes")
    write_files(connector, "ann@x.org,Ann,no", "bob@x.org,Bob,yes", "cem@x.org,Cem,yes")
    for _ in range(2):
        plan_result = plan(connector, "job.yaml")
        assert (plan_result.exit_code, plan_result.report["opt_outs"], plan_result.report["drift_file"]) == (1, 1, None)
    sync_lines(connector, "ann@x.org,Ann,no", "bob@x.org,Bob,yes", "cem@x.org,Cem,yes")
    write_files(connector, "bob@x.org,Bob,no", "cem@x.org,Cem,yes")
    plan_result = plan(connector, "job.yaml", "--rows", connector.folder / "rows.csv")
    # The ledger has recorded the opt-out of ann, and the plan finds the opt-out of bob in his row.
    assert (plan_result.exit_code, plan_result.report["opt_outs"]) == (1, 2)
    assert [row["_code"] for row in read_rows(connector.folder / "rows.csv")] == ["opted_out", ""]
    assert plan(connector, "job.yaml").report["opt_outs"] == 2


def test_an_incremental_sync_reports_an_opt_out_again_without_reading_the_row_again(connector: Connector) -> None:
    cursor = "{column: changed_at, start: '2025-01-01', lookback: 1s}"
    source = f"sql: {{url: 'sqlite:///crm.db', table: people, cursor: {cursor}}}"
    connector.write_job(source=source, base="column: base", fields="email: email, is_active: active")
    connector.crm.run("CREATE TABLE people (email TEXT, active TEXT, base TEXT, changed_at TEXT)")
    rows = [("ann@x.org", "yes", "7", "2026-01-01 00:00:00"), ("bob@x.org", "yes", "8", "2026-01-01 00:00:00")]
    connector.crm.insert_rows("people", rows)
    check_no_opt_out(connector.sync())
    connector.crm.run("UPDATE people SET active = 'no', changed_at = '2026-01-02 00:00:00' WHERE base = '7'")
    assert list_opt_outs(connector.sync()) == ["ann@x.org"]
    connector.crm.run("UPDATE people SET changed_at = '2026-01-03 00:00:00' WHERE base = '8'")
    for _ in range(2):
        result = connector.sync()
        assert (result.exit_code, list_opt_outs(result)) == (1, ["ann@x.org"]), result.report
    assert plan(connector, "job.yaml").report["opt_outs"] == 1
    change_in_service(connector, "ann@x.org", IsActive=False)
    check_no_opt_out(connector.sync())
    check_no_opt_out(connector.sync())


def test_every_report_shows_opt_outs_and_the_next_step(connector: Connector) -> None:
    sync_lines(connector, "ann@x.org,Ann,yes", "bob@x.org,Bob,yes")
    write_files(connector, "ann@x.org,Ann,no", "bob@x.org,Bob,no")
    result = connector.run("sync", "job.yaml", "--report", "run.html", "--metrics", "run.prom")
    assert result.exit_code == 1
    assert "opted out" in result.stdout
    expected_text = "2 subscribers opted out in the source and are still active in the service. Deactivate them there"
    assert expected_text in result.stderr
    assert expected_text in (connector.folder / "run.html").read_text(encoding="utf-8")
    assert 'connector_last_run_opt_outs{command="sync",job="crm"} 2' in (connector.folder / "run.prom").read_text()
    assert "2 subscribers opted out" in connector.run("status").stdout
