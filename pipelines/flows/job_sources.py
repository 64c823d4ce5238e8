"""What each run of a job reads again: a source from its cursor on (architecture 4.11), and the suppression list."""

from functools import partial
from hashlib import blake2b

from connector.errors import ConfigurationError
from connector.imports.increments import Increment
from connector.imports.suppression import SuppressionPlan, open_suppression
from connector.shards import WHOLE, Shard
from connector.sources.cursor import CursorValue, parse_cursor
from connector.sources.sql import describe_place
from pipelines.jobs.build import open_increment, open_source
from pipelines.jobs.models import Job
from pipelines.jobs.source_models import Cursor, JobSource, SqlSource

_DIGEST_BYTES = 16


def plan_increment(
    job: Job, source: JobSource, account: str, *, is_full: bool, since: str | None, shard: Shard = WHOLE
) -> Increment | None:
    """Return the job's source opened, if it has a cursor; None if not, when everything is read each time.

    Each shard has a cursor of its own.
    Raises ConfigurationError and SourceError.
    """
    sql = source.sql
    if sql is None or sql.cursor is None:
        if since is not None:
            raise ConfigurationError(f"--since: the job {job.name} has no source.sql.cursor; leave it out")
        return None
    asked = None if since is None else _parse_since(since, sql.cursor)
    opened = open_increment(sql, sql.cursor)
    if asked is not None:
        opened.begin_at(asked)  # so that what its database cannot compare is said now
    digest = _compute_digest(job, sql, sql.cursor, account, shard)
    return Increment(job.name, digest, opened, sql.cursor.first, sql.cursor.lookback_s, is_full, asked)


def _parse_since(since: str, cursor: Cursor) -> CursorValue:
    try:
        return parse_cursor(since, cursor.kind)
    except ValueError as error:
        raise ConfigurationError(f"--since {error}, as the cursor's start is") from None


def _compute_digest(job: Job, sql: SqlSource, cursor: Cursor, account: str, shard: Shard) -> bytes:
    """Return a digest of all that a cursor belongs to: account, bases, database, query, column and shard."""
    parts: tuple[object, ...] = (
        account,
        _list_base_keys(job),
        describe_place(sql.url),
        sql.query,
        sql.table,
        cursor.column,
        str(cursor.kind),
    )
    if not shard.is_whole:
        parts = (*parts, str(shard))
    return blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=_DIGEST_BYTES).digest()


def _list_base_keys(job: Job) -> tuple[object, ...] | None:
    if job.subscriber is None:
        return None
    base = job.subscriber.base
    by_row = () if base.column is None else (base.column, sorted((base.values or {}).items()))
    return base.id, base.name, *by_row


def plan_suppression(job: Job) -> SuppressionPlan | None:
    """Return the job's list, or None if it has none; raises ConfigurationError or SourceError if it cannot be read
    now."""
    if job.suppress is None or (job.subscriber is None and job.mail is None):
        return None
    given = job.suppress.file or job.suppress.sql
    if given is None:  # inactive alone
        return None
    identity = job.subscriber.identity if job.subscriber is not None else "email"
    opened = partial(open_source, job.suppress)
    plan = SuppressionPlan(job.name, opened, given.column, job.suppress.field or identity)
    open_suppression(plan).close()
    return plan
