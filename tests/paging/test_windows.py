"""A list that leaves subscribers out is not certified as complete if other requests show more subscribers
(architecture 7, rule 7)."""

import os
from collections import Counter
from random import Random

import pytest

from connector.listing.evidence import MAX_REQUESTS
from connector.paging.certificate import CertificateReason, CutOff, is_window_size
from tests.paging.simulated import SimulatedList
from tests.paging.windows import (
    BuildList,
    QueriedList,
    build_complete_list,
    build_cut_off_list,
    build_duplicating_list,
    build_hiding_list,
    build_sharded_list,
)

LIST_COUNT = int(os.environ.get("CONNECTOR_TEST_LISTS", "60"))
# With this seed, some pages of the list of `build_sharded_list` lack a shard (one of five parts of the list). Only the
# rows of the requests that search for evidence show that subscribers are missing.
_RARE_SEEDS = (194,)


def test_a_cut_off_list_is_not_certified_if_other_requests_show_more_subscribers() -> None:
    result_counts, contradiction_counts = Counter[str](), Counter[str]()
    for seed in range(LIST_COUNT):
        queried_list = build_cut_off_list(seed)
        certificate = queried_list.read()
        if certificate.is_complete and not queried_list.is_whole and queried_list.was_always_cut_off:
            assert not queried_list.has_evidence, f"seed {seed}: {certificate}"
            assert certificate.cut_off is CutOff.NOT_EXCLUDED, f"seed {seed}: {certificate}"
        result_counts[certificate.reason if not certificate.is_complete else certificate.cut_off] += 1
        contradiction_counts.update(
            kind for kind, message in certificate.evidence.items() if message.startswith("contradicts")
        )
    assert result_counts[CertificateReason.CUT_OFF] > LIST_COUNT // 3
    assert {"is_active", "gender", "base_id", "ids", "ledger"} <= set(contradiction_counts), (
        "one kind of evidence contradicts none of the lists"
    )
    assert result_counts[CertificateReason.CUT_OFF_POSSIBLE] > 0


@pytest.mark.parametrize("build_list", [build_hiding_list, build_sharded_list, build_duplicating_list])
def test_a_list_is_not_certified_if_filters_can_prove_that_it_lacks_subscribers(
    build_list: BuildList,
) -> None:
    result_counts = Counter[str]()
    for seed in (*range(LIST_COUNT // 2), *_RARE_SEEDS):
        queried_list = build_list(seed)
        certificate = queried_list.read()
        if certificate.is_complete and not queried_list.is_whole:
            assert not queried_list.has_evidence, f"seed {seed}: {certificate} {queried_list.simulated_list}"
        result_counts[
            certificate.reason if not certificate.is_complete else "hidden" if certificate.hidden else "whole"
        ] += 1
    if build_list is build_hiding_list:
        assert result_counts["hidden"] > LIST_COUNT // 6, result_counts
    assert result_counts["whole"] or build_list is build_duplicating_list, result_counts


def test_a_list_is_not_certified_if_the_filter_of_a_hidden_group_lists_other_groups() -> None:
    simulated_list = SimulatedList(
        Random(1), 300, limit=1000, hidden_groups=(("is_active", False),), filter_mode="small"
    )
    queried_list = QueriedList(simulated_list)

    certificate = queried_list.read()

    assert (certificate.reason, certificate.hidden) == (CertificateReason.CUT_OFF, (("is_active", False),))
    assert "lists other subscribers as well" in certificate.evidence["hidden"]


def test_a_complete_list_is_rarely_mistaken_for_a_cut_off_list() -> None:
    reason_counts, cut_off_counts, lists_with_hidden_group_count = Counter[CertificateReason](), Counter[CutOff](), 0
    for seed in range(LIST_COUNT // 2):
        queried_list = build_complete_list(seed)
        certificate = queried_list.read()
        reason_counts[certificate.reason] += 1
        cut_off_counts[certificate.cut_off] += 1
        # A group looks hidden if its first subscriber is created during the reading.
        lists_with_hidden_group_count += bool(certificate.hidden)
        assert queried_list.evidence_request_count <= MAX_REQUESTS or certificate.hidden, f"seed {seed}"
    assert lists_with_hidden_group_count <= max(1, LIST_COUNT // 100)
    assert reason_counts[CertificateReason.CUT_OFF] + reason_counts[CertificateReason.CUT_OFF_POSSIBLE] <= max(
        1, LIST_COUNT // 100
    )
    assert cut_off_counts[CutOff.EXCLUDED] > LIST_COUNT // 4


def test_typical_sizes_of_result_windows_are_recognised() -> None:
    assert all(map(is_window_size, (999, 1000, 1023, 1024, 9999, 12000, 65535, 99999)))
    assert not any(map(is_window_size, (0, 512, 998, 1001, 1025, 9990, 12345)))
