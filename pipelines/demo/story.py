"""The demo: a made-up service with faults, an import, the same import again, a sync, an export, and the reckoning."""

import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from connector.sandbox import SandboxProcess
from connector.validation import Rules
from pipelines.demo.crm import ExpectedCrm, write_crm
from pipelines.demo.people import Expected, write_people
from pipelines.demo.reckoning import Check, Told, check_all
from pipelines.demo.warehouse import count_by_country
from pipelines.exporting import plan_export_job, run_export
from pipelines.jobs import Load, load_job, override_load
from pipelines.jobs.conversion import build_policy
from pipelines.loads.loading import run_load
from pipelines.loads.planning import FileOptions, Reading, plan_import, plan_sync
from pipelines.runs.progress import Progress
from pipelines.runs.report import Report
from pipelines.runs.showing import show_report
from pipelines.runs.stopping import Stop
from pipelines.settings import SettingOptions, Settings, read_settings

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
Run = Callable[[Flow], Report]


@dataclass(frozen=True, slots=True)
class Places:
    """The files that the demo leaves behind, all in one folder."""

    people: Path
    crm: Path
    crm_job: Path
    warehouse: Path
    warehouse_job: Path
    state: Path
    service: Path


_NAMES = ("people.csv", "crm.db", "crm.yaml", "warehouse.duckdb", "warehouse.yaml", "state", "service")


def tell_story(folder: Path, people: int, seed: int, run: Run, console: Console) -> list[Check]:
    """Do all of it in `folder`, showing each step on `console`; returns what was checked at the end."""
    places = Places(*(folder / name for name in _NAMES))
    with SandboxProcess(data=places.service, seed=seed, **FAULTS) as sandbox:
        settings = _settings_for(sandbox, places)
        console.print(
            f"A service of our own runs at {sandbox.base_url}; one create in 25 goes wrong there.\n", soft_wrap=True
        )
        expected = write_people(places.people, people, seed)
        imported = _import(places, settings, run)
        _show(console, imported, f"1. import {places.people.name}: {people:,} people, some of them spoilt")
        again = _import(places, settings, run)
        _show(console, again, "2. the same import again")
        crm, synced = _sync(places, settings, expected, seed, run)
        _show(console, synced, f"3. sync from a CRM: {_ADDED} people added, {_CHANGED} changed")
        exported = _export(places, settings, run)
        _show(console, exported, f"4. export to {places.warehouse.name}")
        _show_countries(console, places.warehouse)
        told = Told(expected, crm, imported, again, synced, exported)
        return check_all(told, sandbox, places.state / "ledger.db", places.warehouse, folder)


def _settings_for(sandbox: SandboxProcess, places: Places) -> Settings:
    environ = {
        "CONNECTOR_BASE_URL": sandbox.base_url,
        "CONNECTOR_TOKEN": sandbox.token,
        "CONNECTOR_STATE_DIR": str(places.state),
    }
    return replace(read_settings(environ, None, SettingOptions()), account="demo")


def _import(places: Places, settings: Settings, run: Run) -> Report:
    rules = Rules()
    policy = build_policy(override_load(Load(), {"quiet_period": "1s"}), rules)
    options = FileOptions(base_name=BASE_NAME)
    plan = plan_import(places.people, options, rules, policy, settings, reading=Reading(), wait_s=0)
    return run(lambda stop, progress: run_load(plan, stop, progress))


def _sync(places: Places, settings: Settings, expected: Expected, seed: int, run: Run) -> tuple[ExpectedCrm, Report]:
    crm = write_crm(places.crm, expected.people, added=_ADDED, changed=_CHANGED, seed=seed)
    places.crm_job.write_text(_CRM_JOB, encoding="utf-8")
    plan = plan_sync(load_job(places.crm_job, os.environ), settings, limit=None, wait_s=0)
    return crm, run(lambda stop, progress: run_load(plan, stop, progress))


def _export(places: Places, settings: Settings, run: Run) -> Report:
    places.warehouse_job.write_text(_WAREHOUSE_JOB, encoding="utf-8")
    plan = plan_export_job(load_job(places.warehouse_job, os.environ), settings)
    return run(lambda stop, progress: run_export(plan, stop, progress))


def _show(console: Console, report: Report, title: str) -> None:
    show_report(report, console, title=title)
    for message in report.messages:
        console.print(f"  {message}", style="dim", soft_wrap=True)
    console.print()


def _show_countries(console: Console, warehouse: Path) -> None:
    counts = ", ".join(f"{country or 'unknown'} {number}" for country, number in count_by_country(warehouse, 8))
    console.print(f"Most people by country, asked of the warehouse: {counts}\n", soft_wrap=True)
