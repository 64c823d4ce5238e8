"""Subscribers as the service writes them: with all fields, with few fields, and with wrong values."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from connector.listing.columns import build_columns
from connector.paging.certificate import Certificate, Order, Reason, Verdict
from connector.warehouse.columns import add_run_columns
from connector.warehouse.runs import ExportRun, ExportStart

AT = datetime(2026, 11, 21, 9, 30, 0, 123456, tzinfo=UTC)
RUN = "run-1"

FULL_SUBSCRIBER: dict[str, Any] = {
    "Id": 9_007_199_254_740_993,  # larger than the integers that a float can hold exactly
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


def build_table(wire_objects: Sequence[dict[str, Any]], *, run_id: str, exported_at: datetime) -> pa.Table:
    """Return the table of wire objects (service-api.md 2.1). `exported_at` has a time zone."""
    return add_run_columns(build_columns(wire_objects), run_id=run_id, exported_at=exported_at)


def build_test_table(*wire_objects: dict[str, Any], exported_at: datetime = AT) -> pa.Table:
    return build_table(wire_objects, run_id=RUN, exported_at=exported_at)


MIXED_TABLE = build_test_table(FULL_SUBSCRIBER, BARE_SUBSCRIBER, BROKEN_SUBSCRIBER)


def build_run(
    rows: int,
    *,
    run_id: str = RUN,
    exported_at: datetime = AT,
    verdict: Verdict = Verdict.COMPLETE,
    filters: dict[str, Any] | None = None,
) -> ExportRun:
    """Return a run that exported this number of rows at this time."""
    recorded_filters = {"asked": filters, "dropped": 0} if filters else {}
    certificate = Certificate(
        verdict, Reason.ID_ORDER, Order.ID, 1, 3, rows, rows, rows, 0, 0, recorded_filters, exported_at, exported_at
    )
    return ExportRun(run_id, "nightly", certificate, rows, exported_at, exported_at)


def build_start(run: ExportRun) -> ExportStart:
    """Return the start of this run."""
    return ExportStart(run.run_id, run.job, run.certificate.filters.get("asked", {}), run.exported_at)
