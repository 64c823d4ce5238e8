"""Imports and plans from Python, as `connector import` and `connector plan` make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from connector.choices import IDENTITIES, ZIP_POLICIES
from connector.errors import ConfigurationError
from connector.imports.flow import LoadPlan, run_load
from connector.imports.plan import RowOptions, name_load, plan_rows
from connector.library.threads import collect_settings, run_flow
from connector.load.session import LoadPolicy
from connector.planned_rows import check_rows_path
from connector.row_files import read_corrections
from connector.sources.files import open_file, open_files
from connector.sources.frames import ArrowStream, open_rows
from connector.subscribers.rules import ValidationRules

if TYPE_CHECKING:
    import pandas as pd

    from connector.report import Report
    from connector.rows import Source
    from connector.service.settings import Token
    from connector.settings import Settings

FileFormat = Literal["auto", "csv", "tsv", "excel", "parquet", "jsonl"]
Identity = Literal["email", "client_user_id"]
ZipPolicy = Literal["omit", "reject", "custom_field1", "custom_field2", "custom_field3"]


class _FileOptions(TypedDict):
    format: str
    encoding: str
    delimiter: str
    sheet: str | None


_MOST_AT_ONCE = 1000
_HIGHEST_RATE = 100_000


def import_subscribers(
    rows: str | PathLike[str] | pd.DataFrame | ArrowStream,
    *,
    base_id: int | None = None,
    base_name: str | None = None,
    active: bool | None = None,
    mapping: Mapping[str, str] | None = None,
    identity: Identity = "email",
    zip: ZipPolicy = "omit",  # noqa: A002 - the option's name
    limit: int | None = None,
    name: str = "frame",
    format: FileFormat = "auto",  # noqa: A002 - the option's name
    encoding: str = "auto",
    delimiter: str = "auto",
    sheet: str | None = None,
    on_unknown: Literal["resend", "hold"] = "resend",
    look: Literal["auto", "none"] = "auto",
    accept_cut_off_possible: bool = False,
    quiet_period_s: float = 30.0,
    max_concurrency: int = 512,
    max_rate: float | None = None,
    wait_s: float = 0.0,
    time_limit_s: float | None = None,
    base_url: str | None = None,
    token: str | Token | None = None,
    authorization: str = "{token}",
    timeout_s: float = 30.0,
    proxy: str | None = None,
    account: str | None = None,
    state_dir: str | PathLike[str] | None = None,
    ledger: str | None = None,
) -> Report:
    """Create the subscribers that are not there yet, as `connector import` does, and return the report.

    `rows` is a path, pattern or URL of what the sources read (CSV, Excel, Parquet, JSON Lines, packed), a DataFrame, or
    Arrow data: a table, a reader (read once), a frame of Polars. `name` is what reports call rows in memory.
    `base_id` or `base_name` says the base, and `active` whether all are active; without it a column must say so.
    Columns are recognised by their headers; `mapping` says more: `{"email": "E-mail address"}`, by field, with "" for a
    field that no column fills. `format`, `encoding`, `delimiter` and `sheet` speak of a file. `quiet_period_s` is the
    wait before absence can be proved, `wait_s` the time to wait for another run that holds the ledger, and
    `time_limit_s` ends a longer run in order; all in seconds. `max_rate` is in creates a second.

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
    settings = collect_settings(
        base_url=base_url,
        token=token,
        authorization=authorization,
        timeout_s=timeout_s,
        proxy=proxy,
        account=account,
        state_dir=state_dir,
        ledger=ledger,
        time_limit_s=time_limit_s,
    )
    policy = _build_policy(
        on_unknown, look, accept_cut_off_possible, quiet_period_s, max_concurrency, max_rate, identity
    )
    options = RowOptions(base_id, base_name, mapping or {}, active)
    file: _FileOptions = {"format": format, "encoding": encoding, "delimiter": delimiter, "sheet": sheet}
    plan = _plan(rows, name, file, options, identity, zip, limit, policy, settings, wait_s)
    return run_flow(lambda stop, progress: run_load(plan, stop, progress), time_limit_s)


def plan_subscribers(
    rows: str | PathLike[str] | pd.DataFrame | ArrowStream,
    *,
    base_id: int | None = None,
    base_name: str | None = None,
    active: bool | None = None,
    mapping: Mapping[str, str] | None = None,
    identity: Identity = "email",
    zip: ZipPolicy = "omit",  # noqa: A002 - the option's name
    limit: int | None = None,
    name: str = "frame",
    format: FileFormat = "auto",  # noqa: A002 - the option's name
    encoding: str = "auto",
    delimiter: str = "auto",
    sheet: str | None = None,
    rows_path: str | PathLike[str] | None = None,
    list_rows: bool = False,
    time_limit_s: float | None = None,
    base_url: str | None = None,
    token: str | Token | None = None,
    authorization: str = "{token}",
    timeout_s: float = 30.0,
    proxy: str | None = None,
    account: str | None = None,
    state_dir: str | PathLike[str] | None = None,
    ledger: str | None = None,
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
    path = Path(rows_path) if rows_path is not None else None
    check_rows_path(path, None)
    settings = collect_settings(
        base_url=base_url,
        token=token,
        authorization=authorization,
        timeout_s=timeout_s,
        proxy=proxy,
        account=account,
        state_dir=state_dir,
        ledger=ledger,
        time_limit_s=time_limit_s,
        is_writing=False,
    )
    options = RowOptions(base_id, base_name, mapping or {}, active)
    file: _FileOptions = {"format": format, "encoding": encoding, "delimiter": delimiter, "sheet": sheet}
    plan = _plan(rows, name, file, options, identity, zip, limit, LoadPolicy(identity=identity), settings, 0.0)
    plan = replace(plan, command="plan", is_planned=True, rows_path=path, are_rows_reported=list_rows)
    return run_flow(lambda stop, progress: run_load(plan, stop, progress), time_limit_s)


def _plan(
    rows: str | PathLike[str] | pd.DataFrame | ArrowStream,
    name: str,
    file: _FileOptions,
    options: RowOptions,
    identity: str,
    zip_policy: str,
    limit: int | None,
    policy: LoadPolicy,
    settings: Settings,
    wait_s: float,
) -> LoadPlan:
    _check_choice("identity", identity, IDENTITIES)
    _check_choice("zip", zip_policy, ZIP_POLICIES)
    options = _check_rows_said(options)
    if limit is not None and (not isinstance(limit, Integral) or limit < 1):
        raise ConfigurationError(f"limit must be at least 1 row, not {limit!r}")
    if wait_s < 0:
        raise ConfigurationError(f"wait_s must be 0 seconds or more, not {wait_s}")
    source, job = _open(rows, name, file)
    rules = ValidationRules(identity=identity, zip=zip_policy)
    return plan_rows(source, options, rules, policy, settings, job=job, limit=limit, wait_s=wait_s)


def _check_rows_said(options: RowOptions) -> RowOptions:
    """Return them, a whole number of NumPy's as Python's. Raises ConfigurationError for what no command line could say:
    Python checks no types."""
    base_id, base_name = options.base_id, options.base_name
    if (base_id is None) == (base_name is None):
        raise ConfigurationError("name the base that they go to: either base_id or base_name")
    if base_id is not None and (not isinstance(base_id, Integral) or isinstance(base_id, bool) or base_id < 1):
        raise ConfigurationError(f"base_id must be a whole number from 1, not {base_id!r}")
    if base_name is not None and not isinstance(base_name, str):
        raise ConfigurationError(f"base_name must be a text, not {base_name!r}")
    if options.is_active is not None and type(options.is_active) is not bool:
        raise ConfigurationError(f"active must be True or False, not {options.is_active!r}")
    return replace(options, base_id=None if options.base_id is None else int(options.base_id))


def _open(rows: str | PathLike[str] | pd.DataFrame | ArrowStream, name: str, file: _FileOptions) -> tuple[Source, str]:
    """The rows as a source, and the name of their run."""
    if not isinstance(rows, str | PathLike):
        if any(said not in ("auto", None) for said in file.values()):
            raise ConfigurationError("format, encoding, delimiter and sheet speak of a file: leave them out")
        return read_corrections(open_rows(rows, name)), name

    return read_corrections(open_files(rows, lambda path: open_file(path, **file))), name_load(rows)


def _build_policy(
    on_unknown: Literal["resend", "hold"],
    look: str,
    accept_cut_off_possible: bool,
    quiet_period_s: float,
    max_concurrency: int,
    max_rate: float | None,
    identity: str,
) -> LoadPolicy:
    _check_choice("on_unknown", on_unknown, ("resend", "hold"))
    _check_choice("look", look, ("auto", "none"))
    if not 0 <= quiet_period_s < inf:
        raise ConfigurationError(f"quiet_period_s must be 0 seconds or more, not {quiet_period_s}")
    if not 1 <= max_concurrency <= _MOST_AT_ONCE:
        raise ConfigurationError(f"max_concurrency must be from 1 to {_MOST_AT_ONCE:,}, not {max_concurrency}")
    if max_rate is not None and not 0 < max_rate <= _HIGHEST_RATE:
        raise ConfigurationError(f"max_rate must be more than 0 and at most {_HIGHEST_RATE:,} a second, not {max_rate}")
    return LoadPolicy(
        identity=identity,
        max_concurrency=max_concurrency,
        max_rate=inf if max_rate is None else max_rate,
        on_unknown=on_unknown,
        quiet_period_s=quiet_period_s,
        is_looking=look == "auto",
        accepts_cut_off_possible=accept_cut_off_possible,
    )


def _check_choice(argument: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise ConfigurationError(f"{argument} {given!r} is not known; give {', '.join(choices)}")
