"""A job's suppression list, checked when the job is planned; its run reads it again."""

from functools import partial

from connector.imports import SuppressionPlan, open_suppression
from pipelines.jobs import Job, open_source


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
