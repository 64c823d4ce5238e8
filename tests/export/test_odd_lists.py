"""Services with unusual pages, answers or filters. The reader certifies their lists only if they are proved
complete."""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pytest

from connector.listing.evidence import MAX_REQUESTS
from connector.listing.pages import ListFailed
from connector.listing.reader import read_list
from connector.paging.certificate import Certificate, CertificateReason
from connector.sandbox import SandboxProcess
from connector.service.client import open_client
from connector.service.settings import Service, Token
from connector.service.wire import ListQuery
from tests.export.exports import SweepCollector, build_retrier, create_people, read_certified_list, read_current_time

LISTED_IDS = range(1, 251)
ListAnswer = dict[str, Any]
RequestFilters = dict[str, str]
ServePage = Callable[[int, int, RequestFilters], ListAnswer]


def serve_correctly(offset: int, limit: int, filters: RequestFilters) -> ListAnswer:
    rows = [{"Id": subscriber_id, "FirstName": "Ann"} for subscriber_id in LISTED_IDS[offset : offset + limit]]
    return {"TotalCount": len(LISTED_IDS), "Offset": offset, "Limit": limit, "Subscribers": rows}


def serve_altered_fields(**fields: Any) -> ServePage:
    return lambda offset, limit, filters: {**serve_correctly(offset, limit, filters), **fields}


def serve_without_total(offset: int, limit: int, filters: RequestFilters) -> ListAnswer:
    page = serve_correctly(offset, limit, filters)
    del page["TotalCount"]
    return page


def serve_changing_total(offset: int, limit: int, filters: RequestFilters) -> ListAnswer:
    return {**serve_correctly(offset, limit, filters), "TotalCount": 250 + offset % 7}


def serve_without_limit(offset: int, limit: int, filters: RequestFilters) -> ListAnswer:
    return {**serve_correctly(offset, 10_000, filters), "Limit": limit}


def serve_without_offset(offset: int, limit: int, filters: RequestFilters) -> ListAnswer:
    return {**serve_correctly(0, limit, filters), "Offset": offset}


def serve_half_pages(offset: int, limit: int, filters: RequestFilters) -> ListAnswer:
    return {**serve_correctly(offset, max(1, limit // 2), filters), "Limit": limit}


def serve_id_twice(offset: int, limit: int, filters: RequestFilters) -> ListAnswer:
    """List the subscriber with Id 31 a second time after Id 200, with another name."""
    rows = [{"Id": subscriber_id, "FirstName": "Ann"} for subscriber_id in LISTED_IDS]
    rows.insert(200, {"Id": 31, "FirstName": "Bob"})
    return {**serve_correctly(offset, limit, filters), "TotalCount": 251, "Subscribers": rows[offset : offset + limit]}


def read_served_list(
    serve_page: ServePage,
    query: ListQuery | None = None,
    *,
    status: str = "200 OK",
    header: str = "X: y",
    **options: Any,
) -> tuple[Certificate, SweepCollector]:
    """Read from a service that answers with the pages of `serve_page`, or with this status and no body."""
    collector = SweepCollector()

    async def answer_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request_head = (await reader.readuntil(b"\r\n\r\n")).decode()
        filters = dict(parse_qsl(urlsplit(request_head.split(" ")[1]).query))
        answer = {
            "success": True,
            "SubscribersList": serve_page(int(filters.pop("offset")), int(filters.pop("limit")), filters),
        }
        body = orjson.dumps(answer) if status == "200 OK" else b""
        header_lines = [f"HTTP/1.1 {status}", "Connection: close", f"Content-Length: {len(body)}", header]
        writer.write("\r\n".join(header_lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def run() -> Certificate:
        async with await asyncio.start_server(answer_request, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with open_client(Service(f"http://127.0.0.1:{port}", Token("t0ken"))) as client:
                return await read_list(
                    client, build_retrier(2), query or ListQuery(limit=100), collector, now=read_current_time, **options
                )

    return asyncio.run(run()), collector


def test_a_subscriber_without_a_usable_id_ends_the_read() -> None:
    for subscriber in ({}, {"Id": None}, {"Id": "5th"}, {"Id": True}, {"Id": 1.5}, {"Id": 2**63}):
        with pytest.raises(ListFailed, match="whose Id is not a whole number"):
            read_served_list(serve_altered_fields(Subscribers=[{"Id": 1}, subscriber]))


def test_a_filtered_reading_of_subscribers_without_ids_fails_with_a_message() -> None:
    def serve_subscriber_without_id(offset: int, limit: int, filters: RequestFilters) -> ListAnswer:
        rows = [{"FirstName": "Ann"}] if filters.get("FirstName") in (None, "Ann") and not offset else []
        return {"TotalCount": len(rows), "Offset": offset, "Limit": limit, "Subscribers": rows}

    with pytest.raises(ListFailed, match="Id is not a whole number"):
        read_served_list(serve_subscriber_without_id, ListQuery(first_name="Ann"))


STATUSES_BY_ADVICE = {
    "Check the base URL.": "301 Moved Permanently, 302 Found, 307 Temporary Redirect, 308 Permanent Redirect",
    "Check the token.": "401 Unauthorized, 403 Forbidden",
    "Check the base URL, or run again later.": "404 Not Found",
    "Run again later.": "408 Request Timeout, 429 Too Many Requests, 500 Internal Server Error",
}


def test_the_error_of_a_refused_list_ends_with_the_next_step() -> None:
    for status, advice in [
        (status, advice) for advice, statuses in STATUSES_BY_ADVICE.items() for status in statuses.split(", ")
    ]:
        with pytest.raises(ListFailed) as error_info:
            read_served_list(serve_correctly, status=status, header="Location: https://elsewhere.example/login")
        assert error_info.value.status == int(status[:3])
        assert str(error_info.value).endswith(f". {advice}")
        assert ("redirect to https://elsewhere.example/login" in str(error_info.value)) == status.startswith("3")


def test_an_odd_list_is_read_and_is_certified_only_if_it_is_proved_complete() -> None:
    odd_lists: list[tuple[ServePage, str, int]] = [
        (serve_correctly, "id_order", 250),
        (serve_without_limit, "id_order", 250),
        (serve_half_pages, "id_order", 250),
        (serve_without_offset, "total_count", 100),
        (serve_without_total, "total_count", 250),
        (serve_altered_fields(TotalCount=None), "total_count", 250),
        (serve_altered_fields(TotalCount="250"), "total_count", 250),
        (serve_altered_fields(TotalCount=249), "total_count", 250),
        (serve_altered_fields(TotalCount=251), "total_count", 250),
        (serve_altered_fields(TotalCount=0), "total_count", 250),
        (serve_changing_total, "total_count", 250),
        (serve_altered_fields(Limit=None), "id_order", 250),
        (serve_altered_fields(Limit=0), "id_order", 250),
        (serve_altered_fields(Offset=None), "id_order", 250),
        (serve_id_twice, "total_count", 250),
    ]
    for serve_page, reason, row_count in odd_lists:
        certificate, collector = read_served_list(serve_page)
        assert (certificate.reason, len(collector.ids)) == (reason, row_count)
        assert len(set(collector.ids)) == row_count == certificate.distinct
        assert certificate.is_complete is (reason == "id_order")


@pytest.mark.parametrize(
    "serve_page", [serve_without_total, serve_altered_fields(TotalCount=None), serve_altered_fields(TotalCount=249)]
)
def test_a_job_can_ignore_a_wrong_total_count(serve_page: ServePage) -> None:
    certificate, collector = read_served_list(serve_page, ignore_total_count=True)
    assert (certificate.reason, certificate.total_count, len(collector.ids)) == ("id_order", "ignored", 250)


def test_an_id_with_two_rows_keeps_its_first_row() -> None:
    _, collector = read_served_list(serve_id_twice)
    assert [
        subscriber["FirstName"]
        for subscriber in collector.rows_by_sweep[collector.current_sweep_number]
        if subscriber["Id"] == 31
    ] == ["Ann"]


LISTED_PEOPLE = (
    {"base_id": 7, "email": "ann@example.com", "first_name": "Ann", "is_active": True, "gender": "female"},
    {"base_id": 7, "email": "joann@example.com", "first_name": "Joann", "is_active": False, "gender": ""},
    {"base_id": 8, "email": "Bo+x@example.com", "first_name": "Bo", "client_user_id": "k1", "gender": "male"},
)


@pytest.mark.parametrize(
    ("requested_filters", "filter_mode", "expected_trial_result"),
    [
        ({"first_name": "Ann"}, "exact", "exact"),
        ({"first_name": "Ann"}, "partial", "partial"),
        ({"first_name": "Ann"}, "ignored", "ignored"),
        ({"email": "bo+x@example.com"}, "icase", "exact"),
        ({"email": "bo+x@example.com"}, "exact", "by_case"),
        ({"email": "bo-x%@example.com"}, "icase", "untold"),  # no listed email has this spelling
        ({"email": "nobody@example.com"}, "ignored", "ignored"),
        ({"base_id": 7}, "exact", "exact"),
        ({"base_id": 7}, "ignored", "ignored"),
        ({"id": 1}, "exact", "exact"),
        ({"is_active": True}, "exact", "exact"),
        ({"is_active": False}, "exact", "exact"),
        ({"is_active": True}, "ignored", "ignored"),
        ({"gender": ""}, "exact", "exact"),
        ({"gender": ""}, "ignored", "ignored"),
        ({"client_user_id": "k1"}, "exact", "exact"),
        ({"last_name": "Lee"}, "exact", "untold"),  # no listed subscriber has a last name
    ],
)
def test_the_certificate_records_the_behaviour_of_the_filters(
    sandbox: SandboxProcess, requested_filters: dict[str, Any], filter_mode: str, expected_trial_result: str
) -> None:
    create_people(sandbox, *LISTED_PEOPLE)
    sandbox.switch(filters=filter_mode)
    request_count_before = sandbox.stats()["requests"].get("list", {"received": 0})["received"]
    certificate, _ = read_certified_list(sandbox, ListQuery(**requested_filters))
    assert certificate.is_complete
    assert certificate.filters["controls"] == dict.fromkeys(requested_filters, expected_trial_result)
    assert certificate.filters["sent"] == (
        next(iter(requested_filters)) if expected_trial_result in ("exact", "partial") else None
    )
    assert (
        sandbox.stats()["requests"]["list"]["received"] - request_count_before - certificate.pages
        <= 1 + 5 + MAX_REQUESTS
    )


def build_filtered_service(build_filter: Callable[[dict[str, str]], Callable[[dict[str, Any]], bool]]) -> ServePage:
    """Return a service with 250 people. `build_filter` gets the filters of a request, and returns a function that
    selects the people."""
    people = [
        {
            "Id": subscriber_id,
            "Email": f"p{subscriber_id}@x.org",
            "IsActive": subscriber_id % 2 == 0,
            "Base": {"Id": 7 + subscriber_id % 3},
        }
        for subscriber_id in LISTED_IDS
    ]
    people[40]["Email"] = "p+40@x.org"

    def serve_list(offset: int, limit: int, filters: dict[str, str]) -> ListAnswer:
        matches_filters = build_filter(filters)
        rows = [person for person in people if matches_filters(person)]
        return {"TotalCount": len(rows), "Offset": offset, "Limit": limit, "Subscribers": rows[offset : offset + limit]}

    return serve_list


def read_listed_ids(serve_list: ServePage, query: ListQuery) -> tuple[Certificate, list[int]]:
    certificate, collector = read_served_list(serve_list, query)
    return certificate, collector.ids


def test_a_filter_is_not_used_if_it_misses_a_listed_subscriber() -> None:
    serve_nobody_by_email = build_filtered_service(lambda filters: lambda _subscriber: "Email" not in filters)
    certificate, listed_ids = read_listed_ids(serve_nobody_by_email, ListQuery(limit=100, email="p5@x.org"))
    assert (certificate.is_complete, listed_ids) == (True, [5])
    assert certificate.filters == {
        "asked": {"email": "p5@x.org"},
        "dropped": 249,
        "controls": {"email": "broken"},
        "sent": None,
    }


def test_a_filter_is_not_used_for_emails_with_a_plus_if_it_works_only_for_plain_emails() -> None:
    """The service reads a plus in a query as a blank, so no filter finds an email with a plus."""

    def filter_by_plain_email(filters: dict[str, str]) -> Callable[[dict[str, Any]], bool]:
        requested_email = filters.get("Email", "").lower().replace("+", " ")
        return lambda subscriber: not requested_email or subscriber["Email"].lower() == requested_email

    certificate, listed_ids = read_listed_ids(
        build_filtered_service(filter_by_plain_email), ListQuery(limit=100, email="p+40@x.org")
    )
    assert (certificate.is_complete, listed_ids, certificate.filters["sent"]) == (True, [41], None)
    certificate, listed_ids = read_listed_ids(
        build_filtered_service(filter_by_plain_email), ListQuery(limit=100, email="p5@x.org")
    )
    assert (certificate.is_complete, listed_ids, certificate.filters["sent"]) == (True, [5], "email")


def test_each_value_of_a_flag_filter_is_tested_separately() -> None:
    """The service ignores the filter IsActive=0, and shows nobody for IsActive=1."""
    serve_list = build_filtered_service(lambda filters: lambda _subscriber: filters.get("IsActive") != "1")
    certificate, listed_ids = read_listed_ids(serve_list, ListQuery(limit=100, is_active=True))
    assert (certificate.is_complete, listed_ids) == (
        True,
        [subscriber_id for subscriber_id in LISTED_IDS if subscriber_id % 2 == 0],
    )
    assert certificate.filters["controls"] == {"is_active": "broken"}


def test_a_filtered_list_is_incomplete_if_it_lacks_a_known_subscriber() -> None:
    """The list filtered by BaseId lacks a subscriber that the first page of the whole list shows."""

    def filter_by_base(filters: dict[str, str]) -> Callable[[dict[str, Any]], bool]:
        requested_base_id = int(filters.get("BaseId", 0))
        return lambda subscriber: (
            not requested_base_id or (subscriber["Base"]["Id"] == requested_base_id and subscriber["Id"] != 9)
        )

    certificate, listed_ids = read_listed_ids(build_filtered_service(filter_by_base), ListQuery(limit=50, base_id=7))
    assert (certificate.verdict, certificate.reason) == ("incomplete", CertificateReason.FILTER)
    assert (certificate.filters["missed"], 9 in listed_ids) == (1, False)


def test_a_request_has_at_most_one_filter() -> None:
    filter_names_by_request = list[set[str]]()

    def filter_by_base(filters: dict[str, str]) -> Callable[[dict[str, Any]], bool]:
        return lambda subscriber: filters.get("BaseId") in (None, str(subscriber["Base"]["Id"]))

    def serve_list(offset: int, limit: int, filters: RequestFilters) -> ListAnswer:
        if limit == 100:  # a page of the list, and not a look-up for evidence
            filter_names_by_request.append(set(filters))
        return build_filtered_service(filter_by_base)(offset, limit, filters)

    certificate, listed_ids = read_listed_ids(serve_list, ListQuery(limit=100, base_id=7, is_active=False))
    assert certificate.is_complete
    assert listed_ids == [subscriber_id for subscriber_id in LISTED_IDS if subscriber_id % 3 == 0 and subscriber_id % 2]
    assert all(len(filter_names) <= 1 for filter_names in filter_names_by_request)
