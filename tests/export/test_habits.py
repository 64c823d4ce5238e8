"""Habits of services with which a list is read whole, and habits that make a list incomplete (architecture 2)."""

from typing import Any

import pytest

from connector.listing.pages import ListFailed
from connector.paging.certificate import CutOff, Reason, TotalCount
from connector.sandbox import SandboxProcess
from connector.service.wire import ListQuery
from tests.export.exports import read

COMPLETE: dict[str, object] = {"is_complete": True, "distinct": 2500}
CUT_OFF: dict[str, object] = {"is_complete": False, "reason": Reason.CUT_OFF}
POSSIBLE: dict[str, object] = {"reason": Reason.CUT_OFF_POSSIBLE, "cut_off": CutOff.UNCHECKED}
ACCEPTED: dict[str, object] = {"is_complete": True, "cut_off": CutOff.ACCEPTED}
UNSAID: dict[str, object] = {"is_complete": True, "cut_off": CutOff.NOT_EXCLUDED}
CHECKED: dict[str, object] = {"reason": Reason.ID_ORDER, "total_count": TotalCount.CHECKED}

CERTIFICATES: list[tuple[dict[str, object], dict[str, Any], dict[str, object]]] = [
    # switches of the service, options of the reading, values of the certificate
    ({}, {}, {"reason": Reason.ONE_ANSWER, "distinct": 0, "pages": 1}),
    ({"past_end": "null"}, {}, {"is_complete": True, "distinct": 0}),
    ({"past_end": "null"}, {}, COMPLETE),
    ({"past_end": "null", "order": "email"}, {}, COMPLETE),
    ({"past_end": "400"}, {}, COMPLETE),
    ({"past_end": "400", "order": "email"}, {}, COMPLETE),
    ({"past_end": "404"}, {}, COMPLETE),
    ({"past_end": "404", "order": "email"}, {}, COMPLETE),
    ({"numbers_as_text": "counts,ids"}, {}, COMPLETE | {"total_last": 2500}),
    ({"list_error": 0.3, "seed": 5}, {}, {"is_complete": True, "distinct": 5000}),
    ({}, {"query": ListQuery(limit=50)}, {"is_complete": True, "distinct": 120, "pages": 5}),
    ({}, {"ignore_total_count": True}, CHECKED),
    ({"result_window": 2000}, {}, CUT_OFF | {"total_last": 2000}),
    ({"result_window": 2000, "order": "email"}, {}, CUT_OFF | {"total_last": 2000}),
    ({"result_window": 1733}, {}, CUT_OFF | {"total_last": 1733}),
    ({"result_window": 1733, "order": "email"}, {}, CUT_OFF | {"total_last": 1733}),
    # a size that windows have needs evidence, and an honest list has evidence
    ({"result_window": 2000, "filters": "ignored"}, {}, POSSIBLE),
    ({"result_window": 2000, "filters": "ignored"}, {"allow_truncated": True}, ACCEPTED),
    ({"result_window": 1733, "filters": "ignored"}, {}, UNSAID),
    ({}, {}, {"is_complete": True, "cut_off": CutOff.EXCLUDED, "distinct": 2000}),
]


@pytest.mark.parametrize(("switches", "options", "expected"), CERTIFICATES, ids=str)
def test_the_certificate_contains_what_is_proved(
    sandbox: SandboxProcess, switches: dict[str, object], options: dict[str, Any], expected: dict[str, Any]
) -> None:
    if count := expected.get("distinct", 2500):
        sandbox.seed(count, base_name="News")
    sandbox.switch(**switches)

    certificate, collector = read(sandbox, **options)

    assert {name: getattr(certificate, name) for name in expected} == expected
    assert len(collector.ids) == len(set(collector.ids)) == certificate.distinct


@pytest.mark.parametrize("switches", [{"past_end": "404", "max_total": 1000}, {"past_end": "400", "total_off": 7}])
def test_a_page_that_is_refused_before_the_end_fails(sandbox: SandboxProcess, switches: dict[str, object]) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(**switches)

    with pytest.raises(ListFailed):
        read(sandbox)


@pytest.mark.parametrize("switches", [{"max_total": 1000}, {"total_off": 7, "order": "email"}, {"total_off": -7}])
def test_a_wrong_total_count_is_ignored_on_request(sandbox: SandboxProcess, switches: dict[str, object]) -> None:
    sandbox.seed(2500, base_name="News")
    sandbox.switch(**switches)

    refused, _ = read(sandbox)
    taken, collector = read(sandbox, ignore_total_count=True)

    assert (refused.reason, refused.total_count) == (Reason.TOTAL_COUNT, TotalCount.CHECKED)
    assert (taken.is_complete, taken.total_count) == (True, TotalCount.IGNORED)
    assert taken.reason in (Reason.ID_ORDER, Reason.TWO_SWEEPS)
    assert len(collector.ids) == 2500
