"""The reader of lists reads each row once, even if it reads several pages at the same time and some requests fail.
Every value in a certificate is proved (architecture 2)."""

import asyncio
from typing import Any

import pytest

from connector.listing.dispatching import ListProgress
from connector.listing.evidence import MAX_REQUESTS
from connector.listing.pages import ListFailed
from connector.listing.reader import MAX_IN_FLIGHT, read_list
from connector.paging.certificate import CertificateReason, CutOff, TotalCountCheck
from connector.sandbox import SandboxProcess
from connector.service.client import open_client
from connector.service.settings import Service, Token
from connector.service.wire import ListQuery
from tests.export.exports import SweepCollector, build_retrier, build_service, read_certified_list, read_current_time


def test_the_error_of_an_unreachable_service_has_no_status() -> None:
    async def run() -> None:
        async with open_client(Service("http://127.0.0.1:1", Token("t0ken"))) as client:
            await read_list(client, build_retrier(2), ListQuery(), SweepCollector(), now=read_current_time)

    with pytest.raises(ListFailed, match="Check the base URL") as error_info:
        asyncio.run(run())
    assert error_info.value.status is None


def test_progress_counts_from_zero_when_the_list_is_read_again(sandbox: SandboxProcess) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(order="email")
    progress_events: list[ListProgress] = []
    read_certified_list(sandbox, on_progress=progress_events.append)
    assert progress_events[0] == ListProgress(1, 1000, 2500)
    assert next(event for event in progress_events if event.sweep_number == 2) == ListProgress(2, 999, 2500)
    assert progress_events[-1] == ListProgress(2, 2500, 2500)


PAGE_QUERY = ListQuery(limit=100)
SLOW_SWITCHES = {"latency_ms": 5, "jitter_ms": 10}
"""With this latency, the service answers the requests for pages in another order than the client sends them."""


def count_list_requests(sandbox: SandboxProcess) -> int:
    request_count: int = sandbox.stats()["requests"]["list"]["received"]
    return request_count


@pytest.mark.parametrize("order", ["id", "email"])
def test_a_list_without_changes_is_read_with_several_requests_at_once(sandbox: SandboxProcess, order: str) -> None:
    seeded_subscribers = sandbox.seed(6000, base_name="News")
    sandbox.switch(order=order, **SLOW_SWITCHES)
    certificate, collector = read_certified_list(sandbox, PAGE_QUERY)
    sweep_count = 2 if order == "email" else 1
    first_id, step = seeded_subscribers["first_id"], seeded_subscribers["step"]
    assert (certificate.is_complete, certificate.sweeps, len(collector.rows_by_sweep)) == (
        True,
        sweep_count,
        sweep_count,
    )
    assert certificate.reason is (CertificateReason.TWO_SWEEPS if order == "email" else CertificateReason.ID_ORDER)
    assert (certificate.total_first, certificate.total_last, certificate.distinct) == (6000, 6000, 6000)
    assert sorted(collector.ids) == [first_id + step * index for index in range(6000)]
    assert 5 <= sandbox.stats()["peak_in_flight"] <= MAX_IN_FLIGHT
    assert count_list_requests(sandbox) <= 1.1 * sweep_count * 60 + MAX_REQUESTS


def test_a_concurrency_of_one_allows_one_request_at_a_time(sandbox: SandboxProcess) -> None:
    sandbox.seed(3000, base_name="News")
    sandbox.switch(**SLOW_SWITCHES)
    certificate, _ = read_certified_list(sandbox, PAGE_QUERY, max_concurrency=1)
    assert (certificate.reason, sandbox.stats()["peak_in_flight"]) == (CertificateReason.ID_ORDER, 1)


# The tests in `tests/paging` test more combinations of order, position and changes.
@pytest.mark.parametrize(
    ("order", "churn_position", "churn_switches", "query"),
    [
        ("id", "head", {"churn_insert": 3, "churn_delete": 7}, ListQuery()),
        ("id_desc", "head", {"churn_delete": 0.15, "seed": 3, **SLOW_SWITCHES}, PAGE_QUERY),
    ],
)
def test_a_list_that_changes_is_certified_in_id_order_and_has_every_subscriber(
    sandbox: SandboxProcess, order: str, churn_position: str, churn_switches: dict[str, float], query: ListQuery
) -> None:
    seeded_subscribers = sandbox.seed(6000, base_name="News")
    sandbox.switch(order=order, churn_where=churn_position, **churn_switches)
    certificate, collector = read_certified_list(sandbox, query)
    events = sandbox.truth()["events"]
    deleted_ids = {event["id"] for event in events if event["kind"] == "churn_deleted"}
    inserted_ids = {event["id"] for event in events if event["kind"] == "churn_inserted"}
    ids_at_start = {seeded_subscribers["first_id"] + seeded_subscribers["step"] * index for index in range(6000)}
    assert (bool(inserted_ids), bool(deleted_ids)) == (
        "churn_insert" in churn_switches,
        "churn_delete" in churn_switches,
    )
    assert certificate.reason is CertificateReason.ID_ORDER
    assert ids_at_start - deleted_ids <= set(collector.ids) <= ids_at_start | inserted_ids
    assert len(set(collector.ids)) == len(collector.ids) == certificate.distinct
    if query is PAGE_QUERY:
        assert certificate.sweeps == 1
    else:
        assert certificate.appeared + certificate.vanished > 0


def test_a_page_that_always_fails_ends_the_read_and_leaves_no_task(sandbox: SandboxProcess) -> None:
    sandbox.seed(6000, base_name="News")

    def fail_after_3000_rows(progress: ListProgress) -> None:
        if progress.row_count > 3000:
            sandbox.switch(list_error=1)

    async def run() -> None:
        collector: Any = SweepCollector()
        async with open_client(build_service(sandbox)) as client:
            with pytest.raises(ListFailed, match="did not return its list"):
                await read_list(
                    client,
                    build_retrier(2),
                    PAGE_QUERY,
                    collector,
                    now=read_current_time,
                    on_progress=fail_after_3000_rows,
                )
            assert len(asyncio.all_tasks()) == 1
        assert 3000 < len(collector.ids) < 6000

    asyncio.run(run())


def test_a_page_can_show_the_end_of_the_list_only_if_its_status_is_400_404_or_422() -> None:
    statuses: list[tuple[int | None, bool]] = [
        (400, True),
        (404, True),
        (422, True),
        *((status, False) for status in (None, 301, 401, 403, 405, 408, 409, 429, 500)),
    ]
    for status, is_end_of_list in statuses:
        assert ListFailed("refused", status=status).is_query_refused is is_end_of_list


COMPLETE_CERTIFICATE_VALUES: dict[str, object] = {"is_complete": True, "distinct": 2500}
CUT_OFF_CERTIFICATE_VALUES: dict[str, object] = {"is_complete": False, "reason": CertificateReason.CUT_OFF}
POSSIBLY_CUT_OFF_CERTIFICATE_VALUES: dict[str, object] = {
    "reason": CertificateReason.CUT_OFF_POSSIBLE,
    "cut_off": CutOff.UNCHECKED,
}
ACCEPTED_CERTIFICATE_VALUES: dict[str, object] = {"is_complete": True, "cut_off": CutOff.ACCEPTED}
UNCERTAIN_CERTIFICATE_VALUES: dict[str, object] = {"is_complete": True, "cut_off": CutOff.NOT_EXCLUDED}
CHECKED_TOTAL_COUNT_CERTIFICATE_VALUES: dict[str, object] = {
    "reason": CertificateReason.ID_ORDER,
    "total_count": TotalCountCheck.CHECKED,
}

LISTS_AND_CERTIFICATES: list[tuple[dict[str, object], dict[str, Any], dict[str, object]]] = [
    # Each case: switches of the sandbox, options of the reader, and expected values of the certificate.
    ({}, {}, {"reason": CertificateReason.ONE_ANSWER, "distinct": 0, "pages": 1}),
    ({"past_end": "null"}, {}, COMPLETE_CERTIFICATE_VALUES),
    ({"past_end": "400"}, {}, COMPLETE_CERTIFICATE_VALUES),
    ({"past_end": "404"}, {}, COMPLETE_CERTIFICATE_VALUES),
    ({"list_error": 0.3, "seed": 5}, {}, {"is_complete": True, "distinct": 5000}),
    ({}, {"query": ListQuery(limit=50)}, {"is_complete": True, "distinct": 120, "pages": 5}),
    ({}, {"ignore_total_count": True}, CHECKED_TOTAL_COUNT_CERTIFICATE_VALUES),
    ({"result_window": 2000}, {}, CUT_OFF_CERTIFICATE_VALUES | {"total_last": 2000}),
    # Many services show at most 2000 rows, so evidence must show that a list of 2000 rows is whole.
    ({"result_window": 2000, "filters": "ignored"}, {}, POSSIBLY_CUT_OFF_CERTIFICATE_VALUES),
    ({"result_window": 2000, "filters": "ignored"}, {"allow_truncated": True}, ACCEPTED_CERTIFICATE_VALUES),
    ({"result_window": 1733, "filters": "ignored"}, {}, UNCERTAIN_CERTIFICATE_VALUES),
    ({}, {}, {"is_complete": True, "cut_off": CutOff.EXCLUDED, "distinct": 2000}),
]


@pytest.mark.parametrize(("switches", "options", "expected_values"), LISTS_AND_CERTIFICATES, ids=str)
def test_the_certificate_has_only_proved_values(
    sandbox: SandboxProcess, switches: dict[str, object], options: dict[str, Any], expected_values: dict[str, Any]
) -> None:
    if subscriber_count := expected_values.get("distinct", 2500):
        sandbox.seed(subscriber_count, base_name="News")
    sandbox.switch(**switches)
    certificate, collector = read_certified_list(sandbox, **options)
    assert {name: getattr(certificate, name) for name in expected_values} == expected_values
    assert len(collector.ids) == len(set(collector.ids)) == certificate.distinct


@pytest.mark.parametrize("switches", [{"past_end": "404", "max_total": 1000}, {"past_end": "400", "total_off": 7}])
def test_a_list_fails_if_a_page_before_its_end_is_refused(sandbox: SandboxProcess, switches: dict[str, object]) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(**switches)
    with pytest.raises(ListFailed):
        read_certified_list(sandbox)
