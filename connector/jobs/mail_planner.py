"""Plans a campaign from a job, and composes a single email from a message file."""

import os
from datetime import datetime
from difflib import get_close_matches
from math import inf

from connector.errors import ConfigurationError
from connector.imports.plan import refuse_unknown_columns
from connector.jobs.build import open_source, plan_suppression
from connector.jobs.mail_models import EmailText, Mail, MessageFile, collect_setting_values
from connector.jobs.models import Job
from connector.jobs.reader import read_text
from connector.mail.campaign import MailPolicy
from connector.mail.checking import MailPlan
from connector.mail.draft import MailTexts, compose_message, read_attachment
from connector.mail.message import Attachment, Header, Message
from connector.rows import closed_on_error
from connector.settings import Settings
from connector.sources.files import refuse_missing_columns
from connector.templates import Template, compile_template
from connector.texts import escape_to_one_line

_MAX_BODY_BYTES = 50_000_000  # the maximum size of a file with the body of an email
_MAX_TEMPLATE_LENGTH = 1_000_000  # mail programs truncate even shorter HTML bodies (Gmail: after 102 kB)

_DEFAULT_RATE = 20.0
"""The rate in emails per second without `mail.retry_limited`. Without this key, an email that is refused with 429 is
not sent again. So the run does not search for the rate limit, because a search causes answers with 429."""

_DEFAULT_CONCURRENCY = 64
_MAX_SHOWN_LENGTH = 200  # characters of a missing path in an error


def plan_mail(
    job: Job,
    settings: Settings,
    *,
    row_limit: int | None = None,
    wait_s: float = 0.0,
    sends_rejected_again: bool = False,
    is_new_account: bool = False,
    is_reopening: bool = False,
) -> MailPlan:
    """Open the source of a job, read its texts, and return the plan of its mail run. Raises ConfigurationError and
    SourceError."""
    if job.mail is None or job.source is None:
        raise ConfigurationError(job.explain_command())
    if job.source.sql is not None and job.source.sql.cursor is not None:
        raise ConfigurationError(
            "a mail job cannot have a cursor: remove source.sql.cursor. The campaign records who got the email"
        )
    guard, load = job.guard, job.load
    if guard is not None and guard.max_creates is not None:
        raise ConfigurationError("guard.max_creates is for loads; limit a mail run with --limit")
    if guard is not None and guard.max_rejected is not None:
        raise ConfigurationError(
            "guard.max_rejected is for loads; remove it. A mail run ends when the service refuses the first email. It "
            "also ends when the service refuses 20 emails for one reason and accepts none in between"
        )
    texts = read_mail_texts(job.mail)
    source = open_source(job.source)
    with closed_on_error(source):
        for column in texts.columns:  # a misspelt variable would make every row invalid
            if column not in source.columns:
                similar_names = get_close_matches(column, source.columns, n=1)
                hint = f" (did you mean {similar_names[0]}?)" if similar_names else ""
                raise ConfigurationError(
                    f"{texts.find_job_key(column)} uses the column {column}, which {source.name} does not have{hint}. "
                    f"Its columns: {', '.join(source.columns)}"
                )
        refuse_missing_columns(source, texts.columns)
        refuse_unknown_columns(source, job.ignore)
        suppression = plan_suppression(job)
    default_rate = inf if job.mail.retry_limited else _DEFAULT_RATE
    is_concurrency_set = "max_concurrency" in load.model_fields_set
    return MailPlan(
        job=job.name,
        job_path=job.path,
        campaign=job.mail.campaign,
        source=source,
        texts=texts,
        settings=settings,
        policy=MailPolicy(
            resends_after_429=job.mail.retry_limited,
            sends_rejected_again=sends_rejected_again,
            max_rate=load.max_rate or default_rate,
            max_concurrency=load.max_concurrency if is_concurrency_set else _DEFAULT_CONCURRENCY,
        ),
        ignored_columns=job.ignore,
        skips_inactive=job.skip_inactive,
        suppression=suppression,
        max_invalid=guard.max_invalid if guard is not None else None,
        row_limit=row_limit,
        wait_s=wait_s,
        is_new_account=is_new_account,
        is_reopening=is_reopening,
    )


def read_mail_texts(mail: Mail) -> MailTexts:
    """Read the files of a job's email, and return its texts. Raises ConfigurationError for a file that is missing or
    too large, and for an invalid template or header."""
    html = read_body(mail.html) if mail.html else None
    text = read_body(mail.text) if mail.text else None
    return MailTexts(
        sender=mail.from_,
        reply_to=mail.reply_to,
        attachments=_read_attachments(mail),
        settings=collect_setting_values(mail.tracking, mail.settings),
        send_at=mail.at,
        address_column=mail.to.email,
        name_column=mail.to.name,
        subject=_compile_template(mail.subject, name="mail.subject"),
        html=_compile_template(html, is_html=True, name=_describe_key("mail.html", mail.html))
        if html is not None
        else None,
        text=_compile_template(text, name=_describe_key("mail.text", mail.text)) if text is not None else None,
        headers=tuple(
            (name, _compile_template(value, name=f"mail.headers.{name}")) for name, value in mail.headers.items()
        ),
    )


def _compile_template(template_text: str, *, name: str, is_html: bool = False) -> Template:
    return compile_template(template_text, name=name, max_length=_MAX_TEMPLATE_LENGTH, is_html=is_html)


def _describe_key(key: str, text: EmailText | None) -> str:
    return f"{key} ({text.path})" if text is not None and text.path is not None else key


def compose_file(file: MessageFile, now: datetime) -> Message:
    """Return the message of a message file. `now` has a time zone.

    Raises ConfigurationError or MessageError in these cases:
    - A file is missing, too large or not a text.
    - An inline file has no id.
    - The message breaks a rule.
    """
    return compose_message(
        now,
        attachments=_read_attachments(file),
        sender=file.from_,
        to=file.to,
        cc=file.cc,
        bcc=file.bcc,
        reply_to=file.reply_to,
        subject=file.subject,
        html=read_body(file.html) if file.html else None,
        plain_text=read_body(file.text) if file.text else None,
        headers=tuple(Header(name, value) for name, value in file.headers.items()),
        settings=collect_setting_values(file.tracking, file.settings),
        send_at=file.at,
    )


def _read_attachments(mail_keys: MessageFile | Mail) -> tuple[Attachment, ...]:
    """Return the inline and attached files. Raises MessageError for a file that is missing or too large, and for an
    inline file without an id."""
    inline_files = [
        read_attachment(
            file.path, max_bytes=mail_keys.max_attached, disposition="inline", content_id=file.id, mime_type=file.type
        )
        for file in mail_keys.inline
    ]
    attached_files = [
        read_attachment(file.path, max_bytes=mail_keys.max_attached, content_id=file.id, mime_type=file.type)
        for file in mail_keys.attach
    ]
    return (*inline_files, *attached_files)


def read_body(text: EmailText) -> str:
    """Return the text of a body, from a file or from the key `content`. Raises ConfigurationError."""
    if text.path is None:
        return text.content or ""
    if not os.path.exists(text.path):  # noqa: PTH110 - Path.exists raises an error for a text of more than 255 bytes
        raise ConfigurationError(
            f"There is no file {escape_to_one_line(str(text.path))[:_MAX_SHOWN_LENGTH]} for the body of the email: "
            'check the path. To write the body itself, use the key `content`, as in `html: {content: "<p>Hello</p>"}`'
        )
    return read_text(text.path, "body", _MAX_BODY_BYTES)
