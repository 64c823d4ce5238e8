"""Subscribers in the JSON of the service: with all fields, with few fields, and with wrong values."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from connector.listing.columns import build_columns
from connector.paging.certificate import Certificate, CertificateReason, CertificateVerdict, Order
from connector.warehouse.columns import add_run_columns
from connector.warehouse.runs import ExportRun, ExportStart

EXPORT_TIME = datetime(2026, 11, 21, 9, 30, 0, 123456, tzinfo=UTC)
RUN_ID = "run-1"

FULL_SUBSCRIBER: dict[str, Any] = {
    "Id": 9_007_199_254_740_993,  # a float cannot hold this integer exactly
    "Base": {"Id": 7, "Name": "Newsletter, weekly"},
    "IsActive": True,
    "Email": "zoë@bücher.example",
    "FirstName": 'Zoë "Zo"',
    "LastName": "O'Neil\nvan Dam",
    "Gender": "female",
    "Phone": "+31 20 123",
    "Tags": ["a,b", 'say "hi"', "日本", ""],
    "ClientUserId": "007",
    "CustomField1": "null",
    "CustomField2": "true",
    "CustomField3": " spaced ",
    "Address": {
        "Country": "NL",
        "City": "Ἀθῆναι",
        "State": "",
        "Zip": "02134",
        "Line1": "שדרות רוטשילד",
        "Line2": "Line\r\ntwo",
        "Line3": "",
    },
    "Birthday": "1904-02-29",
}
BARE_SUBSCRIBER: dict[str, Any] = {
    "Id": 2,
    "Base": {"Id": 7, "Name": "Newsletter, weekly"},
    "IsActive": False,
    "Tags": [],
}
BROKEN_SUBSCRIBER: dict[str, Any] = {
    "Id": 3,
    "Base": "Newsletter",
    "IsActive": "yes",
    "Email": 5,
    "Tags": ["a", None],
    "Birthday": "1990-02-30",
    "Address": {"Zip": 12345, "City": None},
}


def build_table(subscriber_objects: Sequence[dict[str, Any]], *, run_id: str, exported_at: datetime) -> pa.Table:
    """Return the exported table of these subscribers (JSON objects of service-api.md 2.1). `exported_at` has a time
    zone."""
    return add_run_columns(build_columns(subscriber_objects), run_id=run_id, exported_at=exported_at)


def build_test_table(*subscriber_objects: dict[str, Any], exported_at: datetime = EXPORT_TIME) -> pa.Table:
    return build_table(subscriber_objects, run_id=RUN_ID, exported_at=exported_at)


MIXED_TABLE = build_test_table(FULL_SUBSCRIBER, BARE_SUBSCRIBER, BROKEN_SUBSCRIBER)


def build_run(
    row_count: int,
    *,
    run_id: str = RUN_ID,
    exported_at: datetime = EXPORT_TIME,
    verdict: CertificateVerdict = CertificateVerdict.COMPLETE,
    filters: dict[str, Any] | None = None,
) -> ExportRun:
    """Return a finished run that exported `row_count` rows at the time `exported_at`."""
    recorded_filters = {"asked": filters, "dropped": 0} if filters else {}
    certificate = Certificate(
        verdict, CertificateReason.ID_ORDER, Order.ID, 1, 3, row_count, row_count, row_count, 0, 0, recorded_filters,
        exported_at, exported_at,
    )  # fmt: skip
    return ExportRun(run_id, "nightly", certificate, row_count, exported_at, exported_at)


def build_start(run: ExportRun) -> ExportStart:
    """Return the record of this run's start."""
    return ExportStart(run.run_id, run.job, run.certificate.filters.get("asked", {}), run.exported_at)
