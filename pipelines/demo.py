"""The demo: starts a sandbox that loses answers, imports a file twice, syncs, exports, and checks five claims about the
service, the ledger and the warehouse."""

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
"""About one create in 25 fails or loses its answer. The sandbox executes more than half of these creates."""

_CONFIRMED_STATE = 4  # State.CONFIRMED in the file of the ledger, which the demo reads as another program would
_ADDED_COUNT, _CHANGED_COUNT = 120, 80  # subscribers that the CRM has added and changed since the file was written
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
    """The subscribers of the demo. `file_people` are in the file, and `added_people` only in the CRM. `changed_people`
    are in the file, and have a new address in the CRM. The file also has `invalid_count` rows with errors, and
    `duplicate_count` second rows of subscribers."""

    file_people: Sequence[Person]
    added_people: Sequence[Person]
    changed_people: Sequence[Person]
    invalid_count: int
    duplicate_count: int

    @property
    def crm_people(self) -> list[Person]:
        """All subscribers with the values that the CRM has."""
        return [*self.changed_people, *self.file_people[len(self.changed_people) :], *self.added_people]


def draw_data(row_count: int, seed: int) -> DemoData:
    """Return the subscribers for a file with this number of rows. The same seed gives the same subscribers."""
    invalid_count, duplicate_count = max(2, row_count * 3 // 100), max(2, row_count * 3 // 100)
    subscriber_count = row_count - invalid_count - duplicate_count
    people = list(islice(draw_people(Random(seed)), subscriber_count + _ADDED_COUNT))  # noqa: S311 - made-up rows need no secrets
    changed_people = [
        replace(person, country="IS", city=_NEW_TOWN, state="", zip="400", line1="Aðalstræti 1")
        for person in people[: min(_CHANGED_COUNT, subscriber_count)]
    ]
    return DemoData(
        people[:subscriber_count], people[subscriber_count:], changed_people, invalid_count, duplicate_count
    )


def write_people(path: Path, data: DemoData) -> None:
    """Write the file as a spreadsheet program saves a CSV file (UTF-8 with a BOM). Some of the first rows are invalid.
    The last rows are second rows of some subscribers, with the address in capitals."""
    rows = [
        [
            person.email, person.first_name, person.last_name, person.gender, person.phone, ",".join(person.tags),
            person.client_user_id, person.country, person.city, person.state, person.zip, person.line1, person.birthday,
        ]
        for person in data.file_people
    ]  # fmt: skip
    repeated_rows = [[cells[0].upper(), *cells[1:]] for cells in rows[: data.duplicate_count]]
    for index in range(data.invalid_count):
        email, birthday = ("not an address", "") if index % 2 else (f"spoilt{index}@example.com", "1990-02-30")
        rows.insert(index * 7, [email, *[""] * 11, birthday])
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ("Email Address", "First Name", "Last Name", "Gender", "Phone Number", "Tags", "Client User ID", "Country",
             "City", "State", "Zip", "Address Line 1", "Birthday")
        )  # fmt: skip
        writer.writerows(rows + repeated_rows)


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
        parameter_marks = ", ".join("?" * 13)
        database.executemany(f"insert into customers values ({parameter_marks})", rows)  # noqa: S608 - only "?"


# the steps and checks of the demo


@dataclass(frozen=True, slots=True)
class DemoCheck:
    """A claim, whether the claim is true, and the figures that show this."""

    claim: str
    is_true: bool
    details: str


def run_demo(folder: Path, row_count: int, seed: int, run: RunFlow, console: PlainConsole) -> list[DemoCheck]:
    """Run all steps of the demo in `folder`, show each step on `console`, and return the checks."""
    data, people_path = draw_data(row_count, seed), folder / "people.csv"
    write_people(people_path, data)
    write_crm(folder / "crm.db", data.crm_people)
    (folder / "crm.yaml").write_text(_CRM_JOB, encoding="utf-8")
    (folder / "warehouse.yaml").write_text(_WAREHOUSE_JOB, encoding="utf-8")
    with SandboxProcess(data_folder=folder / "service", seed=seed, **FAULTS) as sandbox:
        environ = {
            "CONNECTOR_BASE_URL": sandbox.base_url,
            "CONNECTOR_TOKEN": sandbox.token,
            "CONNECTOR_STATE_DIR": str(folder / "state"),
        }
        settings = read_settings(environ, account="demo")
        console.write_text(f"The sandbox runs at {sandbox.base_url}. One create in 25 fails or loses its answer.\n")
        first_import_report = _import_people(people_path, settings, run)
        _show_report(console, first_import_report, f"1. import people.csv: {row_count:,} rows, some of them invalid")
        second_import_report = _import_people(people_path, settings, run)
        _show_report(console, second_import_report, "2. the same import again")
        sync_plan = plan_sync(load_job(folder / "crm.yaml", os.environ), settings)
        sync_report = run(lambda stop, progress: run_load(sync_plan, stop, progress))
        _show_report(
            console,
            sync_report,
            f"3. sync from a CRM: {_ADDED_COUNT} subscribers added, {len(data.changed_people)} changed",
        )
        export_plan = plan_export_job(load_job(folder / "warehouse.yaml", os.environ), settings)
        export_report = run(lambda stop, progress: run_export(export_plan, stop, progress))
        _show_report(console, export_report, "4. export to warehouse.duckdb")
        create_events = [event for event in sandbox.truth()["events"] if event["kind"] == "created"]
    return list(
        _run_checks(data, folder, create_events, first_import_report, second_import_report, sync_report, export_report)
    )


def _import_people(people_path: Path, settings: Settings, run: RunFlow) -> Report:
    options = {"base_name": BASE_NAME, "active": True, "quiet_period_s": 1.0}
    plan = plan_import(build_import_job(people_path, people_path.stem, options, format_argument=str), settings)
    return run(lambda stop, progress: run_load(plan, stop, progress))


def _show_report(console: PlainConsole, report: Report, title: str) -> None:
    show_report(report.as_json(), console, title=title)
    for message in report.messages:
        console.write_text(f"  {message}", "dim")
    console.print()


def _run_checks(
    data: DemoData,
    folder: Path,
    create_events: list[dict[str, Any]],
    first_import_report: Report,
    second_import_report: Report,
    sync_report: Report,
    export_report: Report,
) -> Iterator[DemoCheck]:
    """Yield the results of five checks, which compare the service with the reports, the ledger and the warehouse."""
    first_import_counts = {
        "created": len(data.file_people),
        "invalid": data.invalid_count,
        "duplicate": data.duplicate_count,
    }
    second_import_counts = {"created": 0, "unknown": 0, "exists": len(data.file_people)}
    row_counts = [
        {name: report.rows[name] for name in expected_counts}
        for report, expected_counts in (
            (first_import_report, first_import_counts),
            (second_import_report, second_import_counts),
        )
    ]
    claim = "the first import created each subscriber of the file, and the second import created nobody"
    yield DemoCheck(
        claim,
        row_counts == [first_import_counts, second_import_counts],
        f"{row_counts[0]['created']:,} created, then {row_counts[1]['created']}",
    )

    emails = sorted(normalise_email(event["email"]) for event in create_events)
    has_each_subscriber_once = emails == sorted({normalise_email(person.email) for person in data.crm_people})
    lost_create_count = sum(event["answered"] != "answered" for event in create_events)
    claim = "the service has every subscriber once, although answers were lost"
    yield DemoCheck(
        claim,
        has_each_subscriber_once and lost_create_count > 0,
        f"{len(create_events):,} creates, {lost_create_count} of their answers lost",
    )

    drifted_emails = set[str]()
    if sync_report.drift_file is not None:
        with Path(sync_report.drift_file).open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        drifted_emails = {normalise_email(line["identity"]) for line in lines if line["source"] == _NEW_TOWN}
    created_count, changed_count = sync_report.rows["created"], sync_report.rows["changed"]
    is_drift_complete = drifted_emails == {normalise_email(person.email) for person in data.changed_people}
    is_true = is_drift_complete and (created_count, changed_count) == (len(data.added_people), len(data.changed_people))
    claim = "the sync created the added subscribers, and the drift file has the changed subscribers"
    yield DemoCheck(claim, is_true, f"{created_count} created, {len(drifted_emails)} listed")

    ledger_uri = f"{(folder / 'state' / 'ledger.db').as_uri()}?mode=ro"
    with closing(sqlite3.connect(ledger_uri, uri=True)) as database:
        entries = database.execute("SELECT subscriber_id, state FROM entry").fetchall()
    is_true = sorted(entries) == sorted((event["id"], _CONFIRMED_STATE) for event in create_events)
    yield DemoCheck("the ledger has the id of each subscriber in the service", is_true, f"{len(entries):,} entries")

    query = "select id, email, first_name, last_name, address_city, address_zip, birthday from subscribers"
    with duckdb.connect(str(folder / "warehouse.duckdb"), read_only=True) as database:
        rows = database.execute(query).fetchall()
    expected_rows = []
    for subscriber in (event["subscriber"] for event in create_events):
        address = subscriber.get("Address", {})
        top_level_values = [subscriber.get(name) for name in ("Id", "Email", "FirstName", "LastName")]
        expected_rows.append([*top_level_values, address.get("City"), address.get("Zip"), subscriber.get("Birthday")])
    sorted_rows = [
        sorted(["" if value is None else str(value) for value in row] for row in compared_rows)
        for compared_rows in (rows, expected_rows)
    ]
    verdict = (export_report.certificate or {}).get("verdict")
    claim = "the warehouse has the same subscribers with the same values, and the export is certified"
    yield DemoCheck(claim, verdict == "complete" and sorted_rows[0] == sorted_rows[1], f"{len(rows):,} rows, {verdict}")
