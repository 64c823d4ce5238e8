"""Certificates of lists from services that behave differently (architecture 2). Only some of the lists are complete."""

from typing import Any

import pytest

from connector.listing.pages import ListFailed
from connector.paging.certificate import CertificateReason, CutOff, TotalCountCheck
from connector.sandbox import SandboxProcess
from connector.service.wire import ListQuery
from tests.export.exports import read_certified_list

COMPLETE_LIST: dict[str, object] = {"is_complete": True, "distinct": 2500}
CUT_OFF_LIST: dict[str, object] = {"is_complete": False, "reason": CertificateReason.CUT_OFF}
POSSIBLY_CUT_OFF_LIST: dict[str, object] = {"reason": CertificateReason.CUT_OFF_POSSIBLE, "cut_off": CutOff.UNCHECKED}
ACCEPTED_LIST: dict[str, object] = {"is_complete": True, "cut_off": CutOff.ACCEPTED}
UNCERTAIN_LIST: dict[str, object] = {"is_complete": True, "cut_off": CutOff.NOT_EXCLUDED}
LIST_WITH_CHECKED_COUNT: dict[str, object] = {
    "reason": CertificateReason.ID_ORDER,
    "total_count": TotalCountCheck.CHECKED,
}

CASES: list[tuple[dict[str, object], dict[str, Any], dict[str, object]]] = [
    # switches of the sandbox, options of the reader, expected values of the certificate
    ({}, {}, {"reason": CertificateReason.ONE_ANSWER, "distinct": 0, "pages": 1}),
    ({"past_end": "null"}, {}, COMPLETE_LIST),
    ({"past_end": "400"}, {}, COMPLETE_LIST),
    ({"past_end": "404"}, {}, COMPLETE_LIST),
    ({"list_error": 0.3, "seed": 5}, {}, {"is_complete": True, "distinct": 5000}),
    ({}, {"query": ListQuery(limit=50)}, {"is_complete": True, "distinct": 120, "pages": 5}),
    ({}, {"ignore_total_count": True}, LIST_WITH_CHECKED_COUNT),
    ({"result_window": 2000}, {}, CUT_OFF_LIST | {"total_last": 2000}),
    # Many services show at most 2000 rows, so a list of 2000 rows is whole only if there is evidence.
    ({"result_window": 2000, "filters": "ignored"}, {}, POSSIBLY_CUT_OFF_LIST),
    ({"result_window": 2000, "filters": "ignored"}, {"allow_truncated": True}, ACCEPTED_LIST),
    ({"result_window": 1733, "filters": "ignored"}, {}, UNCERTAIN_LIST),
    ({}, {}, {"is_complete": True, "cut_off": CutOff.EXCLUDED, "distinct": 2000}),
]


@pytest.mark.parametrize(("switches", "options", "expected_values"), CASES, ids=str)
def test_the_certificate_has_only_proved_values(
    sandbox: SandboxProcess, switches: dict[str, object], options: dict[str, Any], expected_values: dict[str, Any]
) -> None:
    if subscriber_count := expected_values.get("distinct", 2500):
        sandbox.seed(subscriber_count, base_name="News")
    sandbox.switch(**switches)
    certificate, collector = read_certified_list(sandbox, **options)
    assert {name: getattr(certificate, name) for name in expected_values} == expected_values
    assert len(collector.ids) == len(set(collector.ids)) == certificate.distinct


@pytest.mark.parametrize("switches", [{"past_end": "404", "max_total": 1000}, {"past_end": "400", "total_off": 7}])
def test_a_list_fails_if_a_page_before_its_end_is_refused(sandbox: SandboxProcess, switches: dict[str, object]) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(**switches)
    with pytest.raises(ListFailed):
        read_certified_list(sandbox)
