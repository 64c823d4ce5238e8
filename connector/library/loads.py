"""Imports and plans from Python, as `connector import` and `connector plan` make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from connector.errors import ConfigurationError
from connector.imports.flow import run_load
from connector.imports.plan import LoadPlan
from connector.jobs.arguments import FILE_ARGUMENTS, build_import_job, name_import
from connector.jobs.load_planner import RunRequest, plan_import
from connector.library.threads import RunOptions, collect_settings, refuse_unknown, run_flow
from connector.planned_rows import check_rows_path
from connector.sources.columnar import ArrowStream, open_rows

if TYPE_CHECKING:
    import pandas as pd

    from connector.report import Report
    from connector.settings import Settings


class LoadOptions(RunOptions, total=False):
    """What to load, and how to read it."""

    base_id: int | None
    base_name: str | None
    active: bool | None
    mapping: Mapping[str, str] | None
    ignore: Sequence[str]
    identity: Literal["email", "client_user_id"]
    zip: Literal["omit", "reject", "custom_field1", "custom_field2", "custom_field3"]
    limit: int | None
    name: str
    format: Literal["auto", "csv", "tsv", "excel", "parquet", "jsonl"]
    encoding: str
    delimiter: str
    sheet: str | None


class ImportOptions(LoadOptions, total=False):
    """What to load, and how to send it."""

    on_unknown: Literal["resend", "hold"]
    look: Literal["auto", "none"]
    accept_cut_off_possible: bool
    ignore_total_count: bool
    quiet_period_s: float
    max_concurrency: int
    max_rate: float | None
    wait_s: float


def import_subscribers(
    rows: str | PathLike[str] | pd.DataFrame | ArrowStream, **options: Unpack[ImportOptions]
) -> Report:
    """Create the subscribers that are not there yet, as `connector import` does, and return the report.

    `rows` is a path, pattern or URL of what the sources read (CSV, Excel, Parquet, JSON Lines, packed), a DataFrame, or
    Arrow data: a table, a reader (read once), a frame of Polars. `name` is what reports call rows in memory.
    `base_id` or `base_name` says the base, and `active` whether all are active; without it a column must say so.
    Columns are recognised by their headers; `mapping` says more: `{"email": "E-mail address"}`, by field, with "" for a
    field that no column fills. `ignore` has columns that seem to say who wants no email, and mean something else.
    `identity` is "email" by default, and `zip` "omit". `format`, `encoding`, `delimiter`
    ("auto" by default) and `sheet` (the first) describe a file. `on_unknown` is "resend" by default, `look` "auto",
    `quiet_period_s` (the wait before absence can be proved) 30, `max_concurrency` 512, and `wait_s` (the wait for
    another run that holds the ledger) 0; `time_limit_s` ends a longer run in order. `max_rate` is in creates a second.

    What is None of `base_url`, `token`, `state_dir` and `ledger` comes from the environment, as for the commands;
    `account` names the ledger's entries, and is the base URL if not given.

    A run that has begun returns its report, whatever became of it: `report.status` is ok, partial, aborted, locked or
    stopped, and `report.raise_for_status()` raises for the last three. Raises ConfigurationError and SourceError before
    anything is sent. KeyboardInterrupt ends the run in order and is raised when all under way is recorded.

    >>> import pandas
    >>> from connector import import_subscribers
    >>> frame = pandas.DataFrame({"email": ["ann@example.com", "cleo@example.com"], "first_name": ["Ann", "Cleo"]})
    >>> report = import_subscribers(frame, base_id=7, active=True)
    >>> report.status, report.rows["exists"], report.rows["created"]
    ('ok', 1, 1)
    >>> import_subscribers(frame, base_id=7, active=True).rows["exists"]
    2
    """
    refuse_unknown(options, ImportOptions)
    settings = collect_settings(options)
    plan = _plan(rows, options, settings)
    return run_flow(lambda stop, progress: run_load(plan, stop, progress), settings.time_limit_s)


def plan_subscribers(
    rows: str | PathLike[str] | pd.DataFrame | ArrowStream,
    *,
    rows_path: str | PathLike[str] | None = None,
    list_rows: bool = False,
    **options: Unpack[LoadOptions],
) -> Report:
    """Return what `import_subscribers` would do with each row, as `connector plan` does; nothing is sent or written.

    Takes what `import_subscribers` takes. `rows_path` is a new CSV with a line for each row; with `list_rows` the
    report has them in `planned_rows`. The report's `is_planned` is true. Raises as `import_subscribers`.

    >>> from connector import plan_subscribers
    >>> report = plan_subscribers("signups.csv", base_id=7, active=True, list_rows=True)
    >>> report.is_planned, report.rows["created"], report.rows["exists"], report.rows["invalid"]
    (True, 1, 1, 1)
    >>> [(row["_row"], row["_outcome"]) for row in report.planned_rows]
    [(1, 'exists'), (2, 'created'), (3, 'invalid')]
    """
    refuse_unknown(options, LoadOptions)
    path = Path(rows_path) if rows_path is not None else None
    check_rows_path(path, None)
    settings = collect_settings(options, is_writing=False)
    plan = _plan(rows, options, settings)
    plan = replace(plan, command="plan", is_planned=True, rows_path=path, are_rows_reported=list_rows)
    return run_flow(lambda stop, progress: run_load(plan, stop, progress), settings.time_limit_s)


def _plan(rows: str | PathLike[str] | pd.DataFrame | ArrowStream, options: LoadOptions, settings: Settings) -> LoadPlan:
    """Return the load of these rows. Raises ConfigurationError also for values that no command line could give: Python
    checks no types."""
    arguments: dict[str, Any] = {**options}
    for name in ("base_id", "limit"):
        number = arguments.get(name)
        if number is not None and (isinstance(number, bool) or not isinstance(number, Integral) or number < 1):
            raise ConfigurationError(f"{name} must be a whole number from 1, not {number!r}")
        arguments[name] = None if number is None else int(number)  # a number of NumPy becomes Python's
    for name, kind in (("base_name", str), ("active", bool)):
        if not isinstance(arguments.get(name), kind | None):
            raise ConfigurationError(f"{name} must be a {kind.__name__}, not {arguments[name]!r}")
    request = RunRequest(arguments["limit"], arguments.get("wait_s", 0.0))
    if request.wait_s < 0:
        raise ConfigurationError(f"wait_s must be 0 seconds or more, not {request.wait_s}")
    if isinstance(rows, str | PathLike):
        job = build_import_job(rows, name_import(rows), arguments, spell=str)
        return plan_import(job, settings, request)
    if any(arguments.get(name) not in ("auto", None) for name in FILE_ARGUMENTS):
        raise ConfigurationError("format, encoding, delimiter and sheet are for a file: leave them out")
    job = build_import_job(None, options.get("name", "frame"), arguments, spell=str)
    return plan_import(job, settings, request, rows=open_rows(rows, job.name))
