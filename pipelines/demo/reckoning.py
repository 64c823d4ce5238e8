"""The end of the demo: whether what the service stored, the ledger holds and the warehouse shows agree."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connector.fields import normalise_email
from connector.sandbox import SandboxProcess
from pipelines.demo.crm import ExpectedCrm
from pipelines.demo.people import Expected
from pipelines.demo.warehouse import read_subscribers
from pipelines.runs.report import Report

_CONFIRMED = 4  # connector.states.State.CONFIRMED, read here from the file as a stranger would
_COMPARED = ("email", "first_name", "last_name", "address_city", "address_zip", "birthday")


@dataclass(frozen=True, slots=True)
class Check:
    """A claim, and whether it is so."""

    claim: str
    is_so: bool
    found: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What the generators planted, and what the runs reported."""

    expected: Expected
    crm: ExpectedCrm
    imported: Report
    again: Report
    synced: Report
    exported: Report


def check_all(told: Told, sandbox: SandboxProcess, ledger: Path, warehouse: Path, folder: Path) -> list[Check]:
    """Every claim that the demo makes, held against the sandbox's truth log."""
    stored = _read_truth(sandbox)
    return [
        *_check_reports(told),
        *_check_truth(told, stored),
        _check_ledger(ledger, stored),
        *_check_warehouse(told, warehouse, stored),
        _check_token(folder, sandbox.token),
    ]


def _read_truth(sandbox: SandboxProcess) -> list[dict[str, Any]]:
    return [event for event in sandbox.truth()["events"] if event["kind"] == "created"]


def _check_reports(told: Told) -> Iterator[Check]:
    people = len(told.expected.people)
    planted = {
        "read": told.expected.rows,
        "invalid": told.expected.invalid,
        "duplicate": told.expected.duplicates,
        "created": people,
    }
    yield _compare("the import found the dirt that was planted, and no other", _pick(told.imported, planted), planted)
    nothing_new = {"exists": people, "created": 0, "unknown": 0}
    yield _compare("the same import again created nobody", _pick(told.again, nothing_new), nothing_new)
    crm = {"exists": told.crm.unchanged, "changed": len(told.crm.changed), "created": len(told.crm.added)}
    yield _compare("the sync found who was added and who was changed", _pick(told.synced, crm), crm)


def _check_truth(told: Told, stored: list[dict[str, Any]]) -> Iterator[Check]:
    expected = {normalise_email(person.email) for person in (*told.expected.people, *told.crm.added)}
    times = Counter(normalise_email(event["subscriber"]["Email"]) for event in stored)
    yield _compare("nobody is in the service twice", sum(times.values()) - len(times), 0)
    yield _compare("nobody is missing there, and nobody too many", len(expected ^ times.keys()), 0)
    reported = sum(report.rows["created"] for report in (told.imported, told.again, told.synced))
    yield _compare("the runs report as created exactly what the service stored", reported, len(stored))
    lost = sum(event["answered"] != "answered" for event in stored)
    yield Check("answers were lost on the way, so that all of this was put to the test", lost > 0, f"{lost} lost")


def _check_ledger(path: Path, stored: list[dict[str, Any]]) -> Check:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        entries = database.execute("SELECT subscriber_id, state FROM entry").fetchall()
    truth = {(event["id"], _CONFIRMED) for event in stored}
    return _compare("the ledger knows each of them by the service's id", len(truth ^ set(entries)), 0)


def _check_warehouse(told: Told, path: Path, stored: list[dict[str, Any]]) -> Iterator[Check]:
    verdict = (told.exported.certificate or {}).get("verdict")
    yield _compare("the export is certified to be complete", verdict, "complete")
    truth = sorted(_pick_values(event) for event in stored)
    rows = [tuple("" if value is None else str(value) for value in row) for row in _read_rows(path)]
    yield _compare("the warehouse holds the same people, field by field", sorted(rows) == truth, True)


def _read_rows(path: Path) -> list[tuple[Any, ...]]:
    return read_subscribers(path, ("id", *_COMPARED))


def _pick_values(event: dict[str, Any]) -> tuple[str, ...]:
    subscriber = event["subscriber"]
    address = subscriber.get("Address") or {}
    values = (
        event["id"], subscriber["Email"], subscriber.get("FirstName"), subscriber.get("LastName"),
        address.get("City"), address.get("Zip"), subscriber.get("Birthday"),
    )  # fmt: skip
    return tuple("" if value is None else str(value) for value in values)


def _check_token(folder: Path, token: str) -> Check:
    spoilt = [path.name for path in folder.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    return _compare("the token is in none of the files left behind", spoilt, [])


def _pick(report: Report, names: dict[str, int]) -> dict[str, int]:
    return {name: report.rows[name] for name in names}


def _compare(claim: str, found: object, expected: object) -> Check:
    return Check(claim, found == expected, "" if found == expected else f"{found}, and not {expected}")
