"""A user's script that uses the whole library. `test_library.py` runs the script against a sandbox, and mypy checks the
types."""

from collections.abc import Iterator

import pandas as pd

from connector import (
    Connector,
    ConnectorError,
    IncompleteList,
    ListFailed,
    Report,
    Token,
    read_batches,
    read_subscribers,
)
from connector.jobs.models import Job

connector = Connector(timeout_s=30)
frame = pd.DataFrame({"email": ["ann@example.com", "cleo@example.com"]})
contacts = pd.DataFrame({"contact": ["dora@example.com"], "active": [True]})
subscriber_section = {"base": {"id": 7}, "fields": {"email": "email", "is_active": {"value": True}}}
job = Job.model_validate(
    {"job": "typed", "source": {"file": {"path": "signups.csv"}}, "subscriber": subscriber_section}
)
reports: list[Report] = [
    connector.plan(frame, base_id=7, active=True, identity="email", zip="reject"),
    connector.import_file(frame, base_id=7, active=True, on_unknown="hold", max_rate=1000, time_limit_s=60),
    connector.import_file(contacts, base_id=7, mapping={"email": "contact", "is_active": "active"}, name="contacts"),
    connector.import_file(read_batches(email="dora@example.com", columns=["email"]), base_id=8, active=True),
    connector.import_file("signups.csv", base_id=7, active=True, format="csv", delimiter=",", encoding="utf-8"),
    connector.sync(job, dry_run=True),
    connector.sync(job, limit=1, wait_s=1.0),
    connector.send(
        to=["Ann Lee <ann@example.com>"], cc="bob@example.com", sender="Shop <hello@example.com>", subject="Hello",
        html="<p>Hello</p>", headers={"X-Campaign": "typed"}, track_open=False,
    ),
]  # fmt: skip
for report in reports:
    report.raise_for_status()
print([report.rows["read"] for report in reports])

filtered_frame: pd.DataFrame = read_subscribers(base_id=7, is_active=True, gender="unspecified", columns=("email",))
chunks: Iterator[pd.DataFrame] = connector.read_subscribers(chunksize=2, ignore_total_count=True)
row_count: int = connector.read_batches(allow_truncated=True, allow_incomplete=True).read_all().num_rows
print(len(filtered_frame), sum(len(chunk) for chunk in chunks) == row_count)

try:
    Connector(token=Token("another")).import_file(frame, base_id=7, active=True)
except IncompleteList as error:
    print(error.certificate.reason)
except ListFailed as error:
    print(error.status)
except ConnectorError as error:
    print(type(error).__name__)
