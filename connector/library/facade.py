"""The public class of the library, `Connector`. A method that runs a job does the same as the command with its name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from connector.clock import system_clock
from connector.control import Stop
from connector.errors import ConfigurationError, ConnectorError
from connector.export import run_export
from connector.imports.flow import run_load
from connector.jobs.arguments import (
    FILE_ARGUMENTS,
    build_rows_job,
    choose_import_name,
    format_options,
    override_receipts,
)
from connector.jobs.export_planner import plan_export_job
from connector.jobs.load_planner import RunRequest, plan_import, plan_sync
from connector.jobs.mail_planner import plan_mail
from connector.jobs.models import Job
from connector.jobs.reader import load_job, read_settings
from connector.library import lists
from connector.library.arguments import ConnectorOptions, ImportOptions, RowOptions, SendOptions, SyncOptions
from connector.library.lists import CHUNK_ROWS, ListFilters
from connector.library.threads import (
    Flow,
    make_token,
    override_environ,
    refuse_unknown_options,
    run_flow,
    run_in_thread,
)
from connector.mail.draft import MAX_ATTACHMENT_BYTES, compose_message, parse_recipient, read_attachment
from connector.mail.flow import run_mail
from connector.mail.message import SETTING_NAMES, Header, Message, Recipient
from connector.mail.single import run_send
from connector.notifications import report_failed_start, send_alert
from connector.progress import Progress
from connector.runs.explanations import Explanation, explain_identity
from connector.runs.planned_rows import check_rows_path
from connector.runs.report import Report
from connector.settings import Settings, read_state_location
from connector.sources.columnar import ArrowStream, open_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import pyarrow as pa

    from connector.imports.plan import LoadPlan

_JobOrPath = str | PathLike[str] | Job


class Connector:
    """A service, with the state folder and the ledger of its runs.

    If `base_url`, `token`, `state_dir` or `ledger` is missing, the value comes from the environment. A job can also
    set the base URL. `authorization` is the form of the header ("{token}" by default). `timeout_s` (seconds, 30 by
    default) limits one request. `account` is the name of the account in the ledger (the base URL by default). Methods
    and commands with the same ledger know the same earlier runs.

    A run that has started always returns its report. `report.status` is `ok`, `partial`, `aborted`, `locked` or
    `stopped`. `report.raise_for_status()` raises an error for `aborted`, `locked` and `stopped`. Methods raise
    ConfigurationError and SourceError before anything is sent. KeyboardInterrupt stops a run cleanly, and is raised
    again when all requests in flight are recorded.

    >>> from connector import Connector
    >>> connector = Connector(account="demo")
    >>> connector.read_subscribers(columns=["email"])["email"].tolist()
    ['ann@example.com', 'bob@example.com']
    """

    def __init__(self, **options: Unpack[ConnectorOptions]) -> None:
        refuse_unknown_options(options, ConnectorOptions)
        if (seconds := options.get("timeout_s")) is not None and not seconds > 0:  # nan compares false
            raise ConfigurationError(f"timeout_s must be more than 0 seconds, not {seconds}")
        self._options = options

    def import_file(
        self, rows: str | PathLike[str] | pd.DataFrame | ArrowStream, **options: Unpack[ImportOptions]
    ) -> Report:
        """Create the subscribers that do not exist, like `connector import`.

        `rows` is a path, pattern or URL of files (CSV, Excel, Parquet, JSON, also compressed), a DataFrame, or Arrow
        data (a table, a reader, a Polars frame). A reader can be read only once. For a DataFrame or Arrow data, `name`
        is the name of the source in reports. `base_id` or `base_name` selects the base. `active` sets whether all rows
        are active. Without `active`, a column must show which rows are active. The header of a column decides its
        field. `mapping` overrides the headers by field, as `{"email": "E-mail address"}`, with "" for a field without a
        column. `ignore` lists columns that look like a consent or an opt-out, but mean something else. `identity`
        ("email" by default) is the field that identifies a subscriber. `zip` ("omit" by default) decides what to do
        with a zip code that is not a number. `format`, `encoding`, `delimiter` ("auto" by default) and `sheet` (the
        first visible sheet by default) describe a file. With `job` (the path of a job file, or a `Job`), the rows
        replace the source of the job. The base and the mapping are in the job.

        The defaults of `on_unknown`, `look` and `max_concurrency` are "resend", "auto" and 512. `quiet_period_s` (30 by
        default) is the wait before a subscriber counts as absent. `wait_s` (0 by default) is the wait for another run
        that holds the ledger. `time_limit_s` is the time after which the run stops cleanly. `max_rate` is the maximum
        number of requests per second. `receipts` is the destination of receipts: a folder (such as receipts.parquet) or
        a database URL. The run writes a receipt for each subscriber that it creates, finds changed, or leaves rejected,
        held or unknown.

        >>> import pandas
        >>> from connector import Connector
        >>> frame = pandas.DataFrame({"email": ["ann@example.com", "cleo@example.com"], "first_name": ["Ann", "Cleo"]})
        >>> report = Connector().import_file(frame, base_id=7, active=True)
        >>> report.status, report.rows["exists"], report.rows["created"]
        ('ok', 1, 1)
        >>> Connector().import_file(frame, base_id=7, active=True).rows["exists"]
        2
        """
        refuse_unknown_options(options, ImportOptions)
        plan = self._plan_rows(rows, options)
        return run_flow(lambda stop, progress: run_load(plan, stop, progress), plan.settings.time_limit_s)

    def plan(
        self,
        rows: str | PathLike[str] | Job | pd.DataFrame | ArrowStream,
        *,
        rows_path: str | PathLike[str] | None = None,
        **options: Unpack[RowOptions],
    ) -> Report:
        """Return the report that a load would return, but create no subscriber. `connector plan` does the same.

        `rows` and the options have the meaning of `import_file`. `rows` may also be a job (the path of a job file, or a
        `Job`). Then the load is a `sync`, and only the options `limit` and `time_limit_s` are allowed. `rows_path` is a
        new CSV file for the outcome of each row. `report.is_planned` is true.

        >>> from connector import Connector
        >>> report = Connector().plan("signups.csv", base_id=7, active=True)
        >>> report.is_planned, report.rows["created"], report.rows["exists"], report.rows["invalid"]
        (True, 1, 1, 1)
        """
        refuse_unknown_options(options, RowOptions)
        path = Path(rows_path) if rows_path is not None else None
        check_rows_path(path, None)
        if isinstance(rows, Job) or (isinstance(rows, str | PathLike) and Path(rows).suffix in (".yaml", ".yml")):
            refused_names = [name for name in options if name not in ("limit", "time_limit_s")]
            if refused_names:
                raise ConfigurationError(
                    f"The job has its own base, mapping and rules. Leave out {', '.join(refused_names)}"
                )
            plan = self._plan_sync(rows, {"limit": options.get("limit")}, writes_state=False)
        else:
            plan = self._plan_rows(rows, options, writes_state=False)
        plan = replace(plan, command="plan", is_planned=True, rows_path=path)
        return run_flow(lambda stop, progress: run_load(plan, stop, progress), options.get("time_limit_s"))

    def sync(self, job: _JobOrPath, *, dry_run: bool = False, **options: Unpack[SyncOptions]) -> Report:
        """Load the rows of a job's source, and send the job's alert, like `connector sync`.

        `job` is the path of a job file, or a `Job`. `full` reads all rows again. `since` is a value of the cursor: the
        run reads only rows with this value or a larger value. `limit` is a number of rows. `wait_s` and `time_limit_s`
        are seconds. `receipts` replaces the destination of the job's receipts. With `dry_run`, nothing is sent, and the
        report shows what a run would do. Relative paths in a job file start from its folder. Relative paths in a `Job`
        or in `receipts` start from the current folder.

        >>> from connector import Connector
        >>> report = Connector().sync("crm.yaml")
        >>> report.command, report.status, report.rows["read"]
        ('sync', 'partial', 3)
        >>> Connector().sync("crm.yaml", dry_run=True).is_planned
        True
        """
        refuse_unknown_options(options, SyncOptions)
        with self._record_failed_start("sync", job, is_dry_run=dry_run):
            loaded_job = override_receipts(_load_job(job), options.get("receipts"), format_argument=str)
            plan = replace(self._plan_sync(loaded_job, options, writes_state=not dry_run), is_planned=dry_run)
            return _run_job(loaded_job, plan.settings, lambda stop, progress: run_load(plan, stop, progress))

    def export(self, job: _JobOrPath, *, time_limit_s: float | None = None) -> Report:
        """Copy the list to the destination of a job, and send the job's alert, like `connector export`. `job` is the
        path of a job file, or a `Job`.

        >>> from connector import Connector
        >>> report = Connector().export("export.yaml")
        >>> report.status, report.rows["written"]
        ('ok', 2)
        """
        with self._record_failed_start("export", job):
            loaded_job = _load_job(job)
            settings = self._read_settings(loaded_job, time_limit_s)
            plan = plan_export_job(loaded_job, settings)
            return _run_job(loaded_job, settings, lambda stop, progress: run_export(plan, stop, progress))

    def mail(
        self, job: _JobOrPath, *, limit: int | None = None, wait_s: float = 0.0, time_limit_s: float | None = None
    ) -> Report:
        """Send the email of a job to the recipient of each row, like `connector mail`. Each recipient gets one email of
        the campaign at most.

        `job` is the path of a job file, or a `Job`. The job's alert is also sent.

        >>> from connector import Connector
        >>> report = Connector().mail("mail.yaml", limit=1)
        >>> report.command, report.rows["sent"]
        ('mail', 1)
        """
        with self._record_failed_start("mail", job):
            loaded_job = _load_job(job)
            settings = self._read_settings(loaded_job, time_limit_s)
            plan = plan_mail(loaded_job, settings, row_limit=_check_number("limit", limit), wait_s=_check_wait(wait_s))
            return _run_job(loaded_job, settings, lambda stop, progress: run_mail(plan, stop, progress))

    def send(self, *, to: str | Sequence[str], sender: str, subject: str, **options: Unpack[SendOptions]) -> Report:
        """Send one email, at most once, like `connector send`. `report.email` has the ids of the service's answer.

        Addresses are `ann@example.com` or `Ann Lee <ann@example.com>`, one or several. `html` and `text` are the bodies
        themselves. Without `text`, the HTML is converted to plain text. `attachments` are paths. `inline` has the paths
        of files that the HTML shows as `cid:ID`, by id. No file may be larger than `max_attached_bytes`. `send_at` is
        a time with a time zone. A setting that is None has its default: the email is not tracked, and is signed with
        DKIM.

        The log of runs records the run before the email leaves. `report.email["state"]` is sent, rejected, unknown
        or unsent. Raises ConfigurationError for a message that breaks a rule, and for a refused token.

        >>> from connector import Connector
        >>> report = Connector().send(to="ann@example.com", sender="hello@example.com", subject="Hi", text="Hello")
        >>> report.email["state"], report.rows["sent"]
        ('sent', 1)
        """
        refuse_unknown_options(options, SendOptions)
        message = _compose_message(to, sender, subject, options)
        settings = self._read_settings(None, options.get("time_limit_s"))
        return run_flow(lambda stop, progress: run_send(message, settings, stop, progress), settings.time_limit_s)

    def explain(self, identity: str) -> Explanation:
        """Return the records of one subscriber in the ledger and in the reports of runs, like `connector explain`.

        `identity` is an email address or a client_user_id. `entries` has an entry for each base, in every account of
        the ledger, and `problems` has the open problems of the subscriber's rows. Both are empty if the ledger does not
        know the subscriber. The ledger is only read, without a lock. Raises LedgerError if there is no ledger.

        >>> from connector import Connector
        >>> report = Connector().import_file("signups.csv", base_id=7, active=True)
        >>> (entry,) = Connector().explain("emil@example.com").entries
        >>> entry.state, entry.base_id, entry.run.run_id == report.run_id
        ('confirmed', 7, True)
        """
        return explain_identity(read_state_location(self._build_environ(), writes_state=False), identity)

    @overload
    def read_subscribers(self, *, chunksize: None = ..., **options: Unpack[ListFilters]) -> pd.DataFrame: ...

    @overload
    def read_subscribers(self, *, chunksize: int, **options: Unpack[ListFilters]) -> Iterator[pd.DataFrame]: ...

    def read_subscribers(
        self, *, chunksize: int | None = None, **options: Unpack[ListFilters]
    ) -> pd.DataFrame | Iterator[pd.DataFrame]:
        """Return the list, like `connector.read_subscribers`.

        >>> from connector import Connector
        >>> connector = Connector(timeout_s=10)
        >>> len(connector.read_subscribers(base_id=7))
        2
        """
        arguments: dict[str, Any] = {**self._list_service_options(), **options}
        frame: pd.DataFrame | Iterator[pd.DataFrame] = lists.read_subscribers(chunksize=chunksize, **arguments)
        return frame

    def read_batches(self, *, chunksize: int = CHUNK_ROWS, **options: Unpack[ListFilters]) -> pa.RecordBatchReader:
        """Return the list, like `connector.read_batches`.

        >>> from connector import Connector
        >>> connector = Connector(timeout_s=10)
        >>> connector.read_batches(base_id=7).read_all().num_rows
        2
        """
        arguments: dict[str, Any] = {**self._list_service_options(), **options}
        return lists.read_batches(chunksize=chunksize, **arguments)

    def _list_service_options(self) -> dict[str, Any]:
        return {name: value for name, value in self._options.items() if name not in ("account", "state_dir", "ledger")}

    def _read_settings(self, job: Job | None, time_limit_s: float | None, *, writes_state: bool = True) -> Settings:
        if time_limit_s is not None and not time_limit_s > 0:  # nan compares false
            raise ConfigurationError(f"time_limit_s must be more than 0 seconds, not {time_limit_s}")
        options = self._options
        service_options = {name: options.get(name) for name in ("account", "authorization", "timeout_s", "proxy")}
        return read_settings(
            self._build_environ(),
            job,
            token=make_token(options.get("token")),
            time_limit_s=time_limit_s,
            writes_state=writes_state,
            service={name: value for name, value in service_options.items() if value is not None},
        )

    def _build_environ(self) -> Mapping[str, str]:
        options = self._options
        return override_environ(options.get("base_url"), options.get("state_dir"), options.get("ledger"))

    @contextmanager
    def _record_failed_start(self, command: str, job: _JobOrPath, *, is_dry_run: bool = False) -> Iterator[None]:
        """If the context ends with an error, record that the job did not run, and send the job's alert. The command
        `connector status` shows the record. A dry run leaves no record and sends no alert."""
        try:
            yield
        except ConnectorError as error:
            if not is_dry_run:
                job_or_path = job if isinstance(job, Job) else Path(job).absolute()
                start_error, environ = error, self._build_environ()
                error.run_id, messages = run_in_thread(
                    lambda stop: report_failed_start(command, job_or_path, start_error, environ, stop)
                )
                for message in messages:
                    error.add_note(message)
            raise

    def _plan_sync(self, job: _JobOrPath, options: SyncOptions, *, writes_state: bool) -> LoadPlan:
        loaded_job, since, is_full = _load_job(job), options.get("since"), options.get("full", False)
        if is_full and since is not None:
            raise ConfigurationError("`full` reads all rows, and `since` reads a part of the rows: set one of the two")
        request = RunRequest(
            _check_number("limit", options.get("limit")), _check_wait(options.get("wait_s", 0.0)), is_full, since
        )
        settings = self._read_settings(loaded_job, options.get("time_limit_s"), writes_state=writes_state)
        return plan_sync(loaded_job, settings, request)

    def _plan_rows(
        self,
        rows: str | PathLike[str] | pd.DataFrame | ArrowStream,
        options: RowOptions | ImportOptions,
        *,
        writes_state: bool = True,
    ) -> LoadPlan:
        """Return the plan to load these rows. Raises ConfigurationError. Values of a wrong type also raise this error,
        because Python does not check types.
        """
        arguments: dict[str, Any] = {**options}
        job_file = arguments.pop("job", None)
        for name in ("base_id", "limit"):
            arguments[name] = _check_number(name, arguments.get(name))
        for name, argument_type in (("base_name", str), ("active", bool), ("mapping", Mapping)):
            if not isinstance(arguments.get(name), argument_type | None):
                raise ConfigurationError(
                    f"`{name}` must be of the type {argument_type.__name__}, not {arguments[name]!r}"
                )
        if isinstance(arguments.get("ignore"), str):  # a text is also a sequence of texts
            raise ConfigurationError(f"`ignore` must be a list of columns: write [{arguments['ignore']!r}]")
        request = RunRequest(arguments["limit"], _check_wait(arguments.get("wait_s", 0.0)))
        job = None if job_file is None else _load_job(job_file)
        if isinstance(rows, str | PathLike):
            rows_job = build_rows_job(rows, choose_import_name(rows), arguments, job=job, format_argument=str)
        else:
            if any(arguments.get(name) not in ("auto", None) for name in FILE_ARGUMENTS):
                raise ConfigurationError(
                    "`format`, `encoding`, `delimiter` and `sheet` are for a file: leave these arguments out"
                )
            name = options.get("name", "frame") if job is None else job.name
            rows_job = build_rows_job(None, name, arguments, job=job, format_argument=str)
        settings = self._read_settings(rows_job, options.get("time_limit_s"), writes_state=writes_state)
        rows_source = None
        if not isinstance(rows, str | PathLike):
            rows_source = open_rows(rows, rows_job.name if job is None else options.get("name", job.name))
        if job is None:
            return plan_import(rows_job, settings, request, rows=rows_source, options=format_options(rows_job))
        return plan_import(rows_job, settings, request, rows=rows_source, has_job_file=True)


def _load_job(job: _JobOrPath) -> Job:
    return job if isinstance(job, Job) else load_job(Path(job), os.environ)


def _check_number(name: str, number: Any) -> int | None:
    """Return the number as an int. NumPy's whole numbers are allowed. Raises ConfigurationError for other values."""
    if number is not None and (isinstance(number, bool) or not isinstance(number, Integral) or number < 1):
        raise ConfigurationError(f"`{name}` must be a whole number from 1, not {number!r}")
    return None if number is None else int(number)


def _check_wait(wait_s: float) -> float:
    if wait_s < 0:
        raise ConfigurationError(f"`wait_s` must be 0 seconds or more, not {wait_s}")
    return wait_s


def _run_job(job: Job, settings: Settings, flow: Flow) -> Report:
    """Run the flow, and send the job's alert."""

    async def run_and_alert(stop: Stop, progress: Progress) -> Report:
        report = await flow(stop, progress)
        report.messages += await send_alert(job.notify, report, settings.state_dir, Stop())
        return report

    return run_flow(run_and_alert, settings.time_limit_s)


def _compose_message(to: str | Sequence[str], sender: str, subject: str, options: SendOptions) -> Message:
    max_bytes = options.get("max_attached_bytes", MAX_ATTACHMENT_BYTES)
    attached_files = [read_attachment(Path(path), max_bytes=max_bytes) for path in options.get("attachments", ())]
    inline_files = [
        read_attachment(Path(path), max_bytes=max_bytes, disposition="inline", content_id=content_id)
        for content_id, path in (options.get("inline") or {}).items()
    ]
    option_values: Mapping[str, Any] = {**options}
    return compose_message(
        system_clock().now(),
        sender=parse_recipient(sender, "Email.From"),
        to=_parse_recipients(to, "Email.To"),
        cc=_parse_recipients(options.get("cc", ()), "Email.Cc"),
        bcc=_parse_recipients(options.get("bcc", ()), "Email.Bcc"),
        reply_to=_parse_recipients(options.get("reply_to", ()), "Email.ReplyTo"),
        subject=subject,
        html=options.get("html"),
        plain_text=options.get("text"),
        headers=tuple(Header(name, value) for name, value in (options.get("headers") or {}).items()),
        attachments=(*inline_files, *attached_files),
        settings={name: value for name in SETTING_NAMES if (value := option_values.get(name)) is not None},
        send_at=options.get("send_at"),
    )


def _parse_recipients(addresses: str | Sequence[str], field: str) -> tuple[Recipient, ...]:
    address_list = [addresses] if isinstance(addresses, str) else addresses
    return tuple(parse_recipient(address, field) for address in address_list)
