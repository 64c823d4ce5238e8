"""Habits of services that must not keep a list from being read (architecture 2); a shuffled one is read in parts."""

import pytest

from connector.listing import ListFailed
from connector.paging import CutOff, Order, Reason, TotalCount
from connector.sandbox import SandboxProcess
from connector.service import ListQuery
from tests.export.exports import create, read


@pytest.mark.parametrize("order", ["id", "email"])
@pytest.mark.parametrize("past_end", ["null", "400", "404"])
def test_a_page_past_the_end_that_is_no_page_ends_the_list(sandbox: SandboxProcess, past_end: str, order: str) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(past_end=past_end, order=order)

    certificate, collector = read(sandbox)

    assert certificate.is_complete
    assert len(collector.ids) == 2500


def test_an_empty_list_that_is_null_is_empty(sandbox: SandboxProcess) -> None:
    sandbox.switch(past_end="null")

    certificate, _ = read(sandbox)

    assert (certificate.is_complete, certificate.distinct) == (True, 0)


@pytest.mark.parametrize("switches", [{"past_end": "404", "max_total": 1000}, {"past_end": "400", "total_off": 7}])
def test_a_page_that_is_refused_elsewhere_is_a_failure(sandbox: SandboxProcess, switches: dict[str, object]) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(**switches)

    with pytest.raises(ListFailed):
        read(sandbox)


def test_counts_and_ids_that_come_as_text_are_numbers(sandbox: SandboxProcess) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(numbers_as_text="counts,ids")

    certificate, collector = read(sandbox)

    assert (certificate.is_complete, certificate.total_last, len(collector.ids)) == (True, 2500, 2500)


@pytest.mark.parametrize("window", [2000, 1733])
@pytest.mark.parametrize("order", ["id", "email"])
def test_a_list_that_is_cut_off_is_incomplete(sandbox: SandboxProcess, order: str, window: int) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(result_window=window, order=order)

    certificate, _ = read(sandbox)

    assert (certificate.is_complete, certificate.reason) == (False, Reason.CUT_OFF)
    assert certificate.total_last == window


@pytest.mark.parametrize(
    ("window", "accepts", "is_complete", "cut_off"),
    [
        (2000, False, False, CutOff.UNCHECKED),
        (2000, True, True, CutOff.ACCEPTED),
        (1733, False, True, CutOff.NOT_EXCLUDED),
    ],
)
def test_without_evidence_the_size_decides(
    sandbox: SandboxProcess, window: int, accepts: bool, is_complete: bool, cut_off: CutOff
) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(result_window=window, filters="ignored")

    certificate, _ = read(sandbox, accept_cut_off_possible=accepts)

    assert (certificate.is_complete, certificate.cut_off) == (is_complete, cut_off)
    if not is_complete:
        assert certificate.reason is Reason.CUT_OFF_POSSIBLE


def test_a_filtered_list_that_is_cut_off_is_incomplete(sandbox: SandboxProcess) -> None:
    base = sandbox.seed(2500, base_name="News")["base_id"]
    sandbox.seed(300, base_name="Shop")
    sandbox.switch(result_window=2000)

    certificate, _ = read(sandbox, ListQuery(base_id=base))

    assert certificate.filters["sent"] == "base_id"
    assert certificate.reason is Reason.CUT_OFF


def test_a_long_honest_list_is_certified_by_evidence(sandbox: SandboxProcess) -> None:
    sandbox.seed(2000, base_name="News")

    certificate, _ = read(sandbox)

    assert (certificate.is_complete, certificate.cut_off) == (True, CutOff.EXCLUDED)
    assert list(certificate.evidence) == ["is_active"]


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
