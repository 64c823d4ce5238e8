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


def write_people(folder: Path, number: int) -> None:
    write_csv(folder / "people.csv", "email,name", *(f"person{index}@x.org,Ann" for index in range(number)))


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
    (gone,) = {f"person{number}@x.org" for number in range(20)} - _erase(connector, 1)
    rest = [f"person{number}@x.org,Ann" for number in range(20) if f"person{number}@x.org" != gone]
    write_csv(connector.folder / "people.csv", "email,name", *rest)
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
    leases = set[object]()

    def is_renewed() -> bool:
        leases.update(expires_at for (expires_at,) in run_sql(url, "SELECT expires_at FROM lease"))
        return len(leases) > 3  # two transactions come before the list is read

    with postgres_connector.start("reconcile", job, "--forget-missing") as process:
        wait_for(is_renewed)
        assert postgres_connector.sandbox.stats()["requests"]["list"]["answers"] == answers, (
            "the first page has not come yet"
        )
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM


def _erase(connector: Connector, number: int) -> set[str]:
    """Erase this many subscribers, and return the emails of the others."""
    erase_first(connector.sandbox, number)
    return set(show_all(connector.sandbox))


@pytest.mark.parametrize("is_sure", [False, True])
def test_an_emptied_base_is_forgotten_only_with_yes(connector: Connector, job: Path, is_sure: bool) -> None:
    erase_first(connector.sandbox, 20)
    result = connector.run_json("reconcile", job, "--forget-missing", *(["--yes"] if is_sure else []))
    assert find_differences(result) == {"missing": 20, "vanished": 20}
    assert any("another account, or the base was emptied" in message for message in result.report["messages"])
    if is_sure:
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
    """The service hides a subscriber for a while: the second listing, a quiet period later, decides."""
    sandbox = connector.sandbox
    back, gone = sorted({f"person{number}@x.org" for number in range(20)} - _erase(connector, 2))
    before, real = count_requests(sandbox, "list"), system_clock()

    async def sleep(seconds: float) -> None:
        if count_requests(sandbox, "list") > before:
            plant(sandbox, back, FirstName="Ann", IsActive=True)
        await real.sleep(seconds)

    plan = plan_reconcile(load_job(job, {}), read_settings(connector.environ, None), wait_s=0.0)
    running = run_reconcile(replace(plan, is_forgetting=True), Stop(replace(real, sleep=sleep)), Progress())
    report = asyncio.run(running)

    assert (report.exit_code, report.as_json()["differences"]["vanished"]) == (1, 2)
    assert report.as_json()["forgotten"] == 1
    assert connector.run_json("sync", job).rows == {"read": 20, "exists": 19, "created": 1}
    assert count_stored(sandbox)[gone] == 2


def test_an_id_with_another_identity_now_is_not_forgotten(connector: Connector, job: Path, tmp_path: Path) -> None:
    """The ledger belongs to another service with the same ids."""
    emails, ids = list(show_all(connector.sandbox)), [each["Id"] for each in show_all(connector.sandbox).values()]
    connector.sandbox.reset()
    renamed = [plant(connector.sandbox, f"new-{email}") for email in emails]
    assert sorted(renamed) == sorted(ids)
    result = connector.run_json("reconcile", job, "--forget-missing", "--to", tmp_path / "d.csv")
    assert find_differences(result) == {"missing": 20, "extra": 20}
    assert result.report["forgotten"] == 0
    assert any(
        "none of the 20 subscribers that the ledger knows is listed" in message for message in result.report["messages"]
    )
