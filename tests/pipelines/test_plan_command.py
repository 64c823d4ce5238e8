"""`connector plan JOB|FILE`: what would become of each row, and that nothing does."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from connector.outcomes import Outcome
from connector.planned_rows import MOST_REPORTED, PlannedRows
from tests.pipelines.conftest import INTO_NEWS, Connector, count_stored, wait_for, write_addresses, write_csv
from tests.pipelines.leftovers import lose_three
from tests.pipelines.planned import (
    JOB,
    count_creates,
    count_requests,
    describe,
    plan,
    read_outcomes,
    read_rows,
    write_job,
)
from tests.pipelines.test_import_command import REPORT_KEYS, ROW_KEYS

SUPPRESS = "suppress: {file: {path: gone.csv, column: address}}"


def test_a_plan_tells_every_outcome_and_does_nothing(connector: Connector, tmp_path: Path) -> None:
    connector.run_json("import", write_csv(tmp_path / "a.csv", "email", "there@x.org"), *INTO_NEWS,
                       environ={"CONNECTOR_STATE_DIR": str(tmp_path / "another")})  # fmt: skip
    job = write_job(tmp_path, SUPPRESS)
    write_csv(tmp_path / "gone.csv", "address", "gone@x.org")
    write_csv(tmp_path / "people.csv", "email,name", "same@x.org,Ann", "other@x.org,Bob", "refused@x.org,")
    connector.sandbox.switch(required="FirstName")
    assert connector.run_json("sync", job).rows == {"read": 3, "created": 2, "rejected": 1}
    lost = write_csv(tmp_path / "lost.csv", "email,name", "lost@x.org,L", "lost2@x.org,L", "lost3@x.org,L")
    connector.sandbox.switch(drop_before=1)
    assert connector.run_json("import", lost, "--job", job).rows == {"read": 3, "unknown": 3}
    connector.sandbox.switch(drop_before=0)
    write_csv(
        tmp_path / "people.csv", "email,name", "same@x.org,Ann", "other@x.org,Bert", "refused@x.org,", "new@x.org,N",
        "there@x.org,T", "nobody,X", "new@x.org,Other", "NEW@x.org,N", "gone@x.org,G", "lost@x.org,L",
    )  # fmt: skip
    ended = plan(connector, job, "--rows", tmp_path / "rows.csv")
    assert (ended.code, ended.rows) == (
        1,
        {
            "read": 10, "invalid": 1, "duplicate": 2, "suppressed": 1, "exists": 1, "changed": 2, "created": 1,
            "rejected": 1, "unknown": 1,
        },
    )  # fmt: skip
    rows = read_rows(tmp_path / "rows.csv")
    assert list(rows[0]) == [
        "_row", "_file", "_outcome", "_field", "_code", "_message", "identity", "fields", "service", "source",
    ]  # fmt: skip
    told = {int(row["_row"]): (row["_outcome"], row["identity"]) for row in rows}
    assert len(rows) == len(told) == 10
    assert [told[number] for number in sorted(told)] == [
        ("exists", "same@x.org"), ("changed", "other@x.org"), ("rejected", "refused@x.org"), ("created", "new@x.org"),
        ("changed", "there@x.org"), ("invalid", ""), ("duplicate", "new@x.org"), ("duplicate", "new@x.org"),
        ("suppressed", "gone@x.org"), ("unknown", "lost@x.org"),
    ]  # fmt: skip
    why = {row["_row"]: (row["_field"], row["_code"]) for row in rows}
    assert (why["3"], why["7"], why["10"]) == (("", "rejected"), ("email", "differs"), ("", "unknown"))
    assert why["6"][0] == "email"
    assert (tmp_path / "rows.csv").stat().st_mode & 0o777 == 0o600


def test_what_changed_is_told_with_the_values_of_service_and_source(connector: Connector, tmp_path: Path) -> None:
    job = write_job(tmp_path)
    write_csv(tmp_path / "people.csv", "email,name", "ann@x.org,Ann", "bob@x.org,Bob")
    connector.run_json("sync", job)
    write_csv(tmp_path / "people.csv", "email,name", "ann@x.org,Anna", "bob@x.org,Bob", "eve@x.org,Eve")

    ended = plan(connector, job, "--rows", tmp_path / "rows.csv")

    ann, bob, eve = read_rows(tmp_path / "rows.csv")
    assert (ann["fields"], ann["service"], ann["source"]) == (
        "first_name",
        '{"first_name":"Ann"}',
        '{"first_name":"Anna"}',
    )
    assert (bob["fields"], bob["service"], bob["source"]) == ("", "", "")
    told = ended.report["planned_rows"]
    assert [(line["_row"], line["_outcome"], line["fields"]) for line in told] == [
        (1, "changed", ["first_name"]), (2, "exists", []), (3, "created", []),
    ]  # fmt: skip
    assert (told[0]["service"], told[0]["source"]) == ({"first_name": "Ann"}, {"first_name": "Anna"})
    assert {line: value or "" for line, value in eve.items() if line[0] == "_"} == {
        line: str(value) for line, value in told[2].items() if line[0] == "_"
    }


@pytest.mark.parametrize(("number", "is_reported"), [(MOST_REPORTED, True), (MOST_REPORTED + 1, False)])
def test_more_rows_than_a_report_may_hold_are_for_a_file(number: int, is_reported: bool) -> None:
    with PlannedRows(None, "email", is_reported=True) as rows:
        rows.build_tally()
        rows.write_numbers(Outcome.CREATED, "people.csv", range(1, number + 1))
        said = list(rows.remark())
    assert (rows.lines is not None) is is_reported
    assert len(rows.lines or ()) == (number if is_reported else 0)
    assert any("--rows" in message for message in said) is not is_reported


def test_the_report_has_a_runs_keys_and_says_that_it_is_planned(connector: Connector, tmp_path: Path) -> None:
    people = write_csv(tmp_path / "people.csv", "email,Colour", "ann@x.org,red")
    ended = plan(connector, people, "--base-name", "News")
    assert ended.code == 0
    assert ended.report.keys() >= REPORT_KEYS
    assert list(ended.report["rows"]) == ROW_KEYS
    assert (ended.report["planned"], ended.report["command"], ended.report["job"]) == (True, "plan", "people")
    assert list(ended.report["requests"]) == ["list"]
    assert ended.report["rejects_file"] is None
    assert any(
        "an import of this is refused: nothing says is_active" in message for message in ended.report["messages"]
    )


def test_whom_an_earlier_run_left_unknown_and_who_is_there_exists(connector: Connector, tmp_path: Path) -> None:
    people = write_addresses(tmp_path / "people.csv", 4)
    lose_three(connector, people, drop_after=1)
    ended = plan(connector, people, "--base-name", "News")
    assert (ended.code, ended.rows) == (0, {"read": 4, "exists": 3, "created": 1})
    assert ended.report["settled"] == {"found": 3, "absent": 0}
    assert connector.import_file(people).rows == {"read": 4, "exists": 3, "created": 1}


def test_a_plan_is_made_while_a_load_holds_the_lock(connector: Connector, tmp_path: Path) -> None:
    sandbox, people = connector.sandbox, write_addresses(tmp_path / "people.csv", 300)
    sandbox.switch(latency_ms=100)
    with connector.start("import", people, "--base-name", "News", "--max-concurrency", "2") as load:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 10)
        ended = connector.run_json("plan", people, "--base-name", "News")
        assert load.poll() is None
        sandbox.switch(latency_ms=0)
        load.communicate()
    assert load.returncode == 0
    assert ended.code in (0, 1)  # who was being sent at that moment may have to be unknown
    assert ended.rows["exists"] >= 9
    assert ended.rows["read"] == 300
    assert any(
        "of another run" in message and "in flight or unresolved" in message for message in ended.report["messages"]
    )
    assert set(count_stored(sandbox).values()) == {1}


def test_what_comes_through_a_pipe_is_planned(connector: Connector) -> None:
    ended = connector.run_json("plan", "-", "--base-name", "News", stdin="email\na@x.org\nnobody\n")
    assert (ended.code, ended.rows) == (1, {"read": 2, "invalid": 1, "created": 1})
    assert count_creates(connector.sandbox) == 0


def test_the_rows_of_a_large_file_come_in_its_order(connector: Connector, tmp_path: Path) -> None:
    connector.import_file(write_addresses(tmp_path / "few.csv", 1000))
    people = write_addresses(tmp_path / "people.csv", 5000)
    plan(connector, people, "--base-name", "News", "--rows", tmp_path / "rows.csv")
    outcomes = read_outcomes(tmp_path / "rows.csv")
    assert list(outcomes) == [str(number) for number in range(1, 5001)]
    assert list(outcomes.values()) == ["exists"] * 1000 + ["created"] * 4000


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_plan_that_is_ended_leaves_nothing_behind(connector: Connector, tmp_path: Path, how: signal.Signals) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    people = write_addresses(tmp_path / "people.csv", 2000)
    connector.import_file(people)
    connector.sandbox.switch(latency_ms=60_000)
    before, requests = describe(tmp_path / "state"), count_requests(connector.sandbox, "list")
    arguments = ("plan", write_addresses(tmp_path / "more.csv", 2001), "--base-name", "News")
    with connector.start(
        *arguments, "--rows", tmp_path / "rows.csv",
        environ={"TMPDIR": str(temporary), "SQLITE_TMPDIR": str(temporary)},
    ) as process:  # fmt: skip
        wait_for(lambda: count_requests(connector.sandbox, "list") > requests)
        assert list(temporary.iterdir()) == []
        process.kill() if how == signal.SIGKILL else process.send_signal(how)
        process.communicate(timeout=30)
    connector.sandbox.switch(latency_ms=0)
    assert process.returncode == (-9 if how == signal.SIGKILL else 130)
    assert list(temporary.iterdir()) == []
    assert describe(tmp_path / "state") == before
    if how == signal.SIGINT:
        assert read_outcomes(tmp_path / "rows.csv") == {}  # it had read none yet
    else:
        assert not (tmp_path / "rows.csv").exists()


def test_dry_runs_of_import_and_sync_are_plans(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email,name", "a@x.org,A", "b@x.org,B")
    job = write_job(tmp_path)
    imported = connector.run_json("import", tmp_path / "people.csv", *INTO_NEWS, "--dry-run")
    synced = connector.run_json("sync", job, "--dry-run")
    both = connector.run_json("sync", job, job, "--dry-run")
    for ended in (imported, synced):
        assert (ended.code, ended.rows, ended.report["planned"]) == (0, {"read": 2, "created": 2}, True)
    assert (imported.report["command"], synced.report["command"]) == ("import", "sync")
    assert [run["planned"] for run in both.report["runs"]] == [True, True]
    assert (both.code, set(both.report)) == (0, {"status", "runs"})
    assert count_creates(connector.sandbox) == 0
    assert not (tmp_path / "state").exists()


def test_people_are_told_that_nothing_was_done(connector: Connector, tmp_path: Path) -> None:
    ended = connector.run("plan", write_addresses(tmp_path / "people.csv", 2), "--base-name", "News")
    assert "plan people (planned: nothing was sent or written)" in ended.stdout


def test_an_incremental_source_is_planned_from_its_cursor_which_stays(connector: Connector, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "crm.db")) as crm, crm:
        crm.execute("create table people (email, number)")
        crm.executemany("insert into people values (?, ?)", [(f"p{each}@x.org", each) for each in range(1, 6)])
    job = tmp_path / "job.yaml"
    job.write_text(
        'job: crm\nsource: {sql: {url: "sqlite:///crm.db", table: people, cursor: {column: number, start: "0"}}}\n'
        "subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}\n"
    )
    assert plan(connector, job).rows == {"read": 5, "created": 5}
    assert connector.run_json("sync", job).rows == {"read": 5, "created": 5}
    with closing(sqlite3.connect(tmp_path / "crm.db")) as crm, crm:
        crm.execute("insert into people values ('new@x.org', 9)")
    for _ in range(2):
        ended = plan(connector, job)
        assert ended.rows == {"read": 2, "exists": 1, "created": 1}
        assert not any("stands at" in message for message in ended.report["messages"])
    assert plan(connector, job, "--full").rows == {"read": 6, "exists": 5, "created": 1}
    assert plan(connector, job, "--since", "9").rows == {"read": 1, "created": 1}
    assert connector.run_json("sync", job).rows == {"read": 2, "exists": 1, "created": 1}


def test_long_values_are_told_whole(connector: Connector, tmp_path: Path) -> None:
    """Longer in all than Python's csv module reads of a cell, unless it is told otherwise."""
    names = ("first_name", "last_name", "phone", "custom_field1", "custom_field2", "custom_field3", "address_city")
    fields = f"email: email, {', '.join(f'{name}: {name}' for name in names)}"
    job = write_job(tmp_path, text=JOB.replace("email: email, first_name: name", fields))

    def write(letter: str) -> dict[str, str]:
        values = dict.fromkeys(names, f"{letter}{chr(92) * 9_998}{letter}")
        write_csv(tmp_path / "people.csv", f"email,{','.join(names)}", f"ann@x.org,{','.join(values.values())}")
        return values

    before = write("a")
    assert connector.run_json("sync", job).rows == {"read": 1, "created": 1}
    now = write("b")
    ended = plan(connector, job, "--rows", tmp_path / "rows.csv")
    assert (ended.code, ended.rows) == (0, {"read": 1, "changed": 1})
    (row,) = ended.report["planned_rows"]
    assert (row["service"], row["source"]) == (before, now)
    assert (tmp_path / "rows.csv").stat().st_size > 250_000
