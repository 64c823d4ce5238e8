import pytest

from tests.sandbox.calls import LIST, Calls, wait_until


@pytest.fixture
def people(calls: Calls) -> Calls:
    calls.create("Cleo@example.com", FirstName="Cleo", Gender="female", IsActive=True, ClientUserId="K1")
    calls.create("bob+x@example.com", FirstName="Bob", Gender="male", ClientUserId="k1")
    calls.create("ana@example.com", FirstName="Ana", LastName="Zoë", base={"Id": 2})
    calls.create("ana@example.org", FirstName="ana", IsActive=True, base={"Id": 2})
    return calls


def test_without_parameters_the_first_fifty_are_listed(calls: Calls) -> None:
    calls.sandbox.seed(120)
    page = calls.page()
    assert (page["TotalCount"], page["Offset"], page["Limit"], len(page["Subscribers"])) == (120, 0, 50, 50)


@pytest.mark.parametrize(
    ("given", "offset", "limit", "rows"),
    [
        ({"limit": 5000}, 0, 1000, 120),
        ({"limit": 0}, 0, 1, 1),
        ({"limit": -5}, 0, 1, 1),
        ({"offset": -5, "limit": 7}, 0, 7, 7),
        ({"offset": 115}, 115, 50, 5),
        ({"offset": 120}, 120, 50, 0),
        ({"offset": 10**12}, 10**12, 50, 0),
    ],
)
def test_bounds_are_applied_and_echoed(calls: Calls, given: dict[str, int], offset: int, limit: int, rows: int) -> None:
    calls.sandbox.seed(120)
    page = calls.page(**given)
    assert (page["Offset"], page["Limit"], len(page["Subscribers"])) == (offset, limit, rows)


@pytest.mark.parametrize(
    "query",
    ["offset=x", "limit=1.5", "IsActive=true", "IsActive=", "Gender=x", "Id=a", "Sex=male", "limit=1&limit=2", "%ff=1",
     "Email"],
)  # fmt: skip
def test_a_query_that_breaks_a_rule_is_an_error(calls: Calls, query: str) -> None:
    assert calls.ask("GET", f"{LIST}?{query}").status == 400


def test_a_list_request_has_no_body(calls: Calls) -> None:
    assert calls.ask("GET", LIST, b"{}").status == 400


def test_who_is_active_is_told_whatever_texts_say(calls: Calls) -> None:
    lie = '","IsActive":true,"'
    calls.create("ann@example.com", base={"Name": lie}, FirstName=lie)
    calls.create("bob@example.com", base={"Name": lie.replace("true", "false")}, LastName=lie, IsActive=True)
    calls.sandbox.seed(20)

    for is_active in (True, False):
        page = calls.page(IsActive=int(is_active))
        assert page["TotalCount"] == (19 if is_active else 3)
        assert {each["IsActive"] for each in page["Subscribers"]} == {is_active}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"BaseId": 2}, [2, 3]),
        ({"IsActive": 1}, [0, 3]),
        ({"IsActive": 0}, [1, 2]),
        ({"Gender": "male"}, [1]),
        ({"Gender": ""}, [2, 3]),
        ({"Email": "ana@example.com"}, [2]),
        ({"Email": "bob+x@example.com"}, [1]),
        ({"Email": "cleo@example.com"}, []),
        ({"FirstName": "Ana"}, [2]),
        ({"LastName": "Zoë"}, [2]),
        ({"ClientUserId": "k1"}, [1]),
        ({"BaseId": 2, "IsActive": 1}, [3]),
        ({"BaseId": 9}, []),
        ({"Id": 1}, []),
    ],
)
def test_filters_match_exactly_and_together_by_default(
    people: Calls, query: dict[str, object], found: list[int]
) -> None:
    everybody = people.ids()
    page = people.page(**query)
    assert [everybody.index(each["Id"]) for each in page["Subscribers"]] == found
    assert page["TotalCount"] == len(found)


def test_the_id_filter_finds_one(people: Calls) -> None:
    wanted = people.ids()[1]
    assert people.ids(Id=wanted) == [wanted]


@pytest.mark.parametrize(
    ("mode", "query", "found"),
    [
        ("icase", {"Email": "cleo@EXAMPLE.com"}, [0]),
        ("icase", {"FirstName": "ANA"}, [2, 3]),
        ("icase", {"ClientUserId": "k1"}, [0, 1]),
        ("icase", {"Email": "cleo"}, []),
        ("partial", {"Email": "ANA@"}, [2, 3]),
        ("partial", {"Email": ""}, [0, 1, 2, 3]),
        ("partial", {"Gender": "male"}, [1]),
        ("ignored", {"Email": "nobody@example.com"}, [0, 1, 2, 3]),
        ("ignored", {"BaseId": 9}, [0, 1, 2, 3]),
    ],
)
def test_filters_match_as_switched(people: Calls, mode: str, query: dict[str, object], found: list[int]) -> None:
    people.sandbox.switch(filters=mode)
    everybody = [each["Id"] for each in (event["subscriber"] for event in people.events())]
    assert [everybody.index(each) for each in people.ids(**query)] == found


@pytest.mark.parametrize(("combine", "count"), [("all", 1), ("any", 3), ("last", 2)])
def test_filters_combine_as_switched(people: Calls, combine: str, count: int) -> None:
    people.sandbox.switch(combine=combine)
    assert people.page(BaseId=2, IsActive=1)["TotalCount"] == count


@pytest.mark.parametrize("filters", [{}, {"BaseId": 1}, {"IsActive": 1}])
def test_the_order_is_by_id_or_the_other_way_round(calls: Calls, filters: dict[str, object]) -> None:
    calls.sandbox.seed(95)
    ids = [id_ for offset in range(0, 100, 10) for id_ in calls.ids(offset=offset, limit=10, **filters)]
    assert ids == sorted(ids)
    calls.sandbox.switch(order="id_desc")
    assert [id_ for offset in range(0, 100, 10) for id_ in calls.ids(offset=offset, limit=10, **filters)] == ids[::-1]


@pytest.mark.parametrize("filters", [{}, {"IsActive": 1}])
def test_the_order_can_be_by_email_and_stays_so_while_people_come(people: Calls, filters: dict[str, object]) -> None:
    people.sandbox.seed(30)
    people.sandbox.switch(order="email")
    people.emails(**filters)
    people.create("Bea@example.com", IsActive=True)
    emails = [each.lower() for each in people.emails(**filters)]
    assert "bea@example.com" in emails
    assert emails == sorted(emails)


@pytest.mark.parametrize("filters", [{}, {"IsActive": 1}])
def test_shuffled_is_another_order_each_time_and_no_page_repeats_anybody(
    calls: Calls, filters: dict[str, object]
) -> None:
    calls.sandbox.seed(100)
    calls.sandbox.switch(order="shuffled")
    first, second = calls.ids(limit=100, **filters), calls.ids(limit=100, **filters)
    assert first != second
    assert sorted(first) == sorted(second)
    assert len(set(first)) == len(first)
    assert len(calls.ids(limit=30, offset=80, **filters)) == max(0, len(first) - 80)


def test_a_create_shows_in_the_list_and_its_filters_only_after_the_lag(calls: Calls) -> None:
    calls.sandbox.switch(list_lag_ms=60_000)
    hidden = calls.create("late@example.com").json["Subscriber"]["Id"]
    calls.sandbox.switch(list_lag_ms=0)
    calls.create("now@example.com")
    assert calls.emails() == calls.emails(BaseId=1) == ["now@example.com"]
    assert calls.page(Email="late@example.com")["TotalCount"] == calls.page(Id=hidden)["TotalCount"] == 0
    assert calls.sandbox.stats()["subscribers"] == 2


def test_a_lag_ends(calls: Calls) -> None:
    calls.sandbox.switch(list_lag_ms=1)
    calls.create("soon@example.com")
    wait_until(calls.emails)
    assert calls.emails(Email="soon@example.com") == ["soon@example.com"]


def test_a_hidden_subscriber_is_a_duplicate_all_the_same(calls: Calls) -> None:
    calls.sandbox.switch(list_lag_ms=60_000, duplicates="reject_409")
    calls.create("a@example.com")
    assert calls.create("a@example.com").status == 409


def test_total_count_can_be_capped_or_wrong(calls: Calls) -> None:
    calls.sandbox.seed(30)
    calls.sandbox.switch(max_total=25)
    assert calls.page()["TotalCount"] == 25
    assert len(calls.page()["Subscribers"]) == 30
    calls.sandbox.switch(max_total=0, total_off=-2)
    assert calls.page()["TotalCount"] == 28


def test_offset_and_limit_have_switches_of_their_own(calls: Calls) -> None:
    calls.sandbox.seed(30)
    ids = calls.ids()
    calls.sandbox.switch(min_limit=5, max_limit=8)
    assert (calls.page(limit=1)["Limit"], calls.page(limit=100)["Limit"]) == (5, 8)
    calls.sandbox.switch(align_offset=True)
    page = calls.page(offset=13, limit=8)
    assert (page["Offset"], [each["Id"] for each in page["Subscribers"]]) == (13, ids[8:16])
    calls.sandbox.switch(align_offset=False, max_offset=10)
    assert calls.page(offset=20)["Offset"] == 10
    calls.sandbox.switch(max_offset=0, past_end="repeat")
    assert calls.ids(offset=64, limit=8) == ids[24:]


def test_a_list_request_can_fail(calls: Calls) -> None:
    calls.sandbox.switch(list_error=1, server_error=503)
    assert calls.ask_list().status == 503
    assert calls.create("a@example.com").status == 200
