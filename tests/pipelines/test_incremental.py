"""`connector sync` reads all rows of a query. If the job has a cursor, a later run reads only the new rows."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.pipelines.conftest import CommandResult, Connector

QUERY = "query: 'select * from people where updated_at >= :cursor'"
DATE = "2026-11-20"


def write_job(
    connector: Connector, *, rows: str = "table: people", start: str = "2000-01-01T00:00:00", **job_values: str
) -> Path:
    """Write a job with a cursor on updated_at. `start` may add other keys, for example `2026-01-01, lookback: 1d`."""
    cursor = f"{{column: updated_at, start: {start}}}"
    return connector.write_job(source=f"sql: {{url: 'sqlite:///crm.db', {rows}, cursor: {cursor}}}", **job_values)


def add_people(connector: Connector, *rows: tuple[object, object]) -> None:
    """Add people to the table. Each person is a pair (name, updated_at)."""
    connector.crm.run("create table if not exists people (email, updated_at)")
    connector.crm.insert_rows("people", [(f"{name}@example.com", updated_at) for name, updated_at in rows])


def list_people_updated_at(*hours_of_day: int) -> list[tuple[object, object]]:
    """Return a person (name, updated_at) for each of these hours of a day."""
    return [(f"p{hour}", f"{DATE} {hour:02}:00:00") for hour in hours_of_day]


def has_cursor_at(result: CommandResult, hour: int) -> bool:
    return f"the cursor is now {DATE}T{hour:02}:00:00" in result.report["messages"]


def test_each_run_reads_from_the_largest_value_of_the_previous_run(connector: Connector) -> None:
    add_people(connector, *list_people_updated_at(9, 7, 8))
    write_job(connector)
    first_result = connector.sync().expect(0, read=3, created=3)
    assert has_cursor_at(first_result, 9)
    assert first_result.find_messages("the start value")[0].endswith(
        "starting at updated_at 2000-01-01T00:00:00 (the start value: no cursor is recorded yet)"
    )
    add_people(connector, *list_people_updated_at(10), ("late", f"{DATE} 06:00:00"), ("same", f"{DATE} 09:00:00"))
    second_result = connector.sync()
    assert (second_result.rows, has_cursor_at(second_result, 10)) == ({"read": 3, "created": 2, "exists": 1}, True)
    assert second_result.find_messages("the cursor was")[0].endswith(
        f"{DATE}T09:00:00 (the cursor was {DATE}T09:00:00)"
    )
    third_result = connector.sync()
    assert third_result.rows == {"read": 1, "exists": 1}
    assert f"the cursor stays at {DATE}T10:00:00: no newer row was read" in third_result.report["messages"]
    assert connector.count_creates_by_email().total() == 5


def test_a_lookback_reads_late_rows_but_only_rows_after_the_start(connector: Connector) -> None:
    add_people(connector, *list_people_updated_at(9), *list_people_updated_at(5))
    write_job(connector, start=f"{DATE}T06:30:00, lookback: 2h")
    assert connector.sync().rows == {"read": 1, "created": 1}
    add_people(connector, *list_people_updated_at(7), *list_people_updated_at(6))
    result = connector.sync()
    assert result.rows == {"read": 2, "created": 1, "exists": 1}
    assert f"the cursor stays at {DATE}T09:00:00: no newer row was read" in result.report["messages"]


def test_an_import_of_a_file_with_the_option_job_does_not_move_the_cursor(connector: Connector) -> None:
    add_people(connector, *list_people_updated_at(9))
    write_job(connector)
    path = connector.write_csv("more.csv", "email,updated_at", f"more@example.com,{DATE} 23:00:00")
    assert connector.run_json("import", path, "--job", "job.yaml").find_messages("cursor") == []
    assert connector.sync().rows == {"read": 1, "created": 1}


def test_each_run_reads_the_rows_without_a_cursor_value_again(connector: Connector) -> None:
    add_people(connector, ("nobody", None))
    write_job(connector)
    first_result = connector.sync()
    assert first_result.rows == {"read": 1, "created": 1}
    assert (
        first_result.find_messages("cursor")[-1] == "no cursor is recorded: no row had a value in the column updated_at"
    )
    add_people(connector, *list_people_updated_at(9), ("nowhen", None))
    second_result = connector.sync()
    assert (second_result.rows, has_cursor_at(second_result, 9)) == ({"read": 3, "created": 2, "exists": 1}, True)
    assert (
        "2 rows have no value in the column updated_at: they do not move the cursor, and each run reads the rows again"
        in second_result.report["messages"]
    )


def test_a_cursor_value_that_cannot_be_compared_is_refused(connector: Connector) -> None:
    """The tests in tests/sources/sql try more values, in each kind of database."""
    add_people(connector, *list_people_updated_at(9), ("odd", "24.11.2026 10:00"), ("early", "13.11.2026 10:00"))
    write_job(connector)
    for command in ("check", "sync"):
        result = connector.run(command, "job.yaml")
        assert result.exit_code == 2, (command, result.stdout)
        output = result.stdout + result.stderr
        assert "2 rows have no timestamp in the column updated_at" in output, command
        assert '"13.11.2026 10:00"' in output, command
    assert connector.sandbox.stats()["subscribers"] == 0


RUNS_THAT_KEEP_THE_CURSOR: list[tuple[Sequence[str], str, int, str]] = [
    # (options, URL to which the service redirects requests, exit code, reason why the cursor stays)
    (("--limit", "30"), "", 0, "--limit left out rows of the source"),
    (("--full",), "http://127.0.0.1:9", 3, "the run did not finish, and the next run reads all rows again"),
]


@pytest.mark.parametrize(("options", "redirect_url", "exit_code", "reason"), RUNS_THAT_KEEP_THE_CURSOR)
def test_an_incomplete_run_does_not_move_the_cursor(
    connector: Connector, tmp_path: Path, options: Sequence[str], redirect_url: str, exit_code: int, reason: str
) -> None:
    add_people(connector, *list_people_updated_at(7))
    write_job(connector)
    assert has_cursor_at(connector.sync(), 7)
    add_people(connector, *list_people_updated_at(8, 9, 10))
    connector.sandbox.switch(redirect_to=redirect_url)
    result = connector.sync("job.yaml", *options)
    assert result.exit_code == exit_code, result.stderr
    assert result.find_messages("cursor")[-1] == f"the cursor stays at {DATE}T07:00:00: {reason}"
    connector.sandbox.switch(redirect_to="")
    second_result = connector.sync()
    assert (second_result.rows["read"], has_cursor_at(second_result, 10)) == (4, True)
    assert set(connector.count_creates_by_email().values()) == {1}
    assert connector.count_creates_by_email().total() == 4


def test_a_full_run_moves_back_a_cursor_that_is_in_the_future(connector: Connector) -> None:
    add_people(connector, *list_people_updated_at(8), ("future", "2999-01-01 00:00:00"))
    write_job(connector)
    connector.sync()
    # An earlier version of the connector could move the cursor into the future.
    connector.ledger.run("update source_cursor set value = '2999-01-01T00:00:00'")
    correct_future_row(connector, "2026-11-20 09:00:00")
    result = connector.sync().expect(1)
    assert "the cursor is in the future (2999-01-01T00:00:00), so changes" in result.stderr
    full_result = connector.sync("job.yaml", "--full").expect(0, read=2, exists=2)
    assert has_cursor_at(full_result, 9)
    assert full_result.find_messages("(--full)") != []
    assert connector.sync().exit_code == 0


def correct_future_row(connector: Connector, updated_at: object) -> None:
    connector.crm.run(f"update people set updated_at = {updated_at!r} where email = 'future@example.com'")


def test_a_cursor_value_later_than_tomorrow_makes_the_run_partial_and_moves_no_cursor(connector: Connector) -> None:
    """tests/sources/sql/test_cursor.py tries all kinds of values."""
    now_s = int(datetime.now(UTC).timestamp())
    add_people(connector, ("a", now_s), ("b", now_s), ("future", 2903299200))
    write_job(connector, start="0")
    first_result = connector.sync().expect(1, read=3, created=3)
    assert "later than tomorrow (for example row 3: 2903299200" in first_result.stderr
    add_people(connector, ("new", now_s + 86_400))
    second_result = connector.sync()
    assert (second_result.exit_code, second_result.rows["created"]) == (1, 1)
    correct_future_row(connector, now_s + 86_400)
    assert connector.sync().exit_code == 0


def test_the_cursor_moves_only_at_the_end_of_a_run(connector: Connector) -> None:
    """The job has no look-back. If a killed run moved the cursor, its unsent rows would be lost."""
    write_job(connector)
    connector.sandbox.switch(latency_ms=20)
    add_people(connector, *((f"first-{index}", f"{DATE} 07:00:{index:02}") for index in range(60)))
    for subscriber_count in (1, 30, 60):
        with connector.start("sync", "job.yaml", "--quiet") as process:
            connector.wait_for_subscribers(subscriber_count)
            process.kill()
    # The last killed run may have moved the cursor before it was killed.
    assert connector.sync().rows["read"] in (1, 60)
    add_people(connector, ("second", f"{DATE} 08:00:00"))
    assert connector.sync().rows == {"read": 2, "created": 1, "exists": 1}
    create_counts = connector.count_creates_by_email()
    assert (len(create_counts), set(create_counts.values())) == (61, {1})


def test_a_run_that_leaves_out_rows_does_not_move_the_cursor(connector: Connector) -> None:
    add_people(connector, *list_people_updated_at(7, 8, 9))
    write_job(connector)
    connector.sync()
    add_people(connector, *list_people_updated_at(10, 12))
    later_result = connector.sync("job.yaml", "--since", f"{DATE}T11:00:00")
    assert later_result.rows == {"read": 1, "created": 1}
    assert later_result.find_messages("cursor")[-1] == (
        f"the cursor stays at {DATE}T09:00:00: --since left out the rows from {DATE}T09:00:00 to {DATE}T11:00:00, and "
        "the next run reads these rows"
    )
    earlier_result = connector.sync("job.yaml", "--since", f"{DATE} 08:00:00")
    assert (earlier_result.rows, has_cursor_at(earlier_result, 12)) == ({"read": 4, "created": 1, "exists": 3}, True)
    second_result = connector.sync("job.yaml", "--since", f"{DATE}T07:00:00")
    assert (second_result.rows, second_result.find_messages("cursor")[-1]) == (
        {"read": 5, "exists": 5}, f"the cursor stays at {DATE}T12:00:00: no newer row was read",
    )  # fmt: skip


def test_each_job_and_query_and_base_and_mapping_of_bases_has_its_own_cursor(connector: Connector) -> None:
    add_people(connector, *list_people_updated_at(8, 9))
    other_job_values: list[dict[str, str]] = [{"job": "other"}, {"base": "name: Shop"}, {"rows": QUERY}]
    for second_base_id in (7, 9):
        base_id_by_cell = f"{{p8@example.com: 7, p9@example.com: {second_base_id}}}"
        other_job_values.append({"base": f"column: email, values: {base_id_by_cell}"})
    # The first job runs again at the end: the other jobs have not moved its cursor.
    read_row_counts = [
        connector.sync(write_job(connector, **job_values)).rows["read"] for job_values in ({}, *other_job_values, {})
    ]
    assert read_row_counts == [2, 2, 2, 2, 2, 2, 1]
