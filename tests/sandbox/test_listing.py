"""The list: its pages, filters and orders, and how the list changes while it is read."""

import pytest

from tests.sandbox.calls import LIST, Calls, wait_until


@pytest.fixture
def people(calls: Calls) -> Calls:
    calls.create("Cleo@example.com", FirstName="Cleo", Gender="female", IsActive=True, ClientUserId="K1")
    calls.create("bob+x@example.com", FirstName="Bob", Gender="male", ClientUserId="k1")
    calls.create("ana@example.com", FirstName="Ana", LastName="Zoë", base={"Id": 2})
    calls.create("ana@example.org", FirstName="ana", IsActive=True, base={"Id": 2})
    return calls


def test_bounds_are_applied_and_echoed(calls: Calls) -> None:
    calls.sandbox.seed(120)
    cases: list[tuple[dict[str, int], int, int, int]] = [
        ({}, 0, 50, 50), ({"limit": 5000}, 0, 1000, 120), ({"limit": 0}, 0, 1, 1), ({"limit": -5}, 0, 1, 1),
        ({"offset": -5, "limit": 7}, 0, 7, 7), ({"offset": 115}, 115, 50, 5), ({"offset": 120}, 120, 50, 0),
        ({"offset": 10**12}, 10**12, 50, 0),
    ]  # fmt: skip
    for query, offset, limit, rows in cases:
        page = calls.page(**query)
        assert (page["TotalCount"], len(page["Subscribers"])) == (120, rows), query
        assert (page["Offset"], page["Limit"]) == (offset, limit), query


def test_a_query_that_breaks_a_rule_is_an_error(calls: Calls) -> None:
    wrong = "offset=x limit=1.5 IsActive=true IsActive= Gender=x Id=a Sex=male limit=1&limit=2 %ff=1 Email"
    for query in wrong.split():
        assert calls.ask("GET", f"{LIST}?{query}").status == 400, query
    assert calls.ask("GET", LIST, b"{}").status == 400  # A body is an error.


MATCHES: list[tuple[str, dict[str, object], list[int]]] = [
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


def test_filters_match_exactly_or_as_switched(people: Calls) -> None:
    assert people.sandbox.switch()["filters"] == "exact"
    everybody = [event["subscriber"]["Id"] for event in people.events()]
    for mode, query, found in MATCHES:
        people.sandbox.switch(filters=mode)
        page = people.page(**query)
        assert [everybody.index(subscriber["Id"]) for subscriber in page["Subscribers"]] == found, query
        assert page["TotalCount"] == len(found)


def test_filters_combine_as_switched(people: Calls) -> None:
    for combine, count in (("all", 1), ("any", 3), ("last", 2)):
        people.sandbox.switch(combine=combine)
        assert people.page(BaseId=2, IsActive=1)["TotalCount"] == count


@pytest.mark.parametrize("filters", [{}, {"BaseId": 1}, {"IsActive": 1}])
def test_the_order_is_by_id_or_the_other_way_round(calls: Calls, filters: dict[str, object]) -> None:
    calls.sandbox.seed(95)
    ids = [number for offset in range(0, 100, 10) for number in calls.ids(offset=offset, limit=10, **filters)]
    assert ids == sorted(ids)
    calls.sandbox.switch(order="id_desc")
    assert [number for offset in range(0, 100, 10) for number in calls.ids(offset=offset, limit=10, **filters)] == ids[
        ::-1
    ]


@pytest.mark.parametrize("filters", [{}, {"IsActive": 1}])
def test_a_list_by_email_stays_in_order_after_a_create(people: Calls, filters: dict[str, object]) -> None:
    people.sandbox.seed(30)
    people.sandbox.switch(order="email")
    people.emails(**filters)
    people.create("Bea@example.com", IsActive=True)
    emails = [email.lower() for email in people.emails(**filters)]
    assert "bea@example.com" in emails
    assert emails == sorted(emails)


@pytest.mark.parametrize("filters", [{}, {"IsActive": 1}])
def test_a_shuffled_list_has_another_order_at_each_request(calls: Calls, filters: dict[str, object]) -> None:
    calls.sandbox.seed(100)
    calls.sandbox.switch(order="shuffled")
    first, second = calls.ids(limit=100, **filters), calls.ids(limit=100, **filters)
    assert first != second
    assert sorted(first) == sorted(second)
    assert len(set(first)) == len(first)
    assert len(calls.ids(limit=30, offset=80, **filters)) == max(0, len(first) - 80)


def test_the_list_and_its_filters_show_a_create_after_the_lag(calls: Calls) -> None:
    calls.sandbox.switch(list_lag_ms=60_000)
    hidden = calls.create("late@example.com").json["Subscriber"]["Id"]
    calls.sandbox.switch(list_lag_ms=0)
    calls.create("now@example.com")
    assert calls.emails() == calls.emails(BaseId=1) == ["now@example.com"]
    assert calls.page(Email="late@example.com")["TotalCount"] == calls.page(Id=hidden)["TotalCount"] == 0
    assert calls.sandbox.stats()["subscribers"] == 2
    calls.sandbox.switch(list_lag_ms=1)
    calls.create("soon@example.com")
    wait_until(lambda: calls.emails(Email="soon@example.com"))


def test_total_count_can_be_capped_or_wrong(calls: Calls) -> None:
    calls.sandbox.seed(30)
    calls.sandbox.switch(max_total=25)
    assert calls.page()["TotalCount"] == 25
    assert len(calls.page()["Subscribers"]) == 30
    calls.sandbox.switch(max_total=0, total_off=-2)
    assert calls.page()["TotalCount"] == 28


def test_the_bounds_of_limit_and_a_page_past_the_end_are_switches(calls: Calls) -> None:
    calls.sandbox.seed(30)
    ids = calls.ids()
    calls.sandbox.switch(min_limit=5, max_limit=8)
    assert (calls.page(limit=1)["Limit"], calls.page(limit=100)["Limit"]) == (5, 8)
    calls.sandbox.switch(past_end="repeat")
    assert calls.ids(offset=64, limit=8) == ids[24:]


# what a service may do with a list


@pytest.mark.parametrize("order", ["id", "id_desc", "shuffled"])
def test_a_result_window_caps_the_count_and_the_pages_alike(calls: Calls, order: str) -> None:
    calls.sandbox.seed(30)
    calls.sandbox.switch(result_window=25, order=order)
    page = calls.page(limit=20)
    assert (page["TotalCount"], len(page["Subscribers"])) == (25, 20)
    assert [len(calls.ids(offset=offset, limit=20)) for offset in (20, 25, 29)] == [5, 0, 0]
    assert calls.page(IsActive=1)["TotalCount"] == 25  # of 27: each result has a window of its own
    assert calls.page(IsActive=0)["TotalCount"] == 3
    assert len(calls.ids(Id=100_030)) == 1  # beyond the window of the whole list


def test_a_list_can_hide_classes_of_subscribers(calls: Calls) -> None:
    calls.create("a@example.com", Gender="male", IsActive=True)  # 100001
    calls.create("b@example.com", Gender="male", IsActive=False)
    calls.create("c@example.com", Gender="female", IsActive=True)
    calls.create(None, ClientUserId="k4", IsActive=True)
    first = 100_001
    calls.sandbox.switch(hide="inactive")
    assert (calls.ids(), calls.ids(IsActive=0)) == ([first, first + 2, first + 3], [first + 1])
    assert (calls.ids(Email="b@example.com"), calls.ids(Id=first + 1)) == ([], [])
    assert calls.ids(Email="b@example.com", IsActive=0) == [first + 1]
    calls.sandbox.switch(hide="male,inactive")
    assert (calls.ids(), calls.ids(Gender="male"), calls.ids(IsActive=0)) == ([first + 2, first + 3], [first], [])
    assert calls.ids(Gender="male", IsActive=0) == [first + 1]
    calls.sandbox.switch(hide="unspecified")
    assert (calls.page()["TotalCount"], calls.ids(Gender="")) == (3, [first + 3])
    calls.sandbox.switch(hide="no_email")
    assert (calls.page()["TotalCount"], calls.ids(Id=first + 3)) == (3, [first + 3])
    calls.sandbox.switch(hide="old_ids", old_ids_below=first + 2)
    assert (calls.ids(), calls.ids(Id=first)) == ([first + 2, first + 3], [first])
    calls.sandbox.switch(hide="unconfirmed")
    calls.sandbox.seed(2)
    assert (calls.ids(), calls.ids(Id=first)) == ([first + 4, first + 5], [])


def test_an_answer_of_the_list_can_lack_a_shard(calls: Calls) -> None:
    calls.sandbox.seed(30)
    calls.sandbox.switch(lost_shard=1.0, shards=3)
    page = calls.page(limit=100)
    assert page["TotalCount"] == len(page["Subscribers"]) == 20
    assert len({row["Id"] % 3 for row in page["Subscribers"]}) == 2


@pytest.mark.parametrize(
    ("shown", "base"),
    [("full", {"Id": 1, "Name": "Base 1"}), ("id", {"Id": 1}), ("name", {"Name": "Base 1"}), ("none", None)],
)
def test_rows_can_show_less_of_their_base(calls: Calls, shown: str, base: dict[str, object] | None) -> None:
    calls.sandbox.seed(1)
    calls.sandbox.switch(base_in_rows=shown)
    assert calls.page()["Subscribers"][0].get("Base") == base


def test_rows_can_show_less_of_an_identity(calls: Calls) -> None:
    calls.create(Email="ann@example.com", ClientUserId="42")
    calls.sandbox.switch(emails_in_rows="masked", client_user_ids="number")
    (row,) = calls.page()["Subscribers"]
    assert (row["Email"], row["ClientUserId"]) == ("a***@example.com", 42)
    calls.sandbox.switch(rows_omit="Email,ClientUserId")
    (row,) = calls.page()["Subscribers"]
    assert not {"Email", "ClientUserId"} & set(row)


def test_a_page_past_the_end_can_be_an_error(calls: Calls) -> None:
    calls.sandbox.switch(past_end="404")
    assert calls.page()["Subscribers"] == []  # the first page of an empty list
    calls.sandbox.seed(30)
    reply = calls.ask_list(offset=30)
    assert (reply.status, reply.json["success"]) == (404, False)
    assert len(calls.ids(offset=29)) == 1
    calls.sandbox.switch(result_window=20)
    assert calls.ask_list(offset=20).status == 404


def test_a_page_without_rows_can_be_null(calls: Calls) -> None:
    calls.sandbox.switch(past_end="null")
    assert calls.page() == {"TotalCount": 0, "Offset": 0, "Limit": 50, "Subscribers": None}
    calls.sandbox.seed(3)
    assert calls.page(offset=3)["Subscribers"] is None
    assert len(calls.page(offset=2)["Subscribers"]) == 1


def test_counts_can_be_texts(calls: Calls) -> None:
    calls.sandbox.seed(3)
    calls.sandbox.switch(numbers_as_text="counts")
    page = calls.page(offset=1, limit=1)
    assert [page[name] for name in ("TotalCount", "Offset", "Limit")] == ["3", "1", "1"]
    assert type(page["Subscribers"][0]["Id"]) is int


@pytest.mark.parametrize(
    ("blind", "email"),
    [("capitals", "Cleo@example.com"), ("plus", "bob+x@example.com"), ("non_ascii", "zoë@example.com")],
)
def test_filters_can_be_blind_for_a_class_of_characters(people: Calls, blind: str, email: str) -> None:
    people.create("zoë@example.com")
    assert people.emails(Email=email) == [email]
    people.sandbox.switch(blind_filters=blind)
    assert people.emails(Email=email) == []
    assert people.emails(Email="ana@example.com") == ["ana@example.com"]
    assert len(people.emails()) == 5


@pytest.mark.parametrize("order", ["id", "email"])
def test_a_replica_shows_a_create_after_its_own_lag(calls: Calls, order: str) -> None:
    calls.sandbox.seed(5)
    calls.sandbox.switch(replica_lags_ms=[0, 60_000], order=order)
    calls.create("late@example.com")
    seen = [calls.page() for _ in range(40)]
    assert {page["TotalCount"] for page in seen} == {len(page["Subscribers"]) for page in seen} == {5, 6}
    assert {calls.page(Email="late@example.com")["TotalCount"] for _ in range(40)} == {0, 1}
    calls.sandbox.switch(replica_lags_ms=[0])
    assert {calls.page()["TotalCount"] for _ in range(20)} == {6}


def read(calls: Calls, **query: object) -> list[int]:
    """The whole list without churn."""
    calls.sandbox.switch(churn_insert=0, churn_delete=0)
    return calls.ids(limit=1000, **query)


@pytest.mark.parametrize(
    ("order", "where", "places"),
    [("id", "head", {0, 1}), ("id_desc", "middle", {9, 10, 11}), ("email", "end", {18, 19, 20})],
)
def test_a_subscriber_vanishes_and_appears_at_the_place_of_the_switch(
    calls: Calls, order: str, where: str, places: set[int]
) -> None:
    calls.sandbox.switch(id_step=5, order=order, churn_where=where)
    calls.sandbox.seed(20)
    before = read(calls)
    calls.sandbox.switch(churn_delete=1)
    assert calls.ids() == before
    fewer = read(calls)
    (gone,) = set(before) - set(fewer)
    assert (before.index(gone) in places, [event["id"] for event in calls.events("churn_deleted")]) == (True, [gone])
    calls.sandbox.switch(churn_insert=1)
    assert calls.ids() == fewer
    more = read(calls)
    (new,) = set(more) - set(fewer)
    assert (more.index(new) in places, [event["id"] for event in calls.events("churn_inserted")]) == (True, [new])
    assert [subscriber for subscriber in more if subscriber != new] == fewer


def test_churn_stays_in_the_base_that_is_listed(calls: Calls) -> None:
    calls.sandbox.seed(20, base_id=1)
    calls.sandbox.seed(20, base_id=2)
    calls.sandbox.switch(churn_insert=1, churn_delete=1, churn_where="head")
    for _ in range(5):
        calls.ask_list(BaseId=2)
    others = read(calls, BaseId=1)
    assert others == [event["first_id"] + n for event in calls.events("seeded")[:1] for n in range(20)]
    assert len(read(calls, BaseId=2)) == 20
