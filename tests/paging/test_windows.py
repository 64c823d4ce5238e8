"""A list that a result window cuts off is never called complete where the service shows more, asked otherwise."""

import os
from collections import Counter

import pytest

from connector.listing.evidence import MOST_REQUESTS
from connector.paging.certificate import CutOff, Reason, is_window_size
from tests.paging.windows import build_cut_off_list, build_honest_list

LISTS = int(os.environ.get("CONNECTOR_TEST_LISTS", "60"))


def test_no_list_that_is_cut_off_is_complete_where_evidence_can_be_had() -> None:
    ends, kinds = Counter[str](), Counter[str]()
    for seed in range(LISTS):
        listed = build_cut_off_list(seed)
        certificate, shown = listed.read()
        if certificate.is_complete and listed.is_cut_off and not listed.simulated.throughout <= shown:
            assert not listed.has_evidence, f"seed {seed}: {certificate}"
            assert certificate.cut_off is CutOff.NOT_EXCLUDED, f"seed {seed}: {certificate}"
        assert listed.asked <= MOST_REQUESTS, f"seed {seed}"
        ends[certificate.reason if not certificate.is_complete else certificate.cut_off] += 1
        kinds.update(kind for kind, words in certificate.evidence.items() if words.startswith("contradicts"))
    assert ends[Reason.CUT_OFF] > LISTS // 3
    assert {"is_active", "gender", "base_id", "ids", "ledger"} <= set(kinds), (
        "no list is told by that kind of evidence any more"
    )
    assert ends[Reason.CUT_OFF_POSSIBLE] > 0


def test_honest_lists_are_hardly_ever_called_cut_off() -> None:
    reasons, ends = Counter[Reason](), Counter[CutOff]()
    for seed in range(LISTS):
        certificate, _ = build_honest_list(seed).read()
        reasons[certificate.reason] += 1
        ends[certificate.cut_off] += 1
    assert reasons[Reason.CUT_OFF] + reasons[Reason.CUT_OFF_POSSIBLE] <= max(1, LISTS // 100)
    assert ends[CutOff.EXCLUDED] > LISTS // 2


@pytest.mark.parametrize("rows", [999, 1000, 1023, 1024, 9999, 12000, 65535, 99999])
def test_the_sizes_of_result_windows_are_known(rows: int) -> None:
    assert is_window_size(rows)


@pytest.mark.parametrize("rows", [0, 512, 998, 1001, 1025, 9990, 12345])
def test_other_sizes_are_no_windows(rows: int) -> None:
    assert not is_window_size(rows)
