"""The list: pages, filters, orders, and changes while a client reads the pages."""

from itertools import chain

import pytest

from tests.sandbox.client import LIST_PATH, SandboxClient, wait_until


@pytest.fixture
def filled_client(client: SandboxClient) -> SandboxClient:
    client.create("Cleo@example.com", FirstName="Cleo", Gender="female", IsActive=True, ClientUserId="K1")
    client.create("bob+x@example.com", FirstName="Bob", Gender="male", ClientUserId="k1")
    client.create("ana@example.com", FirstName="Ana", LastName="Zoë", base={"Id": 2})
    client.create("ana@example.org", FirstName="ana", IsActive=True, base={"Id": 2})
    return client


def test_offset_and_limit_are_bounded_and_repeated_in_the_answer(client: SandboxClient) -> None:
    client.sandbox.seed(120)
    cases: list[tuple[dict[str, int], int, int, int]] = [
        ({}, 0, 50, 50), ({"limit": 5000}, 0, 1000, 120), ({"limit": 0}, 0, 1, 1), ({"limit": -5}, 0, 1, 1),
        ({"offset": -5, "limit": 7}, 0, 7, 7), ({"offset": 115}, 115, 50, 5), ({"offset": 120}, 120, 50, 0),
        ({"offset": 10**12}, 10**12, 50, 0),
    ]  # fmt: skip
    for query, offset, limit, row_count in cases:
        page = client.read_page(**query)
        assert (page["TotalCount"], len(page["Subscribers"])) == (120, row_count), query
        assert (page["Offset"], page["Limit"]) == (offset, limit), query


def test_an_invalid_list_query_is_an_error(client: SandboxClient) -> None:
    wrong_queries = "offset=x limit=1.5 IsActive=true IsActive= Gender=x Id=a Sex=male limit=1&limit=2 %ff=1 Email"
    for query in wrong_queries.split():
        assert client.request("GET", f"{LIST_PATH}?{query}").status == 400, query
    assert client.request("GET", LIST_PATH, b"{}").status == 400  # a list request must not have a body


FILTER_CASES: list[tuple[str, dict[str, object], list[int]]] = [
    ("exact", {"Id": 100_002}, [1]), ("exact", {"BaseId": 2}, [2, 3]), ("exact", {"IsActive": 1}, [0, 3]),
    ("exact", {"IsActive": 0}, [1, 2]), ("exact", {"Gender": "male"}, [1]), ("exact", {"Gender": ""}, [2, 3]),
    ("exact", {"Email": "ana@example.com"}, [2]), ("exact", {"Email": "bob+x@example.com"}, [1]),
    ("exact", {"Email": "cleo@example.com"}, []), ("exact", {"FirstName": "Ana"}, [2]),
    ("exact", {"LastName": "Zoë"}, [2]), ("exact", {"ClientUserId": "k1"}, [1]),
    ("exact", {"BaseId": 2, "IsActive": 1}, [3]), ("exact", {"BaseId": 9}, []), ("exact", {"Id": 1}, []),
    ("icase", {"Email": "cleo@EXAMPLE.com"}, [0]), ("icase", {"FirstName": "ANA"}, [2, 3]),
    ("icase", {"ClientUserId": "k1"}, [0, 1]), ("icase", {"Email": "cleo"}, []),
    ("partial", {"Email": "ANA@"}, [2, 3]), ("partial", {"Email": ""}, [0, 1, 2, 3]),
    ("partial", {"Gender": "male"}, [1]),
    ("ignored", {"Email": "nobody@example.com"}, [0, 1, 2, 3]), ("ignored", {"BaseId": 9}, [0, 1, 2, 3]),
]  # fmt: skip


def test_a_switch_sets_how_a_filter_matches(filled_client: SandboxClient) -> None:
    assert filled_client.sandbox.switch()["filters"] == "exact"
    created_ids = [event["subscriber"]["Id"] for event in filled_client.list_events()]
    for filter_mode, query, expected_indexes in FILTER_CASES:
        filled_client.sandbox.switch(filters=filter_mode)
        page = filled_client.read_page(**query)
        assert [created_ids.index(subscriber["Id"]) for subscriber in page["Subscribers"]] == expected_indexes, query
        assert page["TotalCount"] == len(expected_indexes)


@pytest.mark.parametrize("filters", [{}, {"IsActive": 1}])
def test_a_list_is_in_ascending_or_descending_order_of_ids(client: SandboxClient, filters: dict[str, object]) -> None:
    client.sandbox.seed(95)
    ids_by_order = {}
    for order in ("id", "id_desc"):
        client.sandbox.switch(order=order)
        pages = (client.list_subscriber_ids(offset=offset, limit=10, **filters) for offset in range(0, 100, 10))
        ids_by_order[order] = list(chain.from_iterable(pages))
    assert ids_by_order["id"] == sorted(ids_by_order["id"]) == ids_by_order["id_desc"][::-1]


def test_a_list_in_order_of_emails_stays_in_order_after_a_create(filled_client: SandboxClient) -> None:
    filled_client.sandbox.seed(30)
    filled_client.sandbox.switch(order="email")
    filled_client.list_subscriber_emails()
    filled_client.create("Bea@example.com", IsActive=True)
    emails = [email.lower() for email in filled_client.list_subscriber_emails()]
    assert "bea@example.com" in emails
    assert emails == sorted(emails)


def test_a_shuffled_list_changes_its_order_at_each_request(client: SandboxClient) -> None:
    client.sandbox.seed(100)
    client.sandbox.switch(order="shuffled")
    first_ids, second_ids = client.list_subscriber_ids(limit=100), client.list_subscriber_ids(limit=100)
    assert first_ids != second_ids
    assert sorted(first_ids) == sorted(second_ids)
    assert len(set(first_ids)) == len(first_ids)
    assert len(client.list_subscriber_ids(limit=30, offset=80)) == max(0, len(first_ids) - 80)


def test_the_list_and_its_filters_show_a_create_after_the_lag(client: SandboxClient) -> None:
    client.sandbox.switch(list_lag_ms=60_000)
    hidden_id = client.create("late@example.com").json["Subscriber"]["Id"]
    client.sandbox.switch(list_lag_ms=0)
    client.create("now@example.com")
    assert client.list_subscriber_emails() == client.list_subscriber_emails(BaseId=1) == ["now@example.com"]
    assert client.read_page(Email="late@example.com")["TotalCount"] == client.read_page(Id=hidden_id)["TotalCount"] == 0
    assert client.sandbox.stats()["subscribers"] == 2
    client.sandbox.switch(list_lag_ms=1)
    client.create("soon@example.com")
    wait_until(lambda: client.list_subscriber_emails(Email="soon@example.com"))


def test_total_count_can_be_capped_or_wrong(client: SandboxClient) -> None:
    client.sandbox.seed(30)
    client.sandbox.switch(max_total=25)
    assert client.read_page()["TotalCount"] == 25
    assert len(client.read_page()["Subscribers"]) == 30
    client.sandbox.switch(max_total=0, total_off=-2)
    assert client.read_page()["TotalCount"] == 28


def test_switches_choose_the_smallest_and_the_largest_page_size(client: SandboxClient) -> None:
    client.sandbox.switch(min_limit=5, max_limit=8)
    assert (client.read_page(limit=1)["Limit"], client.read_page(limit=100)["Limit"]) == (5, 8)


def test_a_switch_repeats_the_last_page_for_an_offset_after_the_end(client: SandboxClient) -> None:
    client.sandbox.seed(30)
    ids = client.list_subscriber_ids()
    client.sandbox.switch(past_end="repeat")
    assert client.list_subscriber_ids(offset=64, limit=8) == ids[24:]


# Possible behaviours of a service


@pytest.mark.parametrize("order", ["id", "id_desc", "shuffled"])
def test_a_result_window_limits_the_count_and_the_pages(client: SandboxClient, order: str) -> None:
    client.sandbox.seed(30)
    client.sandbox.switch(result_window=25, order=order)
    page = client.read_page(limit=20)
    assert (page["TotalCount"], len(page["Subscribers"])) == (25, 20)
    assert [len(client.list_subscriber_ids(offset=offset, limit=20)) for offset in (20, 25, 29)] == [5, 0, 0]
    # 27 subscribers are active, but the window limits each result.
    assert client.read_page(IsActive=1)["TotalCount"] == 25
    assert client.read_page(IsActive=0)["TotalCount"] == 3
    assert len(client.list_subscriber_ids(Id=100_030)) == 1  # this subscriber is beyond the window of the whole list


def test_a_page_past_the_end_can_be_an_error(client: SandboxClient) -> None:
    client.sandbox.switch(past_end="404")
    assert client.read_page()["Subscribers"] == []  # the first page of an empty list is not past the end
    client.sandbox.seed(30)
    reply = client.request_list(offset=30)
    assert (reply.status, reply.json["success"]) == (404, False)
    assert len(client.list_subscriber_ids(offset=29)) == 1
    client.sandbox.switch(result_window=20)
    assert client.request_list(offset=20).status == 404


def test_a_page_without_rows_can_be_null(client: SandboxClient) -> None:
    client.sandbox.switch(past_end="null")
    assert client.read_page() == {"TotalCount": 0, "Offset": 0, "Limit": 50, "Subscribers": None}
    client.sandbox.seed(3)
    assert client.read_page(offset=3)["Subscribers"] is None
    assert len(client.read_page(offset=2)["Subscribers"]) == 1


def test_a_page_can_leave_out_one_shard_of_the_subscribers(client: SandboxClient) -> None:
    client.sandbox.seed(30)
    client.sandbox.switch(lost_shard=1.0, shards=3)
    page = client.read_page(limit=100)
    assert page["TotalCount"] == len(page["Subscribers"]) == 20
    assert len({row["Id"] % 3 for row in page["Subscribers"]}) == 2
