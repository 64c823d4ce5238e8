"""The demo: a made-up service with faults, an import, the same import again, a sync, an export, and the reckoning:
whether what the service stored, the ledger holds and the warehouse shows agree."""

import csv
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console

from connector.atomic_file import unguard_formula
from connector.control import Stop
from connector.fields import normalise_email
from connector.imports.flow import run_load
from connector.imports.plan import RowOptions
from connector.progress import Progress
from connector.report import Report
from connector.sandbox import SandboxProcess
from connector.settings import SettingOptions, Settings
from connector.subscribers.rules import ValidationRules
from pipelines.demo_people import DRIFTING, ExpectedCrm, ExpectedFile, write_crm, write_people
from pipelines.flows.export_plan import plan_export_job
from pipelines.flows.exports import run_export
from pipelines.flows.load_plan import FileReading, plan_import, plan_sync
from pipelines.jobs.build import build_policy
from pipelines.jobs.models import Load
from pipelines.jobs.reader import load_job, override_load
from pipelines.jobs.settings import read_settings
from pipelines.report.text import show_report

_CONFIRMED = 4  # connector.states.State.CONFIRMED, read here from the file as another program would
_DRIFT_COLUMNS = ("identity", "field", "service", "source")
_COMPARED = ("email", "first_name", "last_name", "address_city", "address_zip", "birthday")
BASE_NAME = "Newsletter"
_ADDED, _CHANGED = 120, 80  # what happened in the CRM since the file was written

FAULTS: Mapping[str, Any] = {
    "latency_ms": 3,
    "drop_before": 0.01,
    "drop_after": 0.01,
    "error_before": 0.005,
    "error_after": 0.005,
    "cut_answer": 0.005,
    "garbage_after": 0.005,
    "refuse": 0.005,
    "refuse_retry_after_s": 0,
    "list_error": 0.05,
}
"""One create in 25 goes wrong, and half of those were executed all the same."""

_CRM_JOB = """\
job: crm
source:
  sql: {url: "sqlite:///crm.db", table: customers}
subscriber:
  base: {name: Newsletter}
  fields:
    email: email_address
    is_active: {value: true}
    first_name: fname
    last_name: lname
    gender: {column: sex, values: {F: female, M: male}}
    phone: phone
    tags: {column: segments, split: "|"}
    client_user_id: customer_number
    address_country: country_code
    address_city: town
    address_state: region
    address_zip: postcode
    address_line1: street
    birthday: {column: dob, format: "%d/%m/%Y"}
load: {quiet_period: 1s}
"""
_WAREHOUSE_JOB = """\
job: warehouse
export: {to: "duckdb:///warehouse.duckdb", table: subscribers, mode: replace}
"""

Flow = Callable[[Stop, Progress], Coroutine[Any, Any, Report]]
RunFlow = Callable[[Flow], Report]


@dataclass(frozen=True, slots=True)
class Paths:
    """The files that the demo leaves behind, all in one folder."""

    people: Path
    crm: Path
    crm_job: Path
    warehouse: Path
    warehouse_job: Path
    state: Path
    service: Path


_NAMES = ("people.csv", "crm.db", "crm.yaml", "warehouse.duckdb", "warehouse.yaml", "state", "service")


@dataclass(frozen=True, slots=True)
class Check:
    """A claim, and whether it is so."""

    claim: str
    is_so: bool
    found: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """What the generators planted, and what the runs reported."""

    expected: ExpectedFile
    crm: ExpectedCrm
    imported: Report
    again: Report
    synced: Report
    exported: Report


def run_story(folder: Path, people: int, seed: int, run: RunFlow, console: Console) -> list[Check]:
    """Do all of it in `folder`, showing each step on `console`; returns what was checked at the end."""
    paths = Paths(*(folder / name for name in _NAMES))
    with SandboxProcess(data=paths.service, seed=seed, **FAULTS) as sandbox:
        settings = _settings_for(sandbox, paths)
        console.print(
            f"A service of our own runs at {sandbox.base_url}; one create in 25 goes wrong there.\n", soft_wrap=True
        )
        expected = write_people(paths.people, people, seed)
        imported = _import(paths, settings, run)
        _show(console, imported, f"1. import {paths.people.name}: {people:,} rows, some of them spoilt")
        again = _import(paths, settings, run)
        _show(console, again, "2. the same import again")
        crm, synced = _sync(paths, settings, expected, seed, run)
        _show(console, synced, f"3. sync from a CRM: {_ADDED} subscribers added, {_CHANGED} changed")
        _show_drift(console, synced)
        exported = _export(paths, settings, run)
        _show(console, exported, f"4. export to {paths.warehouse.name}")
        _show_countries(console, paths.warehouse)
        story = Story(expected, crm, imported, again, synced, exported)
        return check_all(story, sandbox, paths.state / "ledger.db", paths.warehouse, folder)


def _settings_for(sandbox: SandboxProcess, paths: Paths) -> Settings:
    environ = {
        "CONNECTOR_BASE_URL": sandbox.base_url,
        "CONNECTOR_TOKEN": sandbox.token,
        "CONNECTOR_STATE_DIR": str(paths.state),
    }
    return replace(read_settings(environ, None, SettingOptions()), account="demo")


def _import(paths: Paths, settings: Settings, run: RunFlow) -> Report:
    rules = ValidationRules()
    policy = build_policy(override_load(Load(), {"quiet_period": "1s"}), rules)
    options = RowOptions(base_name=BASE_NAME, is_active=True)
    plan = plan_import(paths.people, options, rules, policy, settings, reading=FileReading(), wait_s=0)
    return run(lambda stop, progress: run_load(plan, stop, progress))


def _sync(
    paths: Paths, settings: Settings, expected: ExpectedFile, seed: int, run: RunFlow
) -> tuple[ExpectedCrm, Report]:
    crm = write_crm(paths.crm, expected.people, added=_ADDED, changed=_CHANGED, seed=seed)
    paths.crm_job.write_text(_CRM_JOB, encoding="utf-8")
    plan = plan_sync(load_job(paths.crm_job, os.environ), settings, limit=None, wait_s=0)
    return crm, run(lambda stop, progress: run_load(plan, stop, progress))


def _export(paths: Paths, settings: Settings, run: RunFlow) -> Report:
    paths.warehouse_job.write_text(_WAREHOUSE_JOB, encoding="utf-8")
    plan = plan_export_job(load_job(paths.warehouse_job, os.environ), settings)
    return run(lambda stop, progress: run_export(plan, stop, progress))


def _show(console: Console, report: Report, title: str) -> None:
    show_report(report, console, title=title)
    for message in report.messages:
        console.print(f"  {message}", style="dim", soft_wrap=True)
    console.print()


def _show_drift(console: Console, report: Report) -> None:
    """Show how many lines each field has in the drift file, with one example of each name, phone and city."""
    lines = _read_drift(report)
    numbers = Counter(line["field"] for line in lines)
    fields = ", ".join(f"{field} {number}" for field, number in sorted(numbers.items()))
    console.print(f"The service cannot update these; the drift file lists them: {fields}", soft_wrap=True)
    for field in DRIFTING:
        line = next((line for line in lines if line["field"] == field), None)
        if line is not None:
            words = f"{field}: the service has {line['service'] or 'nothing'}, the CRM says {line['source']}"
            console.print(f"  {line['identity']}: {words}", soft_wrap=True)
    console.print()


def _read_drift(report: Report) -> list[dict[str, str]]:
    if report.drift_file is None:
        return []
    with Path(report.drift_file).open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["_code"] == "changed"]
    return [{name: unguard_formula(cell) for name, cell in line.items()} for line in lines]


def _show_countries(console: Console, warehouse: Path) -> None:
    counts = ", ".join(f"{country or 'unknown'} {number}" for country, number in _count_by_country(warehouse, 8))
    console.print(f"Most subscribers by country, from the warehouse: {counts}\n", soft_wrap=True)


# the reckoning


def check_all(story: Story, sandbox: SandboxProcess, ledger: Path, warehouse: Path, folder: Path) -> list[Check]:
    """Return every claim that the demo makes, held against the sandbox's truth log."""
    stored = _read_truth(sandbox)
    return [
        *_check_reports(story),
        *_check_truth(story, stored),
        _check_ledger(ledger, stored),
        *_check_warehouse(story, warehouse, stored),
        _check_token(folder, sandbox.token),
    ]


def _read_truth(sandbox: SandboxProcess) -> list[dict[str, Any]]:
    return [event for event in sandbox.truth()["events"] if event["kind"] == "created"]


def _check_reports(story: Story) -> Iterator[Check]:
    people = len(story.expected.people)
    planted = {
        "read": story.expected.rows,
        "invalid": story.expected.invalid,
        "duplicate": story.expected.duplicates,
        "created": people,
    }
    yield _compare("the import found the dirt that was planted, and no other", _pick(story.imported, planted), planted)
    nothing_new = {"exists": people, "created": 0, "unknown": 0}
    yield _compare("the same import again created no subscriber", _pick(story.again, nothing_new), nothing_new)
    crm = {"exists": story.crm.unchanged, "changed": len(story.crm.changed), "created": len(story.crm.added)}
    yield _compare("the sync found the added and the changed rows", _pick(story.synced, crm), crm)
    lines = _read_drift(story.synced)
    drifted = {normalise_email(line["identity"]) for line in lines}
    changed = {normalise_email(person.email) for person in story.crm.changed}
    yield _compare("its drift file has every changed row, and no other", len(drifted ^ changed), 0)
    listed = {tuple(line[name] for name in _DRIFT_COLUMNS) for line in lines if line["field"] in DRIFTING}
    claim = "it lists each city, phone and name that changed: what the service has, and what the CRM says"
    yield _compare(claim, len(listed ^ story.crm.drifted), 0)


def _check_truth(story: Story, stored: list[dict[str, Any]]) -> Iterator[Check]:
    expected = {normalise_email(person.email) for person in (*story.expected.people, *story.crm.added)}
    times = Counter(normalise_email(event["subscriber"]["Email"]) for event in stored)
    yield _compare("no subscriber is in the service twice", sum(times.values()) - len(times), 0)
    yield _compare("no subscriber is missing there, and none is too many", len(expected ^ times.keys()), 0)
    reported = sum(report.rows["created"] for report in (story.imported, story.again, story.synced))
    yield _compare("the runs report as created exactly what the service stored", reported, len(stored))
    lost = sum(event["answered"] != "answered" for event in stored)
    yield Check("answers were lost on the way, so that all of this was put to the test", lost > 0, f"{lost} lost")


def _check_ledger(path: Path, stored: list[dict[str, Any]]) -> Check:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        entries = database.execute("SELECT subscriber_id, state FROM entry").fetchall()
    truth = {(event["id"], _CONFIRMED) for event in stored}
    return _compare("the ledger knows each of them by the service's id", len(truth ^ set(entries)), 0)


def _check_warehouse(story: Story, path: Path, stored: list[dict[str, Any]]) -> Iterator[Check]:
    verdict = (story.exported.certificate or {}).get("verdict")
    yield _compare("the export is certified to be complete", verdict, "complete")
    truth = sorted(_pick_values(event) for event in stored)
    rows = [
        tuple("" if value is None else str(value) for value in row)
        for row in _read_subscribers(path, ("id", *_COMPARED))
    ]
    yield _compare("the warehouse holds the same subscribers, field by field", sorted(rows) == truth, True)


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


# questions to the warehouse


def _count_by_country(path: Path, most: int) -> list[tuple[str | None, int]]:
    """Return the countries with the most subscribers."""
    query = (
        "select address_country, count(*) as number from subscribers "
        "group by all order by number desc, address_country limit ?"
    )
    return [(country, number) for country, number in _ask(path, query, [most])]


def _read_subscribers(path: Path, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Return these columns of every row, by id."""
    return _ask(path, f"select {', '.join(columns)} from subscribers order by id", [])  # noqa: S608 - our own columns


def _ask(path: Path, query: str, values: list[Any]) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path), read_only=True) as database:
        return database.execute(query, values).fetchall()
