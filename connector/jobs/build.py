"""Builds the values that several planners need from a job: sources, rules, policies, suppression lists, receipts."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from connector.imports.suppression import SuppressionPlan, open_suppression
from connector.jobs.models import Guard, Job, JobSubscriber, Load
from connector.jobs.source_models import Cursor, FileSource, JobSource, SqlRows, SqlSource, SuppressionSettings
from connector.load.session import LoadPolicy
from connector.rows import Source
from connector.sources.files import open_file, open_files
from connector.subscribers.rules import PhoneRule, ValidationRules

if TYPE_CHECKING:
    from connector.sources.sql import IncrementalSource
    from connector.warehouse.destination import Destination


def open_source(source: JobSource | SuppressionSettings) -> Source:
    """Open the file, the files or the query of a source. Raises SourceError and ConfigurationError."""
    if source.file is not None:
        return open_file_source(source.file)
    if source.sql is None:  # cannot happen, because the model refuses a source without file and sql
        raise ValueError("a source is a file or a query")
    if isinstance(source.sql, SqlSource) and source.sql.cursor is not None:
        return open_increment(source.sql, source.sql.cursor)
    from connector.sources.sql import open_sql  # imported here, because a file needs no database

    return open_sql(source.sql.url, query=source.sql.query, table=source.sql.table)


def open_file_source(file: FileSource) -> Source:
    """Open a file, or the files that match a pattern. Raises SourceError and ConfigurationError."""
    file_options = file.model_dump(include={"format", "encoding", "delimiter", "sheet"})
    return open_files(file.path, lambda path: open_file(path, **file_options))


def open_increment(sql_rows: SqlRows, cursor: Cursor) -> IncrementalSource:
    """Open the query or table, which will be read from the cursor's start. Raises SourceError and
    ConfigurationError."""
    from connector.sources.sql import IncrementalSource

    source = IncrementalSource(
        sql_rows.url, query=sql_rows.query, table=sql_rows.table, column=cursor.column, kind=cursor.kind
    )
    source.set_start(cursor.first_value)
    return source


def build_rules(subscriber: JobSubscriber) -> ValidationRules:
    """Return the rules that each row of the job must fulfil."""
    phone_rule = (subscriber.fields_ or {}).get("phone")
    phone_form = None if phone_rule is None else phone_rule.e164
    return ValidationRules(
        identity_field=subscriber.identity,
        required=frozenset(subscriber.required),
        zip_policy=subscriber.zip,
        e164=None if phone_form is None else PhoneRule(phone_form.region, phone_form.otherwise),
    )


def build_policy(load: Load, rules: ValidationRules, suppression_settings: SuppressionSettings | None) -> LoadPolicy:
    """Return the policy of a load. `rules` are the rules of its rows."""
    return LoadPolicy(
        identity_field=rules.identity_field,
        max_concurrency=load.max_concurrency,
        max_rate=load.max_rate or inf,
        on_unknown=load.on_unknown,
        quiet_period_s=load.quiet_period_s,
        max_lookup_age_s=load.max_lookup_age_s,
        looks_up_first=load.look == "auto",
        is_suppressing_inactive=suppression_settings is not None and suppression_settings.inactive,
        allow_truncated=load.allow_truncated,
        ignores_total_count=load.ignore_total_count,
    )


def plan_suppression(job: Job) -> SuppressionPlan | None:
    """Return the plan to read the job's suppression list, or None if the job has no list.

    Raises ConfigurationError or SourceError if the list cannot be opened now.
    """
    if job.suppress is None or (job.subscriber is None and job.mail is None):
        return None
    suppression_list = job.suppress.file or job.suppress.sql
    if suppression_list is None:  # the job has only suppress.inactive
        return None
    identity = job.subscriber.identity if job.subscriber is not None else "email"
    open_suppression_list = partial(open_source, job.suppress)
    max_shrink = (job.guard or Guard()).max_shrink
    suppression_plan = SuppressionPlan(
        job.name, open_suppression_list, suppression_list.column, job.suppress.field or identity, max_shrink
    )
    open_suppression(suppression_plan).close()
    return suppression_plan


def plan_receipts(job: Job) -> Destination | None:
    """Return the destination of the job's receipts, or None. Raises ConfigurationError."""
    receipts = job.receipts
    if receipts is None:
        return None
    from connector.warehouse.destination import parse_receipts

    return parse_receipts(receipts.to, table=receipts.table, schema=receipts.schema_)
