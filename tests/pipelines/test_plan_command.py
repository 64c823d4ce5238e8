"""`connector plan JOB|FILE` shows the outcome that each row would have, and sends no create."""

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, Connector, read_rows, wait_for, wait_for_result, write_csv
from tests.pipelines.leftovers import read_rejects
from tests.pipelines.planned import count_requests, plan, read_file_states, read_outcomes, write_job
from tests.pipelines.test_guards import CURSOR_SOURCE, add_people

SUPPRESS_KEY = "suppress: {file: {path: gone.csv, column: address}}"


def test_a_plan_reports_every_outcome_and_changes_nothing(connector: Connector) -> None:
    connector.run_json("import", connector.write_csv("a.csv", "email", "there@x.org"), *NEWS_IMPORT_OPTIONS,
                       environ={"CONNECTOR_STATE_DIR": str(connector.folder / "another")})  # fmt: skip
    write_job(connector, SUPPRESS_KEY)
    connector.write_csv("gone.csv", "address", "gone@x.org")
    connector.write_people("email,name", "same@x.org,Ann", "other@x.org,Bob", "refused@x.org,")
    connector.sandbox.switch(required="FirstName")
    assert connector.sync().rows == {"read": 3, "created": 2, "rejected": 1}
    lost_rows_path = connector.write_csv("lost.csv", "email,name", "lost@x.org,L", "lost2@x.org,L", "lost3@x.org,L")
    connector.sandbox.switch(drop_before=1)
    assert connector.run_json("import", lost_rows_path, "--job", "job.yaml").rows == {"read": 3, "unknown": 3}
    connector.sandbox.switch(drop_before=0)
    connector.write_people(
        "email,name", "same@x.org,Ann", "other@x.org,Bert", "refused@x.org,",
        "new@x.org,N", "there@x.org,T", "nobody,X", "new@x.org,Other", "NEW@x.org,N", "gone@x.org,G", "lost@x.org,L",
    )  # fmt: skip
    result = plan(connector, "job.yaml", "--rows", connector.folder / "rows.csv").expect(
        1, read=10, invalid=1, duplicate=2, suppressed=1, exists=1, changed=2, created=1, rejected=1, unknown=1
    )
    rows = read_rows(connector.folder / "rows.csv")
    assert list(rows[0]) == [
        "_row", "_file", "_outcome", "_field", "_code", "_message", "identity", "fields", "service", "source",
    ]  # fmt: skip
    outcomes_by_row = {int(row["_row"]): (row["_outcome"], row["identity"]) for row in rows}
    assert len(rows) == len(outcomes_by_row) == 10
    assert [outcomes_by_row[row_number] for row_number in sorted(outcomes_by_row)] == [
        ("exists", "same@x.org"), ("changed", "other@x.org"), ("rejected", "refused@x.org"), ("created", "new@x.org"),
        ("changed", "there@x.org"), ("invalid", ""), ("duplicate", "new@x.org"), ("duplicate", "new@x.org"),
        ("suppressed", "gone@x.org"), ("unknown", "lost@x.org"),
    ]  # fmt: skip
    codes_by_row = {row["_row"]: (row["_field"], row["_code"]) for row in rows}
    assert codes_by_row["4"] == ("", "rejected")
    assert codes_by_row["8"] == ("email", "differs")
    assert codes_by_row["11"] == ("", "unknown")
    assert codes_by_row["7"][0] == "email"
    changed_row, created_row = (next(row for row in rows if row["_row"] == row_number) for row_number in ("3", "5"))
    assert [changed_row[name] for name in ("fields", "service", "source")] == [
        "first_name", '{"first_name":"Bob"}', '{"first_name":"Bert"}',
    ]  # fmt: skip
    created_values_json = '{"base_id":1,"is_active":true,"email":"new@x.org","first_name":"N"}'
    assert (created_row["service"], created_row["source"]) == ("", created_values_json)
    assert (connector.folder / "rows.csv").stat().st_mode & 0o777 == 0o600
    assert (result.report["planned"], result.report["command"], result.report["job"]) == (True, "plan", "crm")
    assert list(result.report["requests"]) == ["list"]
    assert result.report["rejects_file"] is None


def test_a_plan_compares_the_list_with_the_subscribers_that_the_ledger_knows(connector: Connector) -> None:
    write_job(connector)
    rows = [f"person+{index}@x.org,Ann" for index in range(160)]
    connector.write_people("email,name", *rows[:150])
    assert connector.sync().rows == {"read": 150, "created": 150}
    # The update makes the run a minute old, so the list must show all subscribers of the run.
    connector.ledger.run("UPDATE run SET started_at = started_at - 60, finished_at = finished_at - 60")
    connector.sandbox.switch(result_window=100, blind_filters="plus")
    connector.write_people("email,name", *rows)
    result = plan(connector, "job.yaml")
    assert result.exit_code == 3
    assert "look-ups by Id find 4 of 4 subscribers that the list lacks" in result.stderr, result.stderr


def test_a_plan_of_a_large_file_has_the_rows_in_the_order_of_the_file(connector: Connector) -> None:
    connector.import_file(connector.write_addresses(100, name="few.csv"))
    plan(connector, connector.write_addresses(2500), "--base-name", "News", "--rows", connector.folder / "rows.csv")
    outcomes = read_outcomes(connector.folder / "rows.csv")
    assert list(outcomes) == [str(index) for index in range(2, 2502)]
    assert list(outcomes.values()) == ["exists"] * 100 + ["created"] * 2400


def test_a_stopped_plan_leaves_no_temporary_file(connector: Connector) -> None:
    temporary_folder = connector.folder / "temporary"
    temporary_folder.mkdir()
    connector.import_file(connector.write_addresses(50))
    connector.sandbox.switch(latency_ms=60_000)
    state_before = read_file_states(connector.folder / "state")
    request_count = count_requests(connector.sandbox, "list")
    arguments = ("plan", connector.write_addresses(51, name="more.csv"), "--base-name", "News")
    environ = {"TMPDIR": str(temporary_folder), "SQLITE_TMPDIR": str(temporary_folder)}
    with connector.start(*arguments, "--rows", connector.folder / "rows.csv", environ=environ) as process:
        wait_for(lambda: count_requests(connector.sandbox, "list") > request_count)
        assert list(temporary_folder.iterdir()) == []  # the temporary files have no names, so a kill leaves no file
        process.send_signal(signal.SIGINT)
        assert wait_for_result(process).exit_code == 130
    connector.sandbox.switch(latency_ms=0)
    assert list(temporary_folder.iterdir()) == []
    assert read_file_states(connector.folder / "state") == state_before
    assert read_outcomes(connector.folder / "rows.csv") == {}  # the plan had read no row yet


def test_a_plan_starts_at_the_cursor_and_does_not_move_the_cursor(connector: Connector) -> None:
    add_people(connector, *range(1, 6))
    connector.write_job(source=CURSOR_SOURCE)
    assert plan(connector, "job.yaml").rows == {"read": 5, "created": 5}
    assert connector.sync().rows == {"read": 5, "created": 5}
    add_people(connector, 9)
    for _ in range(2):
        assert plan(connector, "job.yaml").rows == {"read": 2, "exists": 1, "created": 1}
    assert plan(connector, "job.yaml", "--full").rows == {"read": 6, "exists": 5, "created": 1}
    assert plan(connector, "job.yaml", "--since", "9").rows == {"read": 1, "created": 1}
    assert connector.sync().rows == {"read": 2, "exists": 1, "created": 1}


SEED_COUNT = max(int(os.environ.get("CONNECTOR_TEST_SEEDS", "100")) // 100, 1)


def write_messy_people(path: Path, rng: random.Random, person_count: int) -> None:
    """Write known and new people. Some rows are changed, repeated, in capital letters, or invalid."""
    lines = []
    for _ in range(person_count):
        person = rng.randrange(person_count)
        email = f"p{person}@x.org"
        email = rng.choice([email, email, email, email.upper(), f" {email} ", "nobody", "", "p@bücher.example"])
        lines.append(f"{email},{rng.choice(['Ann', 'Ann', 'Ann', 'Bob'])}{rng.choice(['', '', '', ',ragged'])}")
    write_csv(path, "email,name", *lines)


@pytest.mark.parametrize("seed", range(SEED_COUNT))
def test_each_row_of_a_messy_source_gets_the_planned_outcome(connector: Connector, seed: int) -> None:
    rng = random.Random(seed)
    write_job(connector, SUPPRESS_KEY)
    other_ledger_environ = {"CONNECTOR_STATE_DIR": str(connector.folder / "another")}
    connector.write_csv("gone.csv", "address", *(f"p{rng.randrange(60)}@x.org" for _ in range(5)))
    write_messy_people(connector.folder / "people.csv", rng, 30)
    connector.sync(environ=other_ledger_environ)
    for run_index in range(2):
        write_messy_people(connector.folder / "people.csv", rng, 60)
        counts_before = connector.count_creates_by_email()
        plan_result = plan(connector, "job.yaml", "--rows", connector.folder / f"rows{run_index}.csv")
        sync_result = connector.sync()
        assert (plan_result.exit_code, plan_result.rows) == (sync_result.exit_code, sync_result.rows)
        rows = read_rows(connector.folder / f"rows{run_index}.csv")
        assert {"read": len(rows), **Counter(row["_outcome"] for row in rows)} == plan_result.rows
        invalid_rows, invalid_rejects = (
            {row["_row"] for row in file_rows if row["_outcome"] == "invalid"}
            for file_rows in (rows, read_rejects(sync_result))
        )
        assert invalid_rows == invalid_rejects
        created_identities = {row["identity"] for row in rows if row["_outcome"] == "created"}
        assert created_identities == set(connector.count_creates_by_email() - counts_before)
    assert set(connector.count_creates_by_email().values()) == {1}
