"""Temporary refusals (architecture 4.8): a limit, maintenance or a quota, answered as a refusal of each create."""

from pathlib import Path

import pytest

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector, Ended, count_stored, end, wait_for, write_addresses, write_csv
from tests.pipelines.leftovers import read_rejects
from tests.pipelines.lists import write_lists
from tests.pipelines.test_incremental import at, write_job, write_people

SLOWLY = {"latency_ms": 5, "duplicates": "accept"}


def stores_each_once(sandbox: SandboxProcess, number: int) -> bool:
    stored = count_stored(sandbox)
    return (len(stored), set(stored.values())) == (number, {1})


def count_creates(ended: Ended) -> int:
    number: int = ended.report["requests"]["create"]["sent"]
    return number


def end_early(connector: Connector, path: Path, *options: str | Path) -> Ended:
    """Import while the service refuses creates of one kind, and end in the pause."""
    ended = connector.import_file(path, "--time-limit", "4s", *options)
    assert (ended.code, ended.rows["unsent"] > 0) == (3, True), ended.stderr
    return ended


def test_a_rate_limit_answered_as_a_refusal_slows_the_load_and_rejects_no_row(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(rate=50, limit_status=200, retry_after="none", **SLOWLY)
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 300))
    assert (ended.code, ended.rows) == (0, {"read": 300, "created": 300}), ended.stderr
    assert stores_each_once(connector.sandbox, 300)
    assert count_creates(ended) < 2 * 300


def test_maintenance_in_the_middle_of_a_load_rejects_no_row(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(blocked_from=200, blocked_ms=1500, blocked_status=404, **SLOWLY)
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 800))
    assert (ended.code, ended.rows) == (0, {"read": 800, "created": 800}), ended.stderr
    assert stores_each_once(connector.sandbox, 800)


def test_maintenance_at_the_end_of_a_load_rejects_no_row(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(blocked_from=100, blocked_creates=42, **SLOWLY)
    ended = connector.import_file(write_addresses(tmp_path / "people.csv", 140))
    assert (ended.code, ended.rows) == (0, {"read": 140, "created": 140}), ended.stderr
    assert stores_each_once(connector.sandbox, 140)


def test_refused_creates_that_took_effect_are_not_sent_again(connector: Connector, tmp_path: Path) -> None:
    """The service refuses in one way, and stores every second subscriber."""
    sandbox = connector.sandbox
    sandbox.switch(error_shape="plain", **SLOWLY)
    path = write_addresses(tmp_path / "people.csv", 600)
    with connector.start(
        "import", path, "--base-name", "News", "--quiet-period", "500ms", "--output", "json"
    ) as process:
        wait_for(lambda: len(count_stored(sandbox)) >= 50)
        sandbox.switch(executed_status=0.5, executed_statuses="400", stray_refusal=1, stray_statuses="400")
        wait_for(lambda: sandbox.stats()["faults"].get("stray_refusal", 0) >= 12)
        sandbox.switch(executed_status=0, stray_refusal=0)
        ended = end(process)
    assert (ended.code, ended.rows) == (0, {"read": 600, "created": 600}), ended.stderr
    assert sandbox.stats()["faults"]["executed_status"] > 0
    assert stores_each_once(sandbox, 600)


def test_a_quota_ends_the_run_and_a_later_run_sends_the_rows_once_it_is_lifted(
    connector: Connector, tmp_path: Path
) -> None:
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 200)
    sandbox.switch(quota=20, **SLOWLY)
    first = end_early(connector, path)
    assert (first.rows["created"], first.rows["rejected"] >= 20) == (20, True)
    sandbox.switch(quota=0)
    second = connector.import_file(path)
    assert (second.code, second.rows) == (0, {"read": 200, "created": 180, "exists": 20}), second.stderr
    assert stores_each_once(sandbox, 200)


@pytest.mark.parametrize("status", [200, 402])
def test_the_next_run_sends_one_refused_row_of_a_kind_and_the_others_only_if_it_is_accepted(
    status: int, connector: Connector, tmp_path: Path
) -> None:
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 50)
    sandbox.switch(quota=20, quota_status=status, **SLOWLY)
    connector.import_file(path, "--time-limit", "4s")
    for _ in range(2):
        again = connector.import_file(path)
        assert (again.code, again.rows, count_creates(again)) == (1, {"read": 50, "exists": 20, "rejected": 30}, 1)
        assert {row["_message"] for row in read_rejects(again)} == {"Your plan allows 20 subscribers"}
    sandbox.switch(quota=0)
    last = connector.import_file(path)
    assert (last.code, last.rows) == (0, {"read": 50, "exists": 20, "created": 30}), last.stderr
    assert stores_each_once(sandbox, 50)


def test_rows_that_lack_a_required_field_are_rejected_without_a_pause(connector: Connector, tmp_path: Path) -> None:
    """The service names the field, so that the refusal is about the row."""
    connector.sandbox.switch(required="FirstName", **SLOWLY)
    rows = [f"a{index}@x.org,{'Ann' if index < 30 or index > 90 else ''}" for index in range(120)]
    path = write_csv(tmp_path / "people.csv", "email,first_name", *rows)
    first = connector.import_file(path)
    assert (first.code, first.rows, count_creates(first)) == (1, {"read": 120, "created": 59, "rejected": 61}, 120)
    again = connector.import_file(path)
    assert (again.rows, count_creates(again)) == ({"read": 120, "exists": 59, "rejected": 61}, 0)


def test_a_row_with_a_single_refusal_is_created_by_the_next_run_of_a_cursor_job_that_does_not_read_it(
    connector: Connector, tmp_path: Path
) -> None:
    write_people(tmp_path, *at(*range(1, 10)))
    connector.sandbox.switch(blocked_from=5, blocked_creates=1, blocked_status=403, **SLOWLY)
    job = write_job(tmp_path, what='query: "select * from people where updated_at > :cursor"')
    first = connector.run_json("sync", job)
    assert (first.code, first.rows) == (1, {"read": 9, "created": 8, "rejected": 1}), first.stderr
    second = connector.run_json("sync", job)
    assert (second.code, second.rows) == (0, {"read": 1, "exists": 1}), second.stderr  # the row at the cursor
    assert stores_each_once(connector.sandbox, 9)


def test_a_row_with_a_single_refusal_is_created_by_the_next_run_though_no_row_is_for_its_base(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(blocked_from=3, blocked_creates=1, blocked_status=404, **SLOWLY)
    base = "{column: list, values: {news: 7, shop: 9}}"
    job = write_lists(tmp_path, "a@x.org,news", "b@x.org,shop", "c@x.org,shop", base=base)
    first = connector.run_json("sync", job)
    assert (first.code, first.rows) == (1, {"read": 3, "created": 2, "rejected": 1}), first.stderr
    job = write_lists(tmp_path, "a@x.org,news", base=base)
    second = connector.run_json("sync", job)
    assert (second.code, second.rows) == (0, {"read": 1, "exists": 1}), second.stderr
    assert stores_each_once(connector.sandbox, 3)
