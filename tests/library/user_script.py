"""A user's script that uses all of the library: run by `test_library.py` against a sandbox, and checked by mypy."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from connector import (
    ConfigurationError,
    ConnectorError,
    IncompleteList,
    LedgerError,
    ListFailed,
    LockedError,
    Report,
    RunAborted,
    SourceError,
    Token,
    import_subscribers,
    plan_subscribers,
    read_batches,
    read_subscribers,
    send_email,
)
from connector.jobs.models import Job
from pipelines.job_runs import run_job


def load(frame: pd.DataFrame, path: Path) -> list[Report]:
    planned: Report = plan_subscribers(frame, base_id=7, active=True, identity="email", zip="reject", list_rows=True)
    assert planned.is_planned
    assert planned.planned_rows is not None
    imported = import_subscribers(frame, base_id=7, active=True, on_unknown="hold", max_rate=1000, time_limit_s=60)
    contacts = pd.DataFrame({"contact": ["dora@example.com"], "active": [True]})
    named = import_subscribers(
        contacts, base_id=7, mapping={"email": "contact", "is_active": "active"}, name="contacts"
    )
    read = import_subscribers(read_batches(email="dora@example.com", columns=["email"]), base_id=8, active=True)
    from_file = import_subscribers(path, base_id=7, active=True, format="csv", delimiter=",", encoding="utf-8", limit=1)
    return [planned, imported, named, read, from_file]


def read() -> int:
    frame: pd.DataFrame = read_subscribers(base_id=7, is_active=True, gender="unspecified", columns=("email",))
    chunks: Iterator[pd.DataFrame] = read_subscribers(chunksize=2, ignore_total_count=True)
    reader = read_batches(accept_cut_off_possible=True, allow_incomplete=True)
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
    return [run_job(job, dry_run=True), run_job(job, limit=1, wait_s=1.0)]


def send() -> Report:
    return send_email(
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
        import_subscribers(frame, base_id=7, active=True, token=Token("another"))
    except ConnectorError as error:
        print(describe(error).partition(":")[0])
    print(json.dumps([[report.command, report.status, report.exit_code, report.rows["read"]] for report in reports]))
    print(read())


if __name__ == "__main__":
    main()
