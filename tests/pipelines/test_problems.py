"""Problems of a job: a row is a problem until a later run of the job reads the row without a fault."""

from pathlib import Path

import pytest

from tests.pipelines.conftest import CommandResult, Connector

FIELDS = "email: mail, first_name: name, is_active: {value: true}, birthday: born"
QUERY_SOURCE = (
    "sql: {url: 'sqlite:///crm.db', query: 'select * from people where changed_at > :cursor', "
    "cursor: {column: changed_at, start: 0}}"
)
VALID_ROW, ROW_WITH_WRONG_BIRTHDAY, ROW_WITHOUT_ADDRESS = "ann@x.org,Ann,", "bob@x.org,Bob,31.02.1990", "no address,Cy,"


def write_job(connector: Connector, *job_lines: str, **job_values: str) -> Path:
    return connector.write_job(*job_lines, **{"base": "id: 7", "fields": FIELDS, **job_values})


def sync_lines(connector: Connector, *lines: str, job_line: str = "", options: tuple[str, ...] = ()) -> CommandResult:
    connector.write_people("mail,name,born", *lines)
    return connector.sync(write_job(connector, job_line), *options)


def read_problem_counts(result: CommandResult) -> tuple[int, int, int]:
    """Return the exit code, and the numbers of new and open problems."""
    problems = result.report["problems"]
    return result.exit_code, problems["new"], problems["open"]


def read_problem_group_counts(connector: Connector) -> dict[tuple[str, str, str], int]:
    """Return the numbers of open problems that `status` reports, by job, kind and field."""
    status_report = connector.run_json("status").report
    return {
        (problem["job"], problem["kind"], problem["field"]): problem["problems"]
        for problem in status_report["problems"]
    }


def test_a_known_problem_does_not_make_a_run_partial_if_fail_on_is_new(connector: Connector) -> None:
    results = [
        sync_lines(connector, *rows, job_line="fail_on: new")
        for rows in (
            (VALID_ROW, ROW_WITH_WRONG_BIRTHDAY),
            (VALID_ROW, ROW_WITH_WRONG_BIRTHDAY),
            (VALID_ROW, ROW_WITH_WRONG_BIRTHDAY, ROW_WITHOUT_ADDRESS),
            (VALID_ROW, ROW_WITHOUT_ADDRESS),
        )
    ]
    assert [read_problem_counts(result) for result in results] == [(1, 1, 1), (0, 0, 1), (1, 1, 2), (0, 0, 1)]
    assert [result.report["status"] for result in results] == ["partial", "ok", "partial", "ok"]
    assert results[2].report["problems"]["kinds"] == {"invalid": {"new": 1, "open": 2}}


def test_the_problem_of_a_deleted_row_ends_after_a_run_that_reads_the_whole_source(connector: Connector) -> None:
    sync_lines(connector, VALID_ROW, ROW_WITH_WRONG_BIRTHDAY, ROW_WITHOUT_ADDRESS)
    limited_result = sync_lines(connector, VALID_ROW, options=("--limit", "1"))
    assert read_problem_counts(limited_result) == (0, 0, 2)
    other_path = connector.write_csv("other.csv", "mail,name,born", VALID_ROW)
    assert read_problem_counts(connector.run_json("import", other_path, "--job", "job.yaml")) == (0, 0, 2)
    assert read_problem_counts(sync_lines(connector, VALID_ROW)) == (0, 0, 0)


def test_an_incremental_run_ends_only_problems_whose_rows_it_reads(connector: Connector) -> None:
    def run(*rows: tuple[str, str, int], options: tuple[str, ...] = ()) -> CommandResult:
        connector.crm.run("CREATE TABLE IF NOT EXISTS people (mail PRIMARY KEY, born, changed_at)")
        for row in rows:
            connector.crm.run(f"INSERT OR REPLACE INTO people VALUES {row}")
        fields = "email: mail, birthday: born, is_active: {value: true}"
        return connector.sync(write_job(connector, source=QUERY_SOURCE, fields=fields), *options)

    wrong_date, right_date = "31.02.1990", "1990-02-03"
    first_rows = [("ann@x.org", right_date, 1), ("bob@x.org", wrong_date, 2), ("cy@x.org", wrong_date, 3)]
    assert read_problem_counts(run(*first_rows)) == (1, 2, 2)
    assert read_problem_counts(run(("dee@x.org", right_date, 4))) == (0, 0, 2)
    assert read_problem_counts(run(("bob@x.org", right_date, 5))) == (0, 0, 1)
    assert read_problem_group_counts(connector) == {("crm", "invalid", "birthday"): 1}
    connector.crm.run("DELETE FROM people WHERE mail = 'cy@x.org'")
    assert read_problem_counts(run(options=("--full",))) == (0, 0, 0)


@pytest.mark.parametrize("has_job", [True, False])
def test_importing_a_corrected_row_of_a_rejects_file_ends_the_problem_of_the_row(
    connector: Connector, has_job: bool
) -> None:
    result = sync_lines(connector, VALID_ROW, ROW_WITH_WRONG_BIRTHDAY, ROW_WITHOUT_ADDRESS)
    rejects_text = Path(result.report["rejects_file"]).read_text(encoding="utf-8")
    corrected_path = connector.folder / "corrected.csv"
    corrected_path.write_text(rejects_text.replace("no address,", "cy@x.org,"), encoding="utf-8")
    options = ["--job", str(connector.folder / "job.yaml")]
    if not has_job:
        options = ["--base-id", "7", "--active", "--map", "email=mail", "--map", "birthday=born"]
    result = connector.run_json("import", corrected_path, *options).expect(1, read=2, created=1, invalid=1)
    assert read_problem_group_counts(connector) == {("crm", "invalid", "birthday"): 1}
    if has_job:
        assert read_problem_counts(result) == (1, 0, 1)


def test_an_import_without_a_job_records_no_problems(connector: Connector) -> None:
    path = connector.write_people("email", "ann@x.org", "bob")
    assert [read_problem_counts(connector.import_file(path)) for _ in range(2)] == [(1, 1, 1), (1, 1, 1)]
    assert read_problem_group_counts(connector) == {}


def test_the_recorded_problems_stay_unchanged_after_a_plan_and_after_an_aborted_run(connector: Connector) -> None:
    plan_result = sync_lines(connector, VALID_ROW, ROW_WITH_WRONG_BIRTHDAY, options=("--dry-run",))
    assert read_problem_counts(plan_result) == (1, 1, 0)
    sync_lines(connector, VALID_ROW, ROW_WITH_WRONG_BIRTHDAY)
    plan_result = sync_lines(connector, VALID_ROW, ROW_WITHOUT_ADDRESS, options=("--dry-run",))
    assert read_problem_counts(plan_result) == (1, 1, 1)
    guard_line = "guard: {max_shrink: 100%, max_creates: 0}"
    assert sync_lines(connector, "eve@x.org,Eve,", ROW_WITHOUT_ADDRESS, job_line=guard_line).exit_code == 3
    assert read_problem_group_counts(connector) == {("crm", "invalid", "birthday"): 1}


def test_a_refused_row_is_a_problem_until_a_retry_creates_it(connector: Connector) -> None:
    connector.sandbox.switch(required="Phone", error_status=422)
    assert [read_problem_counts(sync_lines(connector, VALID_ROW)) for _ in range(2)] == [(1, 1, 1), (1, 0, 1)]
    assert read_problem_group_counts(connector) == {("crm", "rejected", ""): 1}
    steps = connector.run_json("status").report["next"]
    assert any(step.endswith(f"connector retry --rejected --job {connector.folder}/job.yaml") for step in steps)
    connector.sandbox.switch(required="")
    connector.run_json("retry", "--rejected", "--quiet-period", "200ms").expect_rows(read=1, created=1)
    assert read_problem_group_counts(connector) == {}


def test_one_identity_in_two_bases_is_two_problems(connector: Connector) -> None:
    def run(*lines: str) -> CommandResult:
        connector.write_people("mail,name,born,list", *lines)
        return connector.sync(write_job(connector, base="column: list"))

    cells_with_wrong_birthday = "ann@x.org,Ann,31.02.1990"
    assert read_problem_counts(run(f"{cells_with_wrong_birthday},7", f"{cells_with_wrong_birthday},9")) == (1, 2, 2)
    limited_result = connector.sync("job.yaml", "--limit", "1")
    assert read_problem_counts(limited_result) == (1, 0, 2)
    assert read_problem_counts(run("ann@x.org,Ann,,7", f"{cells_with_wrong_birthday},9")) == (1, 0, 1)


def test_forget_deletes_the_problem_of_the_subscriber(connector: Connector) -> None:
    connector.sandbox.switch(required="Phone", error_status=422)
    sync_lines(connector, VALID_ROW)
    connector.run("forget", "ann@x.org")
    assert read_problem_group_counts(connector) == {}


def test_the_command_in_the_output_of_status_closes_the_problems_of_a_removed_job(connector: Connector) -> None:
    receipts_line = f"receipts: {{to: 'sqlite:///{connector.folder}/warehouse.db', table: news}}"
    (connector.folder / "warehouse.db").write_text("not a database")
    sync_lines(connector, VALID_ROW, ROW_WITH_WRONG_BIRTHDAY, job_line=receipts_line)
    connector.write_people("mail,name,born", VALID_ROW, ROW_WITHOUT_ADDRESS)
    connector.sync(write_job(connector, job="shop"))
    assert set(read_problem_group_counts(connector)) == {("crm", "invalid", "birthday"), ("shop", "invalid", "email")}
    (connector.folder / "job.yaml").unlink()
    steps = connector.run_json("status").report["next"]
    commands = [step.rpartition(": ")[2] for step in steps if "If you removed the job" in step]
    assert commands == ["connector prune --removed-job crm", "connector prune --removed-job shop"]
    prune_result = connector.run_json(*commands[0].split()[1:])
    assert prune_result.report["messages"][0] == "1 open problem and 1 receipt of the job crm deleted"
    assert set(read_problem_group_counts(connector)) == {("shop", "invalid", "email")}
    assert "0 open problems" in connector.run(*commands[0].split()[1:]).stderr
    connector.run(*commands[1].split()[1:])
    assert connector.run_json("status").report["next"] == [], "no command with the removed file works"
