"""A real list in no stable order, read in parts; and a TotalCount that is wrong."""

import pytest

from connector.paging import Order, Reason, TotalCount
from connector.sandbox import SandboxProcess
from connector.service import ListQuery
from tests.export.exports import create, read


def fill(sandbox: SandboxProcess, count: int, base_id: int, **fields: object) -> None:
    people = [{"base_id": base_id, "email": f"p{number}.{base_id}@x.org", **fields} for number in range(count)]
    for number, person in enumerate(people):
        person.setdefault("is_active", number % 2 == 0)
        person.setdefault("gender", ("male", "female", "")[number % 3])
    create(sandbox, *people)


def test_a_shuffled_list_is_certified_by_its_parts(sandbox: SandboxProcess) -> None:
    fill(sandbox, 150, 7)
    fill(sandbox, 150, 8)
    sandbox.switch(order="shuffled", max_limit=100)

    certificate, collector = read(sandbox)

    assert (certificate.reason, certificate.order) == (Reason.PARTITIONS, Order.UNSTABLE)
    assert len(collector.ids) == len(set(collector.ids)) == certificate.distinct == 300
    assert certificate.filters == {}


def test_a_filtered_list_is_split_by_the_other_filters(sandbox: SandboxProcess) -> None:
    fill(sandbox, 150, 7)
    fill(sandbox, 50, 8)
    sandbox.switch(order="shuffled", max_limit=100)

    certificate, collector = read(sandbox, ListQuery(base_id=7))

    assert certificate.reason is Reason.PARTITIONS
    assert {wire["Base"]["Id"] for wire in collector.sweeps[collector.current]} == {7}
    assert len(collector.ids) == certificate.distinct == 150
    assert certificate.filters["asked"] == {"base_id": 7}


@pytest.mark.parametrize("combine", ["any", "last"])
def test_filters_that_do_not_combine_split_nothing_but_what_one_can(sandbox: SandboxProcess, combine: str) -> None:
    fill(sandbox, 300, 7)
    sandbox.switch(order="shuffled", max_limit=100, combine=combine)

    certificate, collector = read(sandbox)

    assert certificate.reason is Reason.UNSTABLE_ORDER
    assert len(collector.ids) == certificate.distinct


def test_nothing_is_split_where_that_is_not_asked_for(sandbox: SandboxProcess) -> None:
    fill(sandbox, 150, 7)
    sandbox.switch(order="shuffled", max_limit=100)

    certificate, _ = read(sandbox, is_thorough=False)

    assert certificate.reason is Reason.UNSTABLE_ORDER


@pytest.mark.parametrize("order", ["id", "email"])
@pytest.mark.parametrize("switches", [{"max_total": 1000}, {"total_off": 7}, {"total_off": -7}])
def test_a_wrong_total_count_is_left_out_of_account_if_asked(
    sandbox: SandboxProcess, order: str, switches: dict[str, int]
) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(order=order, **switches)

    refused, _ = read(sandbox)
    taken, collector = read(sandbox, ignore_total_count=True)

    assert (refused.reason, refused.total_count) == (Reason.TOTAL_COUNT, TotalCount.CHECKED)
    assert (taken.is_complete, taken.total_count) == (True, TotalCount.IGNORED)
    assert taken.reason in (Reason.ID_ORDER, Reason.TWO_SWEEPS)
    assert len(collector.ids) == 2500


def test_a_total_count_that_agrees_is_checked_though_it_might_be_ignored(sandbox: SandboxProcess) -> None:
    sandbox.seed(2500, base_name="News")

    certificate, _ = read(sandbox, ignore_total_count=True)

    assert (certificate.reason, certificate.total_count) == (Reason.ID_ORDER, TotalCount.CHECKED)
