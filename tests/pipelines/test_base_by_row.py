"""Rows for several bases: a column names the base of each row (`subscriber.base: {column: …, values: {…}}`)."""

from collections import Counter
from datetime import datetime
from pathlib import Path

from connector.listing.evidence import MAX_REQUESTS
from tests.pipelines.bases_by_row import count_creates_by_base_and_email, write_job_with_bases, write_job_with_files
from tests.pipelines.conftest import CommandResult, Connector, wait_for, wait_for_result
from tests.pipelines.leftovers import read_rejects

TOO_LARGE_ID = 2**53  # the sandbox has no subscriber or base with this id


def test_rows_are_created_in_the_bases_that_their_cells_name(connector: Connector) -> None:
    valid_rows = ("ann@x.org,news", "ann@x.org, shop ", "bob@x.org,club", "cem@x.org,news")
    duplicate_rows, invalid_rows = ("ANN@x.org,news", "cem@x.org,letter"), ("dan@x.org,nwes", "eve@x.org,", "fay,nwes")
    base = "news: 7, shop: 9, club: 11, letter: 7"
    write_job_with_bases(connector, *valid_rows, *duplicate_rows, *invalid_rows, base=base)
    first_result = connector.sync().expect(1, read=9, created=4, duplicate=2, invalid=3)
    expected_creates = [(7, "ann@x.org"), (7, "cem@x.org"), (9, "ann@x.org"), (11, "bob@x.org")]
    assert count_creates_by_base_and_email(connector.sandbox) == Counter(expected_creates)
    assert "created in Base 7 (id 7): 2, Base 9 (id 9): 1, Base 11 (id 11): 1" in first_result.report["messages"]
    reject_codes = [(row["email"], row["_field"], row["_code"]) for row in read_rejects(first_result)]
    assert reject_codes == [
        ("dan@x.org", "base_id", "base"), ("eve@x.org", "base_id", "required"),
        ("fay", "base_id; email", "base; email"),
    ]  # fmt: skip
    assert "must be one of news, shop, club, letter" in read_rejects(first_result)[0]["_message"]
    second_result = connector.sync()
    assert second_result.rows == {"read": 9, "exists": 4, "duplicate": 2, "invalid": 3}
    assert second_result.report["requests"]["create"]["sent"] == 0
    rejects_path = Path(first_result.report["rejects_file"])
    rejects_path.write_text(rejects_path.read_text(encoding="utf-8").replace("nwes", "shop"), encoding="utf-8")
    connector.run_json("import", rejects_path, "--job", "job.yaml").expect_rows(read=3, created=1, invalid=2)
    assert count_creates_by_base_and_email(connector.sandbox) == Counter([*expected_creates, (9, "dan@x.org")])


def test_the_created_counts_of_bases_include_creates_that_took_effect_despite_a_429(connector: Connector) -> None:
    connector.sandbox.switch(created_429=0.5, retry_after="none")
    rows = [f"p{index}@x.org,{base}" for index in range(6) for base in ("news", "shop")]
    write_job_with_bases(connector, *rows)
    result = connector.sync().expect(0, read=12, created=12)
    assert "created in Base 7 (id 7): 6, Base 9 (id 9): 6" in result.report["messages"]


def test_cells_are_names_of_bases_if_the_job_maps_no_values(connector: Connector) -> None:
    write_job_with_bases(connector, "ann@x.org,News", "ann@x.org,Shop", "bob@x.org,Shop", base="")
    assert connector.sync().rows == {"read": 3, "created": 3}
    assert connector.sync().rows == {"read": 3, "exists": 3}
    assert {event["subscriber"]["Base"]["Name"] for event in connector.sandbox.truth()["events"]} == {"News", "Shop"}


def test_a_mix_of_base_ids_and_base_names_is_refused(connector: Connector) -> None:
    result = connector.sync(write_job_with_files(connector, ("ann@x.org,7",), ("bob@x.org,7",), ("cem@x.org,Shop",)))
    assert result.is_refused
    assert "the column list names one base by its id (7) and another by its name (Shop)" in result.stderr
    assert count_creates_by_base_and_email(connector.sandbox) == {}


def test_a_suppressed_subscriber_is_created_in_no_base(connector: Connector) -> None:
    connector.write_csv("gone.csv", "address", "eve@x.org")
    suppress_line = "suppress: {file: {path: gone.csv, column: address}}"
    write_job_with_bases(connector, "eve@x.org,news", "eve@x.org,shop", job_lines=[suppress_line])
    assert connector.sync().rows == {"read": 2, "suppressed": 2}


def test_the_report_names_the_base_that_ended_the_run(connector: Connector) -> None:
    rows = [f"person{index}@x.org,{'news' if index % 5 == 0 else 'old'}" for index in range(50)]
    base = f"news: 7, old: {TOO_LARGE_ID}, shop: 9"
    write_job_with_bases(connector, *rows, "last@x.org,shop", "more@x.org,shop", base=base)
    result = connector.sync().expect(3, read=52, created=10, rejected=20, unsent=22)
    assert result.report["messages"][0].startswith(f"base {TOO_LARGE_ID}: the service refused each")


def test_the_guard_of_rejected_rows_counts_the_rows_of_all_bases(connector: Connector) -> None:
    def sync(name: str, refused_row_count: int) -> CommandResult:
        rows = [f"{name}{index}@x.org,{'old' if index < refused_row_count else 'news'}" for index in range(100)]
        base, guard_line = f"news: 7, old: {TOO_LARGE_ID}", "guard: {max_rejected: 10%}"
        return connector.sync(write_job_with_bases(connector, *rows, base=base, job_lines=[guard_line]))

    result = sync("person", 10).expect(1, read=100, created=90, rejected=10)
    assert {row["list"] for row in read_rejects(result)} == {"old"}
    result = sync("more", 11)
    assert result.exit_code == 3
    assert "guard.max_rejected: the service rejected 11 of 100 answered creates" in result.report["messages"][0]


def test_a_column_with_more_than_1000_bases_ends_the_run_before_the_first_create(connector: Connector) -> None:
    write_job_with_bases(connector, *(f"p{index}@x.org,{index + 1}" for index in range(1001)), base="")
    result = connector.sync().expect(3, read=1001, unsent=1001)
    assert "subscriber.base.values" in result.report["messages"][0]


def test_max_rate_and_max_concurrency_limit_all_bases_together(connector: Connector) -> None:
    connector.sandbox.switch(latency_ms=40)
    rows = [f"person{index}@x.org,{index % 3 + 1}" for index in range(120)]
    load = "quiet_period: 200ms, max_rate: 60, max_concurrency: 3"
    result = connector.sync(write_job_with_bases(connector, *rows, base="", load=load)).expect(0, read=120, created=120)
    started_at, finished_at = (datetime.fromisoformat(result.report[name]) for name in ("started_at", "finished_at"))
    assert (finished_at - started_at).total_seconds() >= 119 / 60
    assert connector.sandbox.stats()["peak_in_flight"] <= 3


def test_unknown_creates_of_all_bases_are_resolved_together(connector: Connector) -> None:
    sandbox = connector.sandbox
    sandbox.switch(latency_ms=100, list_lag_ms=300)
    rows = [f"person{index}@x.org,{base_id}" for index in range(15) for base_id in range(1, 9)]
    write_job_with_bases(connector, *rows, base="", load="quiet_period: 600ms, max_concurrency: 8")
    with connector.start("sync", "job.yaml", "--output", "json") as process:
        # Each of the 8 bases must have a subscriber before the faults begin.
        wait_for(lambda: len({base_id for base_id, _ in count_creates_by_base_and_email(sandbox)}) == 8)
        sandbox.switch(drop_before=0.1, drop_after=0.1)
        result = wait_for_result(process)
    result.expect(0, read=120, created=120)
    assert set(count_creates_by_base_and_email(sandbox).values()) == {1}
    assert min(result.report["settled"].values()) > 0
    counts_text = ", ".join(f"Base {base_id} (id {base_id}): 15" for base_id in range(1, 9))
    assert f"created in {counts_text}" in str(result.report)
    # For all bases together, the run reads the whole list at most six times, and looks up created subscribers by Id
    # with at most three requests.
    assert result.report["requests"]["list"]["sent"] <= 6 * (2 + MAX_REQUESTS) + 3


def test_an_unknown_create_in_a_base_without_rows_is_resolved(connector: Connector) -> None:
    write_job_with_bases(connector, "ann@x.org,shop")
    connector.sandbox.switch(hang_after=1)
    with connector.start("sync", "job.yaml") as process:
        connector.wait_for_subscribers(1)
        process.kill()
    connector.sandbox.switch(hang_after=0)
    result = connector.sync(write_job_with_bases(connector, "bob@x.org,news")).expect(0, read=1, created=1)
    assert result.report["settled"] == {"found": 1, "absent": 0}


def test_a_lost_create_counts_as_absent_only_after_the_list_shows_a_later_subscriber(connector: Connector) -> None:
    """The later subscriber may be in another base (architecture 4.5)."""
    connector.sandbox.switch(list_lag_ms=1500, latency_ms=300, drop_after=1)
    with connector.start(
        "sync", write_job_with_files(connector, ("ann@x.org,1",), ("bob@x.org,2",)), "--output", "json"
    ) as process:
        connector.wait_for_subscribers(1)
        connector.sandbox.switch(drop_after=0, latency_ms=0)
        result = wait_for_result(process)
    # On a slow machine the run ends before the list shows bob, so the exit code is 1.
    assert (result.rows, result.report["settled"]) == (
        {"read": 2, "created": 2}, {"found": 1, "absent": 0},
    ), result.stderr  # fmt: skip
    assert count_creates_by_base_and_email(connector.sandbox) == {(1, "ann@x.org"): 1, (2, "bob@x.org"): 1}


def test_the_report_names_each_base_that_has_duplicates(connector: Connector, tmp_path: Path) -> None:
    """Both bases have the same number of duplicates."""
    rows = ("ann@x.org,news", "ann@x.org,shop")
    for index in range(2):
        write_job_with_bases(connector, *rows, load="look: none")
        connector.sync(environ={"CONNECTOR_STATE_DIR": str(tmp_path / f"state{index}")})
    result = connector.sync(write_job_with_bases(connector, *rows, "eve@x.org,news", "eve@x.org,shop"))
    messages = result.find_messages("1 identity has more than one subscriber in the base")
    assert [message.partition(".")[0][-4:] for message in messages] == ["id 7", "id 9"], result.stderr
