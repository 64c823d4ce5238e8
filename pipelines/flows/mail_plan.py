"""What a mail run needs to know, put together from a job; all that is wrong with it is said here."""

from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from pathlib import Path

from connector.errors import ConfigurationError
from connector.mail.campaign import MailPolicy
from connector.mail.draft import Draft, parse_send_at
from connector.mail.texts import MailTexts, RowAttachment
from connector.rows import Source
from connector.sources import refuse_lacking
from connector.templates import Template, compile_template
from pipelines.flows.sends import attach, read_text
from pipelines.jobs import AttachedFile, EmailText, Job, Mail, Settings, open_source, read_stated
from pipelines.rows.suppressing import SuppressionPlan, plan_suppression

_MARKS = ("{{", "{%", "{#")
_LONGEST = 1_000_000  # characters; mail programs cut an HTML body off long before (Gmail: after 102 kB)

_MODEST_RATE = 20.0
"""Emails a second, where a refusal for the rate costs a recipient theirs: to search for the pace is to be refused."""

_MODEST_CONCURRENCY = 64


@dataclass(frozen=True, slots=True)
class MailPlan:
    """A campaign to be sent."""

    job: str
    campaign: str
    source: Source
    texts: MailTexts
    settings: Settings
    policy: MailPolicy
    suppression: SuppressionPlan | None = None
    max_invalid: float | None = None
    limit: int | None = None
    wait_s: float = 0.0
    is_new_account: bool = False  # a campaign that the ledger knows under another account is another one
    is_reopening: bool = False  # a campaign that was closed when the ledger was restored is sent on


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
        policy=MailPolicy(
            retries_limited=job.mail.retry_limited,
            allows_rejected=allows_rejected,
            max_rate=load.max_rate or modest_rate,
            max_concurrency=load.max_concurrency if has_said_concurrency else _MODEST_CONCURRENCY,
        ),
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


def build_texts(mail: Mail) -> MailTexts:
    """The texts of a job, its files read. Raises ConfigurationError: a file is missing or too large, a template cannot
    be read, a header cannot be one, a time has no zone."""
    html = read_text(mail.html) if mail.html else None
    text = read_text(mail.text) if mail.text else None
    return MailTexts(
        shared=Draft(
            sender=mail.from_,
            reply_to=mail.reply_to,
            attachments=(
                *(attach(each, "inline", mail.max_attached) for each in mail.inline),
                *(attach(each, "attachment", mail.max_attached) for each in mail.attach if not _is_template(each)),
            ),
            settings=read_stated(mail.tracking, mail.settings),
            send_at=parse_send_at(mail.at) if mail.at is not None else None,
        ),
        address_column=mail.to.email,
        name_column=mail.to.name,
        subject=_compile(mail.subject, name="mail.subject"),
        html=_compile(html, is_html=True, name=_name("mail.html", mail.html)) if html is not None else None,
        text=_compile(text, name=_name("mail.text", mail.text)) if text is not None else None,
        headers=tuple((name, _compile(value, name=f"mail.headers.{name}")) for name, value in mail.headers.items()),
        row_files=tuple(_build_row_file(each) for each in mail.attach if _is_template(each)),
        most_attached=mail.max_attached,
    )


def _compile(source: str, *, name: str, is_html: bool = False) -> Template:
    return compile_template(source, name=name, longest=_LONGEST, is_html=is_html)


def _name(key: str, text: EmailText | None) -> str:
    return f"{key} ({text.path})" if text is not None and text.path is not None else key


def _is_template(file: AttachedFile) -> bool:
    return any(mark in str(file.path) for mark in _MARKS)


def _build_row_file(file: AttachedFile) -> RowAttachment:
    """A row may choose among the files of a folder, the last one that the job itself names."""
    parts = file.path.parts
    fixed = next(place for place, part in enumerate(parts) if any(mark in part for mark in _MARKS))
    template = _compile(str(file.path), name="mail.attach")
    return RowAttachment(Path(*parts[:fixed]), template, file.type)
