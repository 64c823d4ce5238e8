"""`connector reconcile JOB --forget-missing`: only erased subscribers are created again."""

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from connector.clock import system_clock
from connector.control import Stop
from connector.jobs.reader import load_job, read_settings
from connector.progress import Progress
from pipelines.flows.reconciles import plan_reconcile, run_reconcile
from tests.ledger.places import run_sql
from tests.pipelines.conftest import Connector, count_stored, wait_for, write_csv
from tests.pipelines.planned import count_requests, write_job
from tests.pipelines.reconciled import erase_first, find_differences, plant, show_all


def write_people(folder: Path, people_count: int) -> None:
    write_csv(folder / "people.csv", "email,name", *(f"person{index}@x.org,Ann" for index in range(people_count)))


@pytest.fixture
def job(connector: Connector, tmp_path: Path) -> Path:
    """A job whose twenty people are in the service."""
    write_people(tmp_path, 20)
    job = write_job(tmp_path)
    assert connector.run_json("sync", job).rows == {"read": 20, "created": 20}
    return job


@pytest.mark.parametrize("filters", ["exact", "ignored"])
def test_an_erased_subscriber_is_created_by_the_next_sync(connector: Connector, job: Path, filters: str) -> None:
    erase_first(connector.sandbox, 3)
    connector.sandbox.switch(filters=filters)
    assert connector.run_json("sync", job).rows == {"read": 20, "exists": 20}
    result = connector.run_json("reconcile", job, "--forget-missing")
    assert (result.code, result.report["forgotten"]) == (1, 3), result.stderr
    assert find_differences(result) == {"missing": 3, "vanished": 3}
    assert connector.run_json("sync", job).rows == {"read": 20, "exists": 17, "created": 3}
    assert find_differences(connector.run_json("reconcile", job)) == {}
    assert sum(count_stored(connector.sandbox).values()) == 23


def test_an_erased_subscriber_without_a_row_is_forgotten_too(connector: Connector, job: Path) -> None:
    write_people(connector.folder, 20)
    (erased_email,) = {f"person{number}@x.org" for number in range(20)} - _erase(connector, 1)
    remaining_rows = [f"person{number}@x.org,Ann" for number in range(20) if f"person{number}@x.org" != erased_email]
    write_csv(connector.folder / "people.csv", "email,name", *remaining_rows)
    result = connector.run_json("reconcile", job, "--forget-missing", "--to", connector.folder / "d.csv")
    assert (find_differences(result), result.report["forgotten"]) == ({"vanished": 1}, 1)
    assert connector.run_json("reconcile", job).code == 0


def test_a_reconciliation_keeps_its_ledger_while_the_list_is_read(
    postgres_connector: Connector, tmp_path: Path
) -> None:
    write_people(tmp_path, 20)
    job, url = write_job(tmp_path), postgres_connector.environ["CONNECTOR_LEDGER"] or ""
    assert postgres_connector.run_json("sync", job).rows == {"read": 20, "created": 20}
    postgres_connector.sandbox.switch(latency_ms=25_000)
    answers = postgres_connector.sandbox.stats()["requests"]["list"]["answers"]
    lease_ends = set[object]()

    def is_renewed() -> bool:
        lease_ends.update(expires_at for (expires_at,) in run_sql(url, "SELECT expires_at FROM lease"))
        return len(lease_ends) > 3  # two transactions come before the list is read

    with postgres_connector.start("reconcile", job, "--forget-missing") as process:
        wait_for(is_renewed)
        assert postgres_connector.sandbox.stats()["requests"]["list"]["answers"] == answers, (
            "the first page has not come yet"
        )
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM


def _erase(connector: Connector, count: int) -> set[str]:
    """Erase `count` subscribers, and return the emails of the remaining subscribers."""
    erase_first(connector.sandbox, count)
    return set(show_all(connector.sandbox))


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_an_emptied_base_is_forgotten_only_with_yes(connector: Connector, job: Path, is_confirmed: bool) -> None:
    erase_first(connector.sandbox, 20)
    result = connector.run_json("reconcile", job, "--forget-missing", *(["--yes"] if is_confirmed else []))
    assert find_differences(result) == {"missing": 20, "vanished": 20}
    assert any("another account, or the base was emptied" in message for message in result.report["messages"])
    if is_confirmed:
        assert (result.code, result.report["forgotten"]) == (1, 20)
        assert connector.run_json("sync", job).rows == {"read": 20, "created": 20}
    else:
        assert (result.code, result.report["status"], result.report["forgotten"]) == (3, "aborted", 0)
        assert connector.run_json("reconcile", job).report["missing_by_ledger"] == {"confirmed": 20}


def test_an_incomplete_list_forgets_nobody(connector: Connector, job: Path) -> None:
    erase_first(connector.sandbox)
    connector.sandbox.switch(max_total=5)
    for options in ((), ("--ignore-total-count",)):
        result = connector.run_json("reconcile", job, "--forget-missing", *options)
        assert (result.code, result.report["forgotten"]) == (1, 0)
        assert any("no subscriber was forgotten" in message for message in result.report["messages"])
    connector.sandbox.switch(max_total=0)
    assert connector.run_json("reconcile", job).report["differences"]["vanished"] == 1


def test_a_subscriber_on_the_second_listing_is_not_forgotten(connector: Connector, job: Path) -> None:
    """The service hides a subscriber for a while. The second listing, a quiet period later, decides."""
    sandbox = connector.sandbox
    reappearing_email, erased_email = sorted({f"person{number}@x.org" for number in range(20)} - _erase(connector, 2))
    list_count, real_clock = count_requests(sandbox, "list"), system_clock()

    async def sleep(seconds: float) -> None:
        if count_requests(sandbox, "list") > list_count:
            plant(sandbox, reappearing_email, FirstName="Ann", IsActive=True)
        await real_clock.sleep(seconds)

    plan = plan_reconcile(load_job(job, {}), read_settings(connector.environ, None), wait_s=0.0)
    reconciliation = run_reconcile(
        replace(plan, is_forgetting=True), Stop(replace(real_clock, sleep=sleep)), Progress()
    )
    report = asyncio.run(reconciliation)

    assert (report.exit_code, report.as_json()["differences"]["vanished"]) == (1, 2)
    assert report.as_json()["forgotten"] == 1
    assert connector.run_json("sync", job).rows == {"read": 20, "exists": 19, "created": 1}
    assert count_stored(sandbox)[erased_email] == 2


def test_an_id_with_another_identity_now_is_not_forgotten(connector: Connector, job: Path, tmp_path: Path) -> None:
    """The ledger belongs to another service with the same ids."""
    emails, ids = (
        list(show_all(connector.sandbox)),
        [subscriber["Id"] for subscriber in show_all(connector.sandbox).values()],
    )
    connector.sandbox.reset()
    new_ids = [plant(connector.sandbox, f"new-{email}") for email in emails]
    assert sorted(new_ids) == sorted(ids)
    result = connector.run_json("reconcile", job, "--forget-missing", "--to", tmp_path / "d.csv")
    assert find_differences(result) == {"missing": 20, "extra": 20}
    assert result.report["forgotten"] == 0
    assert any(
        "none of the 20 subscribers that the ledger knows is listed" in message for message in result.report["messages"]
    )
