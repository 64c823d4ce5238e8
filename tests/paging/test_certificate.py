"""The certificate says exactly what the report shows."""

import json
from dataclasses import fields

from connector.paging.certificate import Certificate, Order, Reason, Verdict
from tests.paging.times import FINISHED, STARTED

KEYS = ["verdict", "reason", "order", "sweeps", "pages", "distinct", "total_first", "total_last", "appeared"]
KEYS += ["vanished", "filters", "started_at", "finished_at", "total_count", "cut_off", "evidence"]


def test_its_report_has_the_keys_of_the_design_in_their_order_as_plain_json() -> None:
    certificate = Certificate(
        Verdict.COMPLETE, Reason.ID_ORDER, Order.ID_DESC, 1, 3, 250, 250, 251, 1, 0, {"asked": {}}, STARTED, FINISHED
    )

    report = certificate.as_report()

    assert list(report) == KEYS == [each.name for each in fields(Certificate)]
    assert json.loads(json.dumps(report)) == report
    assert (report["verdict"], report["started_at"]) == ("complete", "2026-11-21T09:00:00+00:00")
    assert certificate.is_complete
