"""The list is read from a real service: whole, once, and through its faults."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from connector.errors import ConfigurationError, RunAborted
from connector.listing import ListFailed, ListProgress, read_list
from connector.paging import Reason
from connector.sandbox import SandboxProcess
from connector.service import ListQuery, Service, Token, open_client
from tests.export.exports import Collector, create, hurried, now, read, service_of


def test_an_empty_list_is_read_and_complete(sandbox: SandboxProcess) -> None:
    certificate, collector = read(sandbox)

    assert (certificate.reason, certificate.distinct, certificate.pages) == (Reason.ONE_ANSWER, 0, 1)
    assert collector.sweeps == {1: []}


@pytest.mark.parametrize(
    ("order", "reason", "sweeps"), [("id", "id_order", 1), ("id_desc", "id_order", 1), ("email", "two_sweeps", 2)]
)
def test_everyone_is_read_once_in_each_sweep(sandbox: SandboxProcess, order: str, reason: str, sweeps: int) -> None:
    seeded = sandbox.seed(3210, base_name="News")
    sandbox.switch(order=order)

    certificate, collector = read(sandbox)

    assert (certificate.reason, certificate.sweeps, len(collector.sweeps)) == (reason, sweeps, sweeps)
    first, step = seeded["first_id"], seeded["step"]
    assert sorted(collector.ids) == [first + step * number for number in range(3210)]
    assert (certificate.total_first, certificate.total_last, certificate.distinct) == (3210, 3210, 3210)
    assert certificate.started_at < certificate.finished_at


def test_a_shuffled_list_whose_filters_do_not_work_is_read_and_never_certified(sandbox: SandboxProcess) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(order="shuffled", filters="ignored")

    certificate, collector = read(sandbox)

    assert (certificate.verdict, certificate.reason) == ("incomplete", Reason.UNSTABLE_ORDER)
    assert certificate.distinct == len(collector.ids) > 1000, "what the sweeps read is there for those who want it"


def test_a_capped_total_count_is_incomplete(sandbox: SandboxProcess) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(max_total=1000)

    certificate, collector = read(sandbox)

    assert (certificate.verdict, certificate.reason) == ("incomplete", Reason.TOTAL_COUNT)
    assert len(collector.ids) == 2500


@pytest.mark.parametrize("where", ["head", "middle", "end"])
@pytest.mark.parametrize("order", ["id", "id_desc"])
def test_a_list_that_changes_is_certified_in_id_order_and_nobody_is_missing(
    sandbox: SandboxProcess, order: str, where: str
) -> None:
    seeded = sandbox.seed(6000, base_name="News")
    sandbox.switch(order=order, churn_insert=3, churn_delete=7, churn_where=where)

    certificate, collector = read(sandbox)

    events = sandbox.truth()["events"]
    deleted = {event["id"] for event in events if event["kind"] == "churn_deleted"}
    inserted = {event["id"] for event in events if event["kind"] == "churn_inserted"}
    at_first = {seeded["first_id"] + seeded["step"] * number for number in range(6000)}
    assert deleted
    assert inserted
    assert certificate.reason is Reason.ID_ORDER
    assert at_first - deleted <= set(collector.ids) <= at_first | inserted
    assert len(set(collector.ids)) == len(collector.ids) == certificate.distinct
    assert certificate.appeared + certificate.vanished > 0


def test_errors_of_the_list_are_tried_again(sandbox: SandboxProcess) -> None:
    sandbox.seed(5000, base_name="News")
    sandbox.switch(list_error=0.3, seed=5)

    certificate, collector = read(sandbox)

    assert certificate.is_complete
    assert len(set(collector.ids)) == len(collector.ids) == 5000


def test_a_list_that_fails_for_good_ends_the_run_in_words(sandbox: SandboxProcess) -> None:
    sandbox.switch(list_error=1)

    with pytest.raises(ListFailed, match="did not give its list") as failure:
        read(sandbox)

    assert failure.value.status == 500
    assert isinstance(failure.value, RunAborted)


def test_a_wrong_token_is_told_apart_by_its_status(sandbox: SandboxProcess) -> None:
    async def run() -> None:
        async with open_client(service_of(sandbox, token="another-token")) as client:
            await read_list(client, hurried(), ListQuery(), Collector(), now=now)

    with pytest.raises(ListFailed, match="Check the token") as failure:
        asyncio.run(run())

    assert failure.value.status == 401
    assert isinstance(failure.value, ConfigurationError), "nothing was done yet: the configuration is wrong"
    assert "another-token" not in str(failure.value)


def test_a_token_that_is_refused_after_a_first_page_aborts_the_run(sandbox: SandboxProcess) -> None:
    sandbox.seed(3000, base_name="News")

    class Revoking(Collector):
        def take(self, wire_objects: Sequence[dict[str, Any]]) -> None:
            sandbox.switch(authorization="another {token}")

    async def run() -> None:
        async with open_client(service_of(sandbox)) as client:
            await read_list(client, hurried(), ListQuery(limit=100), Revoking(), now=now)

    with pytest.raises(ListFailed, match="Check the token") as failure:
        asyncio.run(run())

    assert failure.value.status == 401
    assert not isinstance(failure.value, ConfigurationError)


def test_a_service_that_cannot_be_reached_has_no_status() -> None:
    async def run() -> None:
        async with open_client(Service("http://127.0.0.1:1", Token("t0ken"))) as client:
            await read_list(client, hurried(2), ListQuery(), Collector(), now=now)

    with pytest.raises(ListFailed, match="Check the base URL") as failure:
        asyncio.run(run())

    assert failure.value.status is None


@pytest.mark.parametrize("filters", ["exact", "partial", "icase", "ignored"])
def test_a_filter_is_applied_here_again_whatever_the_service_does(sandbox: SandboxProcess, filters: str) -> None:
    sandbox.switch(filters=filters)
    create(
        sandbox,
        {"base_id": 7, "email": "ann@example.com", "first_name": "Ann"},
        {"base_id": 7, "email": "anna@example.com", "first_name": "Anna"},
        {"base_id": 7, "email": "bo@example.com", "first_name": "ann"},
        {"base_id": 8, "email": "cy@example.com", "first_name": "Ann"},
    )

    certificate, collector = read(sandbox, ListQuery(first_name="Ann", base_id=7))

    (row,) = collector.sweeps[1]
    assert row["Email"] == "ann@example.com"
    assert certificate.filters["asked"] == {"first_name": "Ann", "base_id": 7}
    assert certificate.filters["dropped"] == certificate.distinct - 1


def test_progress_counts_the_rows_of_each_sweep(sandbox: SandboxProcess) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(order="email")
    seen: list[ListProgress] = []

    read(sandbox, on_progress=seen.append)

    assert seen[0] == ListProgress(1, 1000, 2500)
    assert next(each for each in seen if each.sweep == 2) == ListProgress(2, 1000, 2500)
    assert seen[-1] == ListProgress(2, 2500, 2500)


def test_a_smaller_page_can_be_asked_for(sandbox: SandboxProcess) -> None:
    sandbox.seed(120, base_name="News")

    certificate, collector = read(sandbox, ListQuery(limit=50))

    assert (certificate.is_complete, len(collector.ids), certificate.pages) == (True, 120, 5)


def test_an_offset_is_refused(sandbox: SandboxProcess) -> None:
    with pytest.raises(ValueError, match="from its beginning"):
        read(sandbox, ListQuery(offset=5))


class _DiskFullError(RuntimeError):
    """What the failing sink raises."""


class _Failing(Collector):
    """A sink that fails at its second page."""

    def take(self, wire_objects: Any) -> None:
        if self.sweeps[1]:
            raise _DiskFullError
        Collector.take(self, wire_objects)


def test_what_a_sink_raises_passes_and_leaves_no_request_behind(sandbox: SandboxProcess) -> None:
    sandbox.seed(5000, base_name="News")

    async def run() -> None:
        async with open_client(service_of(sandbox)) as client:
            with pytest.raises(_DiskFullError):
                await read_list(client, hurried(), ListQuery(), _Failing(), now=now)
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_a_cancelled_reading_leaves_no_request_behind(sandbox: SandboxProcess) -> None:
    sandbox.seed(5000, base_name="News")

    async def run() -> None:
        started = asyncio.Event()
        async with open_client(service_of(sandbox)) as client:
            reading = asyncio.create_task(
                read_list(client, hurried(), ListQuery(), Collector(), now=now, on_progress=lambda _: started.set())
            )
            await started.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
