"""Guards of a job: a guard stops a run that exceeds the limit of the guard, and the cursor does not move."""

import shutil
from pathlib import Path

import pytest

from connector.tally import exceeds_share
from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, CommandResult, Connector
from tests.pipelines.leftovers import create_with_other_ledger, read_rejects
from tests.pipelines.planned import count_creates, plan, write_job

CURSOR_SOURCE = "sql: {url: 'sqlite:///crm.db', table: people, cursor: {column: number, start: '0'}}"
INVALID_ROWS = tuple(f"nobody {index},X" for index in range(11))


def write_people(connector: Connector, valid_count: int, *other_rows: str) -> None:
    connector.write_people("email,name", *(f"p{index}@x.org,Ann" for index in range(valid_count)), *other_rows)


def add_people(connector: Connector, *person_numbers: int) -> None:
    connector.crm.run("create table if not exists people (email, number)")
    connector.crm.insert_rows("people", [(f"p{number}@x.org", number) for number in person_numbers])


def has_guard_stopped_run(result: CommandResult, expected_text: str) -> bool:
    """Return whether a guard with this message ended the run before its first create."""
    message = result.report["messages"][0]
    assert (result.exit_code, result.report["status"]) == (3, "aborted"), result.report
    assert "Nothing was sent, and no cursor has moved" in message
    return expected_text in message and not result.rows.get("created")


def test_more_invalid_rows_than_allowed_stop_the_run(connector: Connector) -> None:
    write_job(connector, "guard: {max_invalid: 10%}")
    write_people(connector, 89, *INVALID_ROWS)
    result = connector.sync()
    assert has_guard_stopped_run(result, "guard.max_invalid: 11 of 100 rows are invalid (11 %), and 10 % are allowed")
    assert result.rows == {"read": 100, "invalid": 11, "unsent": 89}
    assert [row["_outcome"] for row in read_rejects(result)] == ["invalid"] * 11
    assert count_creates(connector.sandbox) == 0
    write_people(connector, 90, *INVALID_ROWS[:10])
    second_result = connector.sync().expect(1, read=100, invalid=10, created=90)
    # The rejects file has each row once, although a run with guards reads the rows twice.
    assert [row["_row"] for row in read_rejects(second_result)] == [str(index) for index in range(92, 102)]


def test_more_creates_than_allowed_stop_the_run(connector: Connector) -> None:
    write_job(connector, "guard: {max_creates: 3}")
    write_people(connector, 4)
    plan_result = plan(connector, "job.yaml").expect(3, read=4, created=4)
    for result in (plan_result, connector.sync()):
        assert "guard.max_creates: 4 subscribers would be created, and 3 are allowed" in result.stderr
    assert count_creates(connector.sandbox) == 0
    write_people(connector, 3)
    assert connector.sync().rows == {"read": 3, "created": 3}
    write_people(connector, 6)
    assert connector.sync().rows == {"read": 6, "exists": 3, "created": 3}
    assert connector.sandbox.truth()["subscribers"] == 6


def test_a_shrunken_source_stops_the_run(connector: Connector) -> None:
    write_people(connector, 200)
    connector.sync(write_job(connector))  # the guard also compares with a run without guards
    write_job(connector, "guard: {}")
    write_people(connector, 99, "new@x.org,N")
    assert connector.sync().rows == {"read": 100, "exists": 99, "created": 1}
    write_people(connector, 40)
    result = connector.sync()
    assert has_guard_stopped_run(result, "guard.max_shrink: 40 rows were read, 60 % fewer than in the last run (100)")
    # The guard does not compare with the row count of a stopped run.
    assert has_guard_stopped_run(connector.sync(), "guard.max_shrink")
    assert connector.sync("job.yaml", "--limit", "2").rows == {"read": 2, "exists": 2}
    # The guard does not compare with the row count of a run with a limit.
    assert has_guard_stopped_run(connector.sync(), "guard.max_shrink")
    assert connector.sync(write_job(connector, "guard: {max_shrink: 60%}")).rows == {"read": 40, "exists": 40}


def test_a_source_without_rows_stops_the_run_unless_the_source_has_a_cursor(connector: Connector) -> None:
    add_people(connector, 1)
    source = "sql: {url: 'sqlite:///crm.db', query: 'select * from people where number > 1'}"
    assert connector.sync(connector.write_job(source=source)).exit_code == 0
    assert has_guard_stopped_run(connector.sync(connector.write_job("guard: {}", source=source)), "the source is empty")
    source = source.replace("> 1'", "> :cursor', cursor: {column: number, start: '0'}")
    connector.write_job("guard: {}", source=source)
    assert connector.sync().rows == {"read": 1, "created": 1}
    unchanged_result = connector.sync()  # no row is newer than the cursor
    unchanged_result.expect(0)


def test_the_cursor_moves_only_if_no_guard_stops_the_run(connector: Connector) -> None:
    add_people(connector, *range(1, 6))
    result = connector.sync(connector.write_job("guard: {max_creates: 4}", source=CURSOR_SOURCE))
    assert has_guard_stopped_run(result, "guard.max_creates")
    assert "no cursor is recorded: the run did not finish, and the next run reads all rows again" in result.stderr
    connector.write_job("guard: {max_creates: 5}", source=CURSOR_SOURCE)
    assert connector.sync().rows == {"read": 5, "created": 5}
    add_people(connector, 6)
    second_result = connector.sync()  # the run reads far fewer rows than the previous run
    assert second_result.rows == {"read": 2, "exists": 1, "created": 1}
    assert "the cursor is now 6" in second_result.report["messages"]


def test_a_guard_checks_standard_input_before_the_load(connector: Connector) -> None:
    write_job(connector, "guard: {max_creates: 2}")
    csv_text = "email,name\na@x.org,A\nb@x.org,B\n"
    connector.run_json("import", "-", "--job", "job.yaml", stdin=csv_text).expect(0, read=2, created=2)
    csv_text = "email,name\nc@x.org,C\nd@x.org,D\ne@x.org,E\n"
    refused_result = connector.run_json("import", "-", "--job", "job.yaml", stdin=csv_text)
    assert has_guard_stopped_run(refused_result, "guard.max_creates: 3 subscribers would be created")


def test_more_rejections_than_allowed_end_the_run_during_the_load(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName")
    connector.write_people("email,name", *(f"p{index}@x.org,{'' if index % 5 == 4 else 'Ann'}" for index in range(900)))
    write_job(connector, "guard: {max_rejected: 10%}", load="quiet_period: 200ms, max_concurrency: 4")
    result = connector.sync()
    assert (result.exit_code, result.report["status"]) == (3, "aborted")
    assert "guard.max_rejected" in result.report["messages"][0]
    assert 0 < result.rows["rejected"] < 100
    assert result.rows["unsent"] > 500
    connector.sandbox.switch(required="")
    second_result = connector.sync(write_job(connector, "guard: {max_rejected: 100%}"))
    assert second_result.rows["created"] + second_result.rows["exists"] + second_result.rows.get("rejected", 0) == 900
    assert set(connector.count_creates_by_email().values()) == {1}


def test_the_key_max_rejected_ends_a_run_even_if_the_run_has_only_ten_rows(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName")
    connector.write_people("email,name", *(f"p{index}@x.org," for index in range(10)))
    result = connector.sync(write_job(connector, "guard: {max_rejected: 5%}"))
    assert (result.exit_code, result.rows["rejected"]) == (3, 10)


def test_a_refused_create_that_took_effect_is_not_counted_as_rejected(connector: Connector) -> None:
    connector.sandbox.switch(created_422=1)
    write_people(connector, 12)
    connector.sync(write_job(connector, "guard: {max_rejected: 10%}")).expect(0, read=12, created=12)


def test_a_stopped_run_records_no_values_of_its_rows(connector: Connector, tmp_path: Path) -> None:
    """If the stopped run recorded the wrong values, the next run would count the correct rows as changed."""
    write_people(connector, 3)
    write_job(connector, "guard: {max_creates: 1}")
    create_with_other_ledger(connector, tmp_path / "people.csv", *NEWS_IMPORT_OPTIONS, "--map", "first_name=name")
    connector.write_people("email,name", *(f"p{index}@x.org,Wrong" for index in range(6)))
    assert has_guard_stopped_run(connector.sync(), "guard.max_creates: 3 subscribers would be created")
    write_people(connector, 3)
    assert connector.sync().rows == {"read": 3, "exists": 3}
    assert connector.sync().rows == {"read": 3, "exists": 3}


@pytest.mark.parametrize(
    ("faulty_row_count", "row_count", "is_exceeded"),
    [(9, 9, False), (10, 10, True), (9, 10, False), (98, 99, False), (99, 99, True), (5, 100, False), (6, 100, True)],
)
def test_a_guard_in_percent_stops_a_small_source_only_if_every_row_has_the_fault(
    faulty_row_count: int, row_count: int, is_exceeded: bool
) -> None:
    assert exceeds_share(faulty_row_count, 0.05, row_count) == is_exceeded


def test_the_shrink_guard_compares_runs_of_the_same_account(connector: Connector) -> None:
    def sync(account: str, person_count: int) -> CommandResult:
        write_people(connector, person_count)
        return connector.sync(write_job(connector, "guard: {}", f"service: {{account: {account}}}"))

    assert sync("main", 100).rows == {"read": 100, "created": 100}
    assert sync("trial", 2).rows == {"read": 2, "exists": 2}
    expected_text = "guard.max_shrink: 2 rows were read, 98 % fewer than in the last run (100)"
    assert has_guard_stopped_run(sync("main", 2), expected_text)


def test_a_run_with_guards_ends_if_its_rejects_file_cannot_be_written(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(required="FirstName")
    write_people(connector, 1, "bob@x.org,")
    write_job(connector, "guard: {}")
    assert connector.sync().rows == {"read": 2, "created": 1, "rejected": 1}
    shutil.rmtree(tmp_path / "state" / "rejects")
    (tmp_path / "state" / "rejects").write_text("in its place")
    create_count = count_creates(connector.sandbox)
    write_people(connector, 2, "bob@x.org,")
    result = connector.sync().expect(3, read=3, exists=1, rejected=1, unsent=1)
    assert "rejects file" in result.report["messages"][0]
    assert count_creates(connector.sandbox) == create_count


def test_existing_rows_without_a_comparison_are_reported_only_if_a_guard_ends_the_run(
    connector: Connector, tmp_path: Path
) -> None:
    write_people(connector, 10)
    create_with_other_ledger(connector, tmp_path / "people.csv", *NEWS_IMPORT_OPTIONS, "--map", "first_name=name")
    write_people(connector, 30)
    expected_text = "some rows count as existing without a comparison of their values"
    result = connector.sync(write_job(connector, "guard: {max_creates: 5}"))
    assert has_guard_stopped_run(result, "guard.max_creates: 20 subscribers would be created")
    assert expected_text in result.stderr
    # This run plans all rows without a comparison, and compares the rows during the load.
    result = connector.sync(write_job(connector, "guard: {}"))
    result.expect(0, read=30, exists=10, created=20)
    assert "comparison" not in result.stderr + result.stdout
