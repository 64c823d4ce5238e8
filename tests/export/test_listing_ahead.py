"""Pages of a real service that are asked for ahead: each handed on once, in order, and none left behind."""

import asyncio
from typing import Any

import pytest

from connector.listing import ListFailed, ListProgress, read_list
from connector.paging import Reason
from connector.sandbox import SandboxProcess
from connector.service import ListQuery, open_client
from tests.export.exports import Collector, hurried, now, read, service_of

PAGE = ListQuery(limit=100)
SLOWLY = {"latency_ms": 5, "jitter_ms": 10}
"""So that pages are answered in another order than they were asked for."""


def received(sandbox: SandboxProcess) -> int:
    count: int = sandbox.stats()["requests"]["list"]["received"]
    return count


@pytest.mark.parametrize("order", ["id", "id_desc", "email"])
def test_a_quiet_list_is_read_with_several_pages_under_way(sandbox: SandboxProcess, order: str) -> None:
    seeded = sandbox.seed(6000, base_name="News")
    sandbox.switch(order=order, **SLOWLY)

    certificate, collector = read(sandbox, PAGE)

    sweeps = 2 if order == "email" else 1
    first, step = seeded["first_id"], seeded["step"]
    assert (certificate.is_complete, certificate.sweeps) == (True, sweeps)
    assert sorted(collector.ids) == [first + step * number for number in range(6000)]
    assert sandbox.stats()["peak_in_flight"] == 5
    assert received(sandbox) <= 1.1 * sweeps * 60 + 20  # and the evidence that no window cuts it off


def test_with_none_ahead_one_request_is_under_way(sandbox: SandboxProcess) -> None:
    sandbox.seed(3000, base_name="News")
    sandbox.switch(**SLOWLY)

    certificate, _ = read(sandbox, PAGE, ahead=0)

    assert (certificate.reason, sandbox.stats()["peak_in_flight"]) == (Reason.ID_ORDER, 1)


@pytest.mark.parametrize("churn", ["churn_insert", "churn_delete"])
@pytest.mark.parametrize("where", ["head", "end"])
@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_a_list_that_changes_now_and_then_is_certified_by_its_order(
    sandbox: SandboxProcess, order: str, where: str, churn: str
) -> None:
    seeded = sandbox.seed(6000, base_name="News")
    sandbox.switch(order=order, churn_where=where, seed=3, **{churn: 0.15}, **SLOWLY)

    certificate, collector = read(sandbox, PAGE)

    events = sandbox.truth()["events"]
    deleted = {event["id"] for event in events if event["kind"] == "churn_deleted"}
    inserted = {event["id"] for event in events if event["kind"] == "churn_inserted"}
    at_first = {seeded["first_id"] + seeded["step"] * number for number in range(6000)}
    assert deleted | inserted
    assert (certificate.reason, certificate.sweeps) == (Reason.ID_ORDER, 1)
    assert at_first - deleted <= set(collector.ids) <= at_first | inserted
    assert len(set(collector.ids)) == len(collector.ids) == certificate.distinct


def test_pages_that_fail_are_asked_for_again_and_no_others_ahead_of_them(sandbox: SandboxProcess) -> None:
    sandbox.seed(6000, base_name="News")
    sandbox.switch(list_error=0.1, seed=5, **SLOWLY)

    certificate, collector = read(sandbox, PAGE)

    assert certificate.is_complete
    assert len(set(collector.ids)) == len(collector.ids) == 6000
    assert received(sandbox) <= 1.4 * 60  # a tenth fails


def test_a_service_that_refuses_for_the_rate_is_read_to_the_end(sandbox: SandboxProcess) -> None:
    sandbox.seed(4000, base_name="News")
    sandbox.switch(fault_operations="list", refuse=0.1, refuse_retry_after_s=0, seed=4, **SLOWLY)

    certificate, collector = read(sandbox, PAGE)

    assert sandbox.stats()["limited"] > 0
    assert (certificate.is_complete, len(set(collector.ids)), len(collector.ids)) == (True, 4000, 4000)


def test_a_page_in_the_middle_that_fails_for_good_ends_the_reading_and_leaves_no_request(
    sandbox: SandboxProcess,
) -> None:
    sandbox.seed(6000, base_name="News")

    def fail(progress: ListProgress) -> None:
        if progress.rows > 3000:
            sandbox.switch(list_error=1)

    async def run() -> None:
        collector: Any = Collector()
        async with open_client(service_of(sandbox)) as client:
            with pytest.raises(ListFailed, match="did not give its list"):
                await read_list(client, hurried(2), PAGE, collector, now=now, on_progress=fail)
            assert len(asyncio.all_tasks()) == 1
        assert 3000 < len(collector.ids) < 6000

    asyncio.run(run())
