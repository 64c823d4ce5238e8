"""A list that leaves subscribers out is never complete if another question would show more subscribers."""

import os
from collections import Counter
from random import Random

import pytest

from connector.listing.evidence import MOST_REQUESTS
from connector.paging.certificate import CutOff, Reason, is_window_size
from tests.paging.simulated import SimulatedList
from tests.paging.windows import (
    Build,
    LongList,
    build_cut_off_list,
    build_hiding_list,
    build_honest_list,
    build_sharded_list,
    build_sharing_list,
)

LISTS = int(os.environ.get("CONNECTOR_TEST_LISTS", "60"))
_RARE = (194,)  # only the rows of another answer show that a shard is missing


def test_a_list_that_is_cut_off_is_not_complete_if_the_service_has_evidence() -> None:
    ends, kinds = Counter[str](), Counter[str]()
    for seed in range(LISTS):
        listed = build_cut_off_list(seed)
        certificate = listed.read()
        if certificate.is_complete and not listed.is_whole and listed.was_hidden:
            assert not listed.has_evidence, f"seed {seed}: {certificate}"
            assert certificate.cut_off is CutOff.NOT_EXCLUDED, f"seed {seed}: {certificate}"
        ends[certificate.reason if not certificate.is_complete else certificate.cut_off] += 1
        kinds.update(kind for kind, words in certificate.evidence.items() if words.startswith("contradicts"))
    assert ends[Reason.CUT_OFF] > LISTS // 3
    assert {"is_active", "gender", "base_id", "ids", "ledger"} <= set(kinds), (
        "a kind of evidence contradicts no list any more"
    )
    assert ends[Reason.CUT_OFF_POSSIBLE] > 0


@pytest.mark.parametrize("build", [build_hiding_list, build_sharded_list, build_sharing_list])
def test_a_list_that_hides_loses_or_repeats_subscribers_is_complete_only_with_all_subscribers(build: Build) -> None:
    ends = Counter[str]()
    for seed in (*range(LISTS // 2), *_RARE):
        listed = build(seed)
        certificate = listed.read()
        if certificate.is_complete and not listed.is_whole:
            assert not listed.has_evidence, f"seed {seed}: {certificate} {listed.simulated}"
        ends[certificate.reason if not certificate.is_complete else "hidden" if certificate.hidden else "whole"] += 1
    if build is build_hiding_list:
        assert ends["hidden"] > LISTS // 6, ends
    assert ends["whole"] or build is build_sharing_list, ends


def test_a_hidden_class_whose_filter_lists_others_as_well_is_not_certified() -> None:
    simulated = SimulatedList(Random(1), 300, limit=1000, hides=(("is_active", False),), filters="small")
    listed = LongList(simulated)

    certificate = listed.read()

    assert (certificate.reason, certificate.hidden) == (Reason.CUT_OFF, (("is_active", False),))
    assert "lists other subscribers as well" in certificate.evidence["hidden"]


def test_an_honest_list_is_rarely_called_cut_off_and_costs_few_requests() -> None:
    reasons, ends, hiding = Counter[Reason](), Counter[CutOff](), 0
    for seed in range(LISTS // 2):
        listed = build_honest_list(seed)
        certificate = listed.read()
        reasons[certificate.reason] += 1
        ends[certificate.cut_off] += 1
        hiding += bool(certificate.hidden)  # the first subscriber of a class came meanwhile
        assert listed.asked <= MOST_REQUESTS or certificate.hidden, f"seed {seed}"
    assert hiding <= max(1, LISTS // 100)
    assert reasons[Reason.CUT_OFF] + reasons[Reason.CUT_OFF_POSSIBLE] <= max(1, LISTS // 100)
    assert ends[CutOff.EXCLUDED] > LISTS // 4


def test_the_sizes_of_result_windows_are_known() -> None:
    assert all(map(is_window_size, (999, 1000, 1023, 1024, 9999, 12000, 65535, 99999)))
    assert not any(map(is_window_size, (0, 512, 998, 1001, 1025, 9990, 12345)))
