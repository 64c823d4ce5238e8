import pytest

from tests.sandbox.calls import Calls


def read(calls: Calls, **query: object) -> list[int]:
    """The whole list without churn."""
    calls.sandbox.switch(churn_insert=0, churn_delete=0)
    return calls.ids(limit=1000, **query)


@pytest.mark.parametrize("order", ["id", "id_desc", "email"])
@pytest.mark.parametrize(("where", "place"), [("head", 0), ("middle", 10), ("end", 19)])
def test_somebody_vanishes_where_the_switch_says_after_each_page(
    calls: Calls, order: str, where: str, place: int
) -> None:
    calls.sandbox.seed(20)
    calls.sandbox.switch(order=order)
    before = read(calls)
    calls.sandbox.switch(churn_delete=1, churn_where=where)
    assert calls.ids() == before
    assert read(calls) == before[:place] + before[place + 1 :]
    assert [event["id"] for event in calls.events("churn_deleted")] == [before[place]]


@pytest.mark.parametrize("order", ["id", "id_desc", "email"])
@pytest.mark.parametrize(("where", "place"), [("head", 0), ("middle", 11), ("end", 20)])
def test_somebody_appears_where_the_switch_says_after_each_page(
    calls: Calls, order: str, where: str, place: int
) -> None:
    calls.sandbox.switch(id_step=5, order=order)
    calls.sandbox.seed(20)
    before = read(calls)
    calls.sandbox.switch(churn_insert=1, churn_where=where)
    assert calls.ids() == before
    after = read(calls)
    new = set(after) - set(before)
    assert [event["id"] for event in calls.events("churn_inserted")] == list(new)
    at = after.index(new.pop())
    assert at in ({9, 10, 11} if where == "middle" else {place})
    assert after[:at] + after[at + 1 :] == before


def test_churn_goes_on_page_by_page_and_a_fraction_is_a_chance(calls: Calls) -> None:
    calls.sandbox.seed(200)
    calls.sandbox.switch(churn_insert=2.5, churn_delete=0.5, order="shuffled")
    for _ in range(40):
        calls.ask_list(limit=1)
    inserted, deleted = len(calls.events("churn_inserted")), len(calls.events("churn_deleted"))
    assert 80 < inserted < 120
    assert 5 < deleted < 35
    assert calls.sandbox.stats()["subscribers"] == 200 + inserted - deleted


def test_churn_stays_in_the_base_that_is_listed(calls: Calls) -> None:
    calls.sandbox.seed(20, base_id=1)
    calls.sandbox.seed(20, base_id=2)
    calls.sandbox.switch(churn_insert=1, churn_delete=1, churn_where="head")
    for _ in range(5):
        calls.ask_list(BaseId=2)
    others = read(calls, BaseId=1)
    assert others == [event["first_id"] + n for event in calls.events("seeded")[:1] for n in range(20)]
    assert len(read(calls, BaseId=2)) == 20


def test_churn_in_an_empty_list_inserts_and_deletes_nothing_that_is_not_there(calls: Calls) -> None:
    calls.sandbox.switch(churn_insert=1, churn_delete=1, churn_where="head")
    assert calls.ids() == []
    assert len(read(calls)) == 1
