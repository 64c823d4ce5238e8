"""A user's script that uses all of the library: run by `test_library.py` against a sandbox, and checked by mypy."""

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


def load(frame: pd.DataFrame, path: Path) -> list[Report]:
    planned: Report = CONNECTOR.plan(frame, base_id=7, active=True, identity="email", zip="reject", list_rows=True)
    assert planned.is_planned
    assert planned.planned_rows is not None
    imported = CONNECTOR.import_file(frame, base_id=7, active=True, on_unknown="hold", max_rate=1000, time_limit_s=60)
    contacts = pd.DataFrame({"contact": ["dora@example.com"], "active": [True]})
    named = CONNECTOR.import_file(
        contacts, base_id=7, mapping={"email": "contact", "is_active": "active"}, name="contacts"
    )
    read = CONNECTOR.import_file(read_batches(email="dora@example.com", columns=["email"]), base_id=8, active=True)
    from_file = CONNECTOR.import_file(
        path, base_id=7, active=True, format="csv", delimiter=",", encoding="utf-8", limit=1
    )
    return [planned, imported, named, read, from_file]


def read() -> int:
    frame: pd.DataFrame = read_subscribers(base_id=7, is_active=True, gender="unspecified", columns=("email",))
    chunks: Iterator[pd.DataFrame] = CONNECTOR.read_subscribers(chunksize=2, ignore_total_count=True)
    reader = CONNECTOR.read_batches(allow_truncated=True, allow_incomplete=True)
    rows: int = reader.read_all().num_rows
    assert sum(len(chunk) for chunk in chunks) == rows
    return len(frame)


def run(path: Path) -> list[Report]:
    job = Job.model_validate(
        {
            "job": "typed",
            "source": {"file": {"path": str(path)}},
            "subscriber": {"base": {"id": 7}, "fields": {"email": "email", "is_active": {"value": True}}},
        }
    )
    return [CONNECTOR.sync(job, dry_run=True), CONNECTOR.sync(job, limit=1, wait_s=1.0)]


def send() -> Report:
    return CONNECTOR.send(
        to=["Ann Lee <ann@example.com>"],
        cc="bob@example.com",
        sender="Shop <hello@example.com>",
        subject="Hello",
        html="<p>Hello</p>",
        headers={"X-Campaign": "typed"},
        track_open=False,
    )


def describe(error: ConnectorError) -> str:
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
    reports = [*load(frame, path), *run(path), send()]
    for report in reports:
        report.raise_for_status()
    try:
        Connector(token=Token("another")).import_file(frame, base_id=7, active=True)
    except ConnectorError as error:
        print(describe(error).partition(":")[0])
    print(json.dumps([[report.command, report.status, report.exit_code, report.rows["read"]] for report in reports]))
    print(read())


if __name__ == "__main__":
    main()
