"""A user's script that uses the whole library. `test_library.py` runs it against a sandbox, and mypy checks it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from connector import (
    ConfigurationError,
    Connector,
    ConnectorError,
    IncompleteList,
    LedgerError,
    ListFailed,
    LockedError,
    Report,
    RunAborted,
    SourceError,
    Token,
    read_batches,
    read_subscribers,
)
from connector.jobs.models import Job

CONNECTOR = Connector(timeout_s=30)


def load_frames(frame: pd.DataFrame, path: Path) -> list[Report]:
    plan_report: Report = CONNECTOR.plan(frame, base_id=7, active=True, identity="email", zip="reject")
    assert plan_report.is_planned
    import_report = CONNECTOR.import_file(
        frame, base_id=7, active=True, on_unknown="hold", max_rate=1000, time_limit_s=60
    )
    contacts = pd.DataFrame({"contact": ["dora@example.com"], "active": [True]})
    mapped_report = CONNECTOR.import_file(
        contacts, base_id=7, mapping={"email": "contact", "is_active": "active"}, name="contacts"
    )
    batches_report = CONNECTOR.import_file(
        read_batches(email="dora@example.com", columns=["email"]), base_id=8, active=True
    )
    file_report = CONNECTOR.import_file(
        path, base_id=7, active=True, format="csv", delimiter=",", encoding="utf-8", limit=1
    )
    return [plan_report, import_report, mapped_report, batches_report, file_report]


def read_subscriber_count() -> int:
    frame: pd.DataFrame = read_subscribers(base_id=7, is_active=True, gender="unspecified", columns=("email",))
    chunks: Iterator[pd.DataFrame] = CONNECTOR.read_subscribers(chunksize=2, ignore_total_count=True)
    reader = CONNECTOR.read_batches(allow_truncated=True, allow_incomplete=True)
    row_count: int = reader.read_all().num_rows
    assert sum(len(chunk) for chunk in chunks) == row_count
    return len(frame)


def run_job(path: Path) -> list[Report]:
    job = Job.model_validate(
        {
            "job": "typed",
            "source": {"file": {"path": str(path)}},
            "subscriber": {"base": {"id": 7}, "fields": {"email": "email", "is_active": {"value": True}}},
        }
    )
    return [CONNECTOR.sync(job, dry_run=True), CONNECTOR.sync(job, limit=1, wait_s=1.0)]


def send_email() -> Report:
    return CONNECTOR.send(
        to=["Ann Lee <ann@example.com>"],
        cc="bob@example.com",
        sender="Shop <hello@example.com>",
        subject="Hello",
        html="<p>Hello</p>",
        headers={"X-Campaign": "typed"},
        track_open=False,
    )


def describe_error(error: ConnectorError) -> str:
    match error:
        case IncompleteList(certificate=certificate):
            return f"incomplete: {certificate.reason}"
        case ConfigurationError() | SourceError():
            return f"to be corrected: {error}"
        case ListFailed(status=status):
            return f"list: {status}"
        case LockedError() | LedgerError() | RunAborted():
            return f"later: {error}"
    return str(error)


def main() -> None:
    path = Path("signups.csv")
    frame = pd.DataFrame({"email": ["ann@example.com", "cleo@example.com"]})
    reports = [*load_frames(frame, path), *run_job(path), send_email()]
    for report in reports:
        report.raise_for_status()
    try:
        Connector(token=Token("another")).import_file(frame, base_id=7, active=True)
    except ConnectorError as error:
        print(describe_error(error).partition(":")[0])
    print(json.dumps([[report.command, report.status, report.exit_code, report.rows["read"]] for report in reports]))
    print(read_subscriber_count())


if __name__ == "__main__":
    main()
