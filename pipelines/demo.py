"""The demo: a service of our own that loses answers, an import, the same import again, a sync, an export, and five
checks: whether the service, the ledger and the warehouse agree."""

import csv
import os
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import duckdb

from connector.control import Stop
from connector.export import run_export
from connector.fields import normalise_email
from connector.imports.flow import run_load
from connector.jobs.arguments import build_import_job
from connector.jobs.export_planner import plan_export_job
from connector.jobs.load_planner import plan_import, plan_sync
from connector.jobs.reader import load_job
from connector.progress import Progress
from connector.runs.report import Report
from connector.sandbox.people import Person, draw_people
from connector.sandbox.process import SandboxProcess
from connector.settings import Settings, read_settings
from pipelines.report.console import PlainConsole
from pipelines.report.text import show_report

BASE_NAME = "Newsletter"
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

_CONFIRMED = 4  # connector.states.State.CONFIRMED, read here from the file as another program would
_ADDED, _MOVED = 120, 80  # subscribers that the CRM has added and changed since the file was written
_NEW_TOWN = "Ísafjörður"

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


# the data


@dataclass(frozen=True, slots=True)
class DemoData:
    """The subscribers of the demo: those of the file, those that only the CRM has, and those that moved, as the CRM
    has them. `invalid` rows of the file are spoilt, `duplicates` are second rows of a subscriber."""

    in_file: Sequence[Person]
    added: Sequence[Person]
    moved: Sequence[Person]
    invalid: int
    duplicates: int

    @property
    def in_crm(self) -> list[Person]:
        """All subscribers as the CRM has them."""
        return [*self.moved, *self.in_file[len(self.moved) :], *self.added]


def draw_data(rows: int, seed: int) -> DemoData:
    """Return the subscribers for a file of so many rows; the same seed draws the same ones."""
    invalid, duplicates = max(2, rows * 3 // 100), max(2, rows * 3 // 100)
    count = rows - invalid - duplicates
    people = list(islice(draw_people(Random(seed)), count + _ADDED))  # noqa: S311 - made-up rows need no secrets
    moved = [
        replace(person, country="IS", city=_NEW_TOWN, state="", zip="400", line1="Aðalstræti 1")
        for person in people[: min(_MOVED, count)]
    ]
    return DemoData(people[:count], people[count:], moved, invalid, duplicates)


def write_people(path: Path, data: DemoData) -> None:
    """Write the file as a spreadsheet saves it (UTF-8 with a BOM), with spoilt rows in between and the second rows of
    subscribers, in capitals, at the end."""
    rows = [
        [
            person.email, person.first_name, person.last_name, person.gender, person.phone, ",".join(person.tags),
            person.client_user_id, person.country, person.city, person.state, person.zip, person.line1, person.birthday,
        ]
        for person in data.in_file
    ]  # fmt: skip
    second_rows = [[cells[0].upper(), *cells[1:]] for cells in rows[: data.duplicates]]
    for number in range(data.invalid):
        email, birthday = ("not an address", "") if number % 2 else (f"spoilt{number}@example.com", "1990-02-30")
        rows.insert(number * 7, [email, *[""] * 11, birthday])
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ("Email Address", "First Name", "Last Name", "Gender", "Phone Number", "Tags", "Client User ID", "Country",
             "City", "State", "Zip", "Address Line 1", "Birthday")
        )  # fmt: skip
        writer.writerows(rows + second_rows)


def write_crm(path: Path, people: Sequence[Person]) -> None:
    """Write the CRM, a new SQLite database with one table."""
    rows = [
        (
            person.client_user_id, person.email, person.first_name, person.last_name,
            {"female": "F", "male": "M"}.get(person.gender), person.phone or None, "|".join(person.tags),
            person.country, person.city, person.state or None, person.zip, person.line1,
            date.fromisoformat(person.birthday).strftime("%d/%m/%Y") if person.birthday else None,
        )
        for person in people
    ]  # fmt: skip
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "create table customers (customer_number text primary key, email_address text, fname text, lname text,"
            " sex text, phone text, segments text, country_code text, town text, region text, postcode text,"
            " street text, dob text)"
        )
        marks = ", ".join("?" * 13)
        database.executemany(f"insert into customers values ({marks})", rows)  # noqa: S608 - marks


# the story


@dataclass(frozen=True, slots=True)
class Check:
    """A claim, whether it is true, and the figures behind it."""

    claim: str
    is_true: bool
    details: str


def run_story(folder: Path, rows: int, seed: int, run: RunFlow, console: PlainConsole) -> list[Check]:
    """Do all of it in `folder`, showing each step on `console`; returns what was checked at the end."""
    data, people = draw_data(rows, seed), folder / "people.csv"
    write_people(people, data)
    write_crm(folder / "crm.db", data.in_crm)
    (folder / "crm.yaml").write_text(_CRM_JOB, encoding="utf-8")
    (folder / "warehouse.yaml").write_text(_WAREHOUSE_JOB, encoding="utf-8")
    with SandboxProcess(data=folder / "service", seed=seed, **FAULTS) as sandbox:
        environ = {
            "CONNECTOR_BASE_URL": sandbox.base_url,
            "CONNECTOR_TOKEN": sandbox.token,
            "CONNECTOR_STATE_DIR": str(folder / "state"),
        }
        settings = read_settings(environ, account="demo")
        console.write_text(f"A service of our own runs at {sandbox.base_url}; one create in 25 goes wrong there.\n")
        imported = _import(people, settings, run)
        _show(console, imported, f"1. import people.csv: {rows:,} rows, some of them spoilt")
        again = _import(people, settings, run)
        _show(console, again, "2. the same import again")
        crm = plan_sync(load_job(folder / "crm.yaml", os.environ), settings)
        synced = run(lambda stop, progress: run_load(crm, stop, progress))
        _show(console, synced, f"3. sync from a CRM: {_ADDED} subscribers added, {len(data.moved)} moved")
        warehouse = plan_export_job(load_job(folder / "warehouse.yaml", os.environ), settings)
        exported = run(lambda stop, progress: run_export(warehouse, stop, progress))
        _show(console, exported, "4. export to warehouse.duckdb")
        stored = [event for event in sandbox.truth()["events"] if event["kind"] == "created"]
    return list(_check(data, folder, stored, imported, again, synced, exported))


def _import(people: Path, settings: Settings, run: RunFlow) -> Report:
    options = {"base_name": BASE_NAME, "active": True, "quiet_period_s": 1.0}
    plan = plan_import(build_import_job(people, people.stem, options, spell_argument=str), settings)
    return run(lambda stop, progress: run_load(plan, stop, progress))


def _show(console: PlainConsole, report: Report, title: str) -> None:
    show_report(report.as_json(), console, title=title)
    for message in report.messages:
        console.write_text(f"  {message}", "dim")
    console.print()


def _check(
    data: DemoData,
    folder: Path,
    stored: list[dict[str, Any]],
    imported: Report,
    again: Report,
    synced: Report,
    exported: Report,
) -> Iterator[Check]:
    """Yield five checks, each against what the service really stored."""
    first = {"created": len(data.in_file), "invalid": data.invalid, "duplicate": data.duplicates}
    second = {"created": 0, "unknown": 0, "exists": len(data.in_file)}
    found = [{name: report.rows[name] for name in wanted} for report, wanted in ((imported, first), (again, second))]
    claim = "the import created each subscriber of the file, and the same import again created nobody"
    yield Check(claim, found == [first, second], f"{found[0]['created']:,} created, then {found[1]['created']}")

    emails = sorted(normalise_email(event["email"]) for event in stored)
    is_once = emails == sorted({normalise_email(person.email) for person in data.in_crm})
    lost = sum(event["answered"] != "answered" for event in stored)
    claim = "the service has every subscriber once, though answers were lost"
    yield Check(claim, is_once and lost > 0, f"{len(stored):,} creates, {lost} of their answers lost")

    listed = set[str]()
    if synced.drift_file is not None:
        with Path(synced.drift_file).open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        listed = {normalise_email(line["identity"]) for line in lines if line["source"] == _NEW_TOWN}
    created, changed = synced.rows["created"], synced.rows["changed"]
    is_listed = listed == {normalise_email(person.email) for person in data.moved}
    is_true = is_listed and (created, changed) == (len(data.added), len(data.moved))
    claim = "the sync created those whom the CRM added, and listed those who moved in the drift file"
    yield Check(claim, is_true, f"{created} created, {len(listed)} listed")

    ledger = f"{(folder / 'state' / 'ledger.db').as_uri()}?mode=ro"
    with closing(sqlite3.connect(ledger, uri=True)) as database:
        entries = database.execute("SELECT subscriber_id, state FROM entry").fetchall()
    is_true = sorted(entries) == sorted((event["id"], _CONFIRMED) for event in stored)
    yield Check("the ledger knows each of them by the service's id", is_true, f"{len(entries):,} entries")

    query = "select id, email, first_name, last_name, address_city, address_zip, birthday from subscribers"
    with duckdb.connect(str(folder / "warehouse.duckdb"), read_only=True) as database:
        rows = database.execute(query).fetchall()
    expected = []
    for subscriber in (event["subscriber"] for event in stored):
        address = subscriber.get("Address", {})
        names = [subscriber.get(name) for name in ("Id", "Email", "FirstName", "LastName")]
        expected.append([*names, address.get("City"), address.get("Zip"), subscriber.get("Birthday")])
    shown = [
        sorted(["" if value is None else str(value) for value in row] for row in side) for side in (rows, expected)
    ]
    verdict = (exported.certificate or {}).get("verdict")
    claim = "the warehouse has the same subscribers, field by field, and the export is certified"
    yield Check(claim, verdict == "complete" and shown[0] == shown[1], f"{len(rows):,} rows, {verdict}")
