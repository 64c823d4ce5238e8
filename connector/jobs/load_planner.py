"""Plans a load or a validation from a job. Opens the source, and raises errors for the faults of the job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from connector.errors import ConfigurationError
from connector.fields import FIELD_NAMES
from connector.imports.plan import LoadPlan, RowsPlan, check_plan
from connector.jobs.build import build_policy, build_rules, open_increment, open_source, plan_receipts, plan_suppression
from connector.jobs.models import Job, JobSubscriber
from connector.jobs.source_models import Cursor, JobSource, SqlSource
from connector.jobs.subscriber_models import build_base, build_column_rule
from connector.load.session import LoadGuard
from connector.rows import Source, closed_on_error
from connector.runs.rejects import is_rejects_file, read_corrections, select_source_columns
from connector.settings import Settings
from connector.shards import SINGLE_SHARD, Shard
from connector.subscribers.consent import build_consent_rule
from connector.subscribers.headers import guess_mapping, override_mapping
from connector.subscribers.rules import ColumnRule, FieldMapping

if TYPE_CHECKING:
    from collections.abc import Collection

    from connector.imports.increments import Increment


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The options of one run that are not part of its job: the row limit, the start of the cursor, the shard, and the
    time in seconds to wait for another run that holds the ledger. With `is_full`, a source with a cursor is read from
    its start."""

    row_limit: int | None = None
    wait_s: float = 0.0
    is_full: bool = False
    since: str | None = None
    shard: Shard = SINGLE_SHARD


_DEFAULT_REQUEST = RunRequest()


def plan_sync(job: Job, settings: Settings, request: RunRequest = _DEFAULT_REQUEST) -> LoadPlan:
    """Open the source of a job, and return the plan of its load.

    A source with a cursor is read from the value that the last run has saved. With `is_full`, all rows are read. With
    `since`, rows are read from this value on. A shard loads only its own rows, with its part of the limits. Raises
    ConfigurationError and SourceError.
    """
    subscriber = _find_subscriber(job)
    if job.source is None:
        raise ConfigurationError(
            f"The job {job.name} has no source. Add `source` to the job, or import a file with the job's mapping: "
            "connector import FILE --job JOB"
        )
    increment = plan_increment(job, job.source, settings.account, request)
    source = open_source(job.source) if increment is None else increment.source
    plan = _plan_load("sync", job, subscriber, source, settings, request)
    plan = replace(plan, job_name=job.name, increment=increment, uses_source_of_job=True, is_full=request.is_full)
    return plan if request.shard.is_whole else _limit_to_shard(plan, request.shard)


def plan_import(
    job: Job,
    settings: Settings,
    request: RunRequest = _DEFAULT_REQUEST,
    *,
    rows: Source | None = None,
    has_job_file: bool = False,
    options: str = "",
) -> LoadPlan:
    """Return the plan to load the file of the job, or the open source `rows`.

    With `has_job_file`, the job comes from a job file, and the file to load replaces its source. Without a job file,
    `options` are the options with which `connector import` loads the rejects file. Raises ConfigurationError and
    SourceError.
    """
    subscriber, source = _find_subscriber(job), rows
    if source is None and job.source is not None:
        source = open_source(job.source)
    if source is None:
        raise ValueError("an import needs a file or rows")
    # From a rejects file, only the corrected rows are read.
    plan = _plan_load("import", job, subscriber, read_corrections(source), settings, request)
    return replace(plan, job_name=job.name) if has_job_file else replace(plan, options=options)


def plan_validation(job: Job, row_limit: int | None, *, uses_source_of_job: bool = True) -> RowsPlan:
    """Return the plan to validate the rows of a job's source. Raises ConfigurationError and SourceError."""
    subscriber = _find_subscriber(job)
    if job.source is None:
        raise ConfigurationError(f"The job {job.name} has no source. Name a file: connector validate FILE --job JOB")
    source = open_source(job.source)
    return _plan_rows(job, subscriber, source if uses_source_of_job else read_corrections(source), row_limit)


def _find_subscriber(job: Job) -> JobSubscriber:
    if job.subscriber is None:
        raise ConfigurationError(job.explain_command())
    return job.subscriber


def _plan_rows(job: Job, subscriber: JobSubscriber, source: Source, row_limit: int | None) -> RowsPlan:
    with closed_on_error(source):
        plan = RowsPlan(
            job=job.name,
            source=source,
            mapping=choose_mapping(subscriber, source, job.ignore),
            rules=build_rules(subscriber),
            base=build_base(subscriber.base),
            suppression=plan_suppression(job),
            row_limit=row_limit,
            ignored_columns=job.ignore,
            refuses_empty_source=job.source is None or job.source.file is not None,
        )
        return check_plan(plan)


def _plan_load(
    command: str, job: Job, subscriber: JobSubscriber, source: Source, settings: Settings, request: RunRequest
) -> LoadPlan:
    with closed_on_error(source):
        receipts = plan_receipts(job)
    rows = _plan_rows(job, subscriber, source, request.row_limit)
    return LoadPlan(
        command=command,
        rows=rows,
        policy=build_policy(job.load, rows.rules, job.suppress),
        settings=settings,
        wait_s=request.wait_s,
        guard=None if job.guard is None else LoadGuard(**job.guard.model_dump()),
        job_path=job.path,
        receipts=receipts,
        fails_only_on_new_problems=job.fail_on == "new",
    )


def _limit_to_shard(plan: LoadPlan, shard: Shard) -> LoadPlan:
    """Return the plan of the shard, with the shard's part of `max_rate`, `max_concurrency` and `guard.max_creates`."""
    policy, guard = plan.policy, plan.guard
    policy = replace(
        policy,
        max_rate=policy.max_rate / shard.count,
        max_concurrency=max(1, shard.divide(policy.max_concurrency)),  # with 0, a shard would never send
    )
    if guard is not None and guard.max_creates is not None:
        guard = replace(guard, max_creates=shard.divide(guard.max_creates))
    return replace(plan, policy=policy, guard=guard, shard=shard)


def choose_mapping(subscriber: JobSubscriber, source: Source, ignored_columns: Collection[str]) -> FieldMapping:
    """Return the mapping of a load: the mapping of the job, the mapping by headers, or a combination.

    The headers of ignored columns are not used. In a combination, the fields of the job have precedence.

    A rejects file of `retry` is mapped by its headers, because its columns have the names of fields. Raises
    ConfigurationError.
    """
    columns = select_source_columns(source.columns)
    if not subscriber.uses_headers:
        has_field_names = is_rejects_file(source.columns) and columns == FIELD_NAMES
        return guess_mapping(columns) if has_field_names else build_mapping(subscriber)
    override_by_field: dict[str, str | ColumnRule] = {}
    for name, rule in (subscriber.fields_ or {}).items():
        if rule is None:
            override_by_field[name] = ""
        elif rule.column is None or rule.model_fields_set != {"column"}:
            override_by_field[name] = build_column_rule(rule)
        else:  # for a rule with only a column, the header decides how the column is read
            override_by_field[name] = build_consent_rule(rule.column) if name == "is_active" else rule.column
    guessed_mapping = guess_mapping([column for column in columns if column not in ignored_columns])
    return override_mapping(guessed_mapping, override_by_field, source.columns)


def build_mapping(subscriber: JobSubscriber) -> FieldMapping:
    """Return the mapping from the job's `fields`, without guesses by column headers."""
    rules = (subscriber.fields_ or {}).items()
    return FieldMapping({name: build_column_rule(rule) for name, rule in rules if rule is not None})


def plan_increment(job: Job, source: JobSource, account: str, request: RunRequest) -> Increment | None:
    """Open the job's source, and return the source with its cursor. Return None for a source without a cursor.

    Each shard has its own cursor. Raises ConfigurationError and SourceError.
    """
    sql_source, since = source.sql, request.since
    if sql_source is None or sql_source.cursor is None:
        if since is not None:
            raise ConfigurationError(f"--since: the job {job.name} has no source.sql.cursor; leave out --since")
        return None
    since_value = None
    if since is not None:
        try:
            from connector.sources.cursor import parse_cursor

            since_value = parse_cursor(since, sql_source.cursor.kind)
        except ValueError as error:
            raise ConfigurationError(f"--since {error}, like the key `start` of the cursor") from None
    from connector.imports.increments import Increment

    incremental_source = open_increment(sql_source, sql_source.cursor)
    digest = _compute_digest(job, sql_source, sql_source.cursor, account, request.shard)
    return Increment(
        job.name,
        digest,
        incremental_source,
        sql_source.cursor.first_value,
        sql_source.cursor.lookback_s,
        request.is_full,
        since_value,
    )


def _compute_digest(job: Job, sql_source: SqlSource, cursor: Cursor, account: str, shard: Shard) -> bytes:
    """Return the digest that identifies a cursor. The digest is computed from the account, the bases, the database, the
    query or table, the column with the kind of its values, and the shard."""
    from connector.sources.sql import identify_database

    base_values: tuple[object, ...] | None = None
    if job.subscriber is not None:
        base = job.subscriber.base
        column_and_values = () if base.column is None else (base.column, sorted((base.values or {}).items()))
        base_values = base.id, base.name, *column_and_values
    digested_values: tuple[object, ...] = (
        account,
        base_values,
        identify_database(sql_source.url),
        sql_source.query,
        sql_source.table,
        cursor.column,
        str(cursor.kind),
    )
    if not shard.is_whole:
        digested_values = (*digested_values, str(shard))
    return blake2b(repr(digested_values).encode("utf-8", "backslashreplace"), digest_size=16).digest()
