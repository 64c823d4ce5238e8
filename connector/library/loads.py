"""Imports and plans from Python, as `connector import` and `connector plan` make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from connector.choices import IDENTITIES, ZIP_POLICIES
from connector.errors import ConfigurationError
from connector.imports.flow import LoadPlan, run_load
from connector.imports.plan import RowOptions, name_load, plan_rows
from connector.library.threads import RunOptions, collect_settings, refuse_unknown, run_flow
from connector.load.session import LoadPolicy
from connector.planned_rows import check_rows_path
from connector.row_files import read_corrections
from connector.sources.columnar import ArrowStream, open_rows
from connector.sources.files import open_file, open_files
from connector.subscribers.rules import ValidationRules

if TYPE_CHECKING:
    import pandas as pd

    from connector.report import Report
    from connector.settings import Settings

_FILE_KEYS = ("format", "encoding", "delimiter", "sheet")


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


_MOST_AT_ONCE = 1000
_HIGHEST_RATE = 100_000


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
    plan = _plan(rows, options, _build_policy(options), settings, options.get("wait_s", 0.0))
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
    plan = _plan(rows, options, LoadPolicy(identity=options.get("identity", "email")), settings)
    plan = replace(plan, command="plan", is_planned=True, rows_path=path, are_rows_reported=list_rows)
    return run_flow(lambda stop, progress: run_load(plan, stop, progress), settings.time_limit_s)


def _plan(
    rows: str | PathLike[str] | pd.DataFrame | ArrowStream,
    options: LoadOptions,
    policy: LoadPolicy,
    settings: Settings,
    wait_s: float = 0.0,
) -> LoadPlan:
    """Return the load of these rows. Raises ConfigurationError for what no command line could say: Python checks no
    types."""
    identity, zip_policy = options.get("identity", "email"), options.get("zip", "omit")
    values: Mapping[str, Any] = {**options}
    base_id, base_name, active, limit = (values.get(name) for name in ("base_id", "base_name", "active", "limit"))
    _check_choice("identity", identity, IDENTITIES)
    _check_choice("zip", zip_policy, ZIP_POLICIES)
    if (base_id is None) == (base_name is None):
        raise ConfigurationError("name the base that they go to: either base_id or base_name")
    if base_id is not None and (isinstance(base_id, bool) or not isinstance(base_id, Integral) or base_id < 1):
        raise ConfigurationError(f"base_id must be a whole number from 1, not {base_id!r}")
    if base_name is not None and not isinstance(base_name, str):
        raise ConfigurationError(f"base_name must be a text, not {base_name!r}")
    if active is not None and type(active) is not bool:
        raise ConfigurationError(f"active must be True or False, not {active!r}")
    if limit is not None and (not isinstance(limit, Integral) or limit < 1):
        raise ConfigurationError(f"limit must be at least 1 row, not {limit!r}")
    if wait_s < 0:
        raise ConfigurationError(f"wait_s must be 0 seconds or more, not {wait_s}")
    file: dict[str, Any] = {key: value for key, value in options.items() if key in _FILE_KEYS}
    if isinstance(rows, str | PathLike):
        source, job = open_files(rows, lambda path: open_file(path, **file)), name_load(rows)
    elif any(value not in ("auto", None) for value in file.values()):
        raise ConfigurationError("format, encoding, delimiter and sheet speak of a file: leave them out")
    else:
        job = options.get("name", "frame")
        source = open_rows(rows, job)
    base_id, limit = (None if number is None else int(number) for number in (base_id, limit))  # NumPy's become Python's
    ignored = tuple(options.get("ignore", ()))
    said = RowOptions(base_id, base_name, options.get("mapping") or {}, active, ignored)
    rules = ValidationRules(identity=identity, zip=zip_policy)
    return plan_rows(read_corrections(source), said, rules, policy, settings, job=job, limit=limit, wait_s=wait_s)


def _build_policy(options: ImportOptions) -> LoadPolicy:
    on_unknown, look = options.get("on_unknown", "resend"), options.get("look", "auto")
    quiet_period_s, max_rate = options.get("quiet_period_s", 30.0), options.get("max_rate")
    max_concurrency = options.get("max_concurrency", 512)
    _check_choice("on_unknown", on_unknown, ("resend", "hold"))
    _check_choice("look", look, ("auto", "none"))
    if not 0 <= quiet_period_s < inf:
        raise ConfigurationError(f"quiet_period_s must be 0 seconds or more, not {quiet_period_s}")
    if not 1 <= max_concurrency <= _MOST_AT_ONCE:
        raise ConfigurationError(f"max_concurrency must be from 1 to {_MOST_AT_ONCE:,}, not {max_concurrency}")
    if max_rate is not None and not 0 < max_rate <= _HIGHEST_RATE:
        raise ConfigurationError(f"max_rate must be more than 0 and at most {_HIGHEST_RATE:,} a second, not {max_rate}")
    return LoadPolicy(
        identity=options.get("identity", "email"),
        max_concurrency=max_concurrency,
        max_rate=inf if max_rate is None else max_rate,
        on_unknown=on_unknown,
        quiet_period_s=quiet_period_s,
        is_looking=look == "auto",
        accepts_cut_off_possible=options.get("accept_cut_off_possible", False),
        ignores_total_count=options.get("ignore_total_count", False),
    )


def _check_choice(argument: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise ConfigurationError(f"{argument} {given!r} is not known; give {', '.join(choices)}")
