"""What a mail run needs to know, put together from a job; all that is wrong with it is said here."""

from difflib import get_close_matches
from math import inf

from connector.errors import ConfigurationError
from connector.mail.mailer import MailPolicy
from connector.rows import Source
from connector.sources import refuse_lacking
from pipelines.emails.mailing import MailPlan
from pipelines.emails.templates import MailTexts, build_texts
from pipelines.jobs import Job
from pipelines.jobs.opening import open_source
from pipelines.rows.suppressing import plan_suppression
from pipelines.settings import Settings

_MODEST_RATE = 20.0
"""Emails a second, where a refusal for the rate costs somebody theirs: to search for the pace is to be refused."""

_MODEST_CONCURRENCY = 64


def plan_mail(
    job: Job,
    settings: Settings,
    *,
    limit: int | None = None,
    wait_s: float = 0.0,
    allows_rejected: bool = False,
    is_new_account: bool = False,
    is_reopening: bool = False,
) -> MailPlan:
    """The mail run of a job, its source opened and its texts read. Raises ConfigurationError and SourceError."""
    if job.mail is None or job.source is None:
        raise ConfigurationError(f"the job {job.name} does not mail: it has no key `mail`")
    if job.source.sql is not None and job.source.sql.cursor is not None:
        raise ConfigurationError("a job that mails has no cursor: the campaign knows who has been sent their email")
    guard, load = job.guard, job.load
    if guard is not None and guard.max_creates is not None:
        raise ConfigurationError("guard.max_creates is for loads; a mail run takes --limit")
    if guard is not None and guard.max_rejected is not None:
        raise ConfigurationError(
            "guard.max_rejected is for loads; a mail run ends by itself at a refusal of the first email, and at twenty "
            "in a row that are alike"
        )
    texts = build_texts(job.mail)
    source = open_source(job.source)
    try:
        _check_columns(texts, source)
        suppression = plan_suppression(job)
    except BaseException:
        source.close()
        raise
    modest_rate = inf if job.mail.retry_limited else _MODEST_RATE
    has_said_concurrency = "max_concurrency" in load.model_fields_set
    return MailPlan(
        job=job.name,
        campaign=job.mail.campaign,
        source=source,
        texts=texts,
        settings=settings,
        policy=MailPolicy(retries_limited=job.mail.retry_limited, allows_rejected=allows_rejected),
        max_rate=load.max_rate or modest_rate,
        max_concurrency=load.max_concurrency if has_said_concurrency else _MODEST_CONCURRENCY,
        suppression=suppression,
        max_invalid=guard.max_invalid if guard is not None else None,
        limit=limit,
        wait_s=wait_s,
        is_new_account=is_new_account,
        is_reopening=is_reopening,
    )


def _check_columns(texts: MailTexts, source: Source) -> None:
    """Every variable of a template is a column: what is misspelt would spoil every row."""
    for column in texts.columns:
        if column not in source.columns:
            meant = get_close_matches(column, source.columns, n=1)
            hint = f" (did you mean {meant[0]}?)" if meant else ""
            raise ConfigurationError(
                f"{texts.name_place(column)} asks for {column}, which is no column of {source.name}{hint}. "
                f"Its columns: {', '.join(source.columns)}"
            )
    refuse_lacking(source, texts.columns)
