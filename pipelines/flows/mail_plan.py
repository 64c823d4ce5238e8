"""What a mail run needs to know, built from a job; every fault of the job is reported here."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from math import inf

from connector.errors import ConfigurationError, RunAborted
from connector.imports.suppression import SuppressionPlan
from connector.kept_values import KeptValues
from connector.load.candidates import take_rows
from connector.load.session import Problem
from connector.mail.campaign import MailPolicy
from connector.mail.draft import Draft
from connector.mail.message import Message, MessageError
from connector.mail.texts import MailTexts
from connector.outcomes import MailOutcome, Outcome
from connector.row_files import build_invalid, build_malformed
from connector.rows import Closing, Row, Source
from connector.settings import Settings
from connector.sources.files import refuse_lacking
from connector.subscribers.preparation import PreparedChunk, prepare_chunks
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from connector.subscribers.suppression import Suppression
from connector.templates import Template, TemplateError, compile_template
from pipelines.flows.job_sources import plan_suppression
from pipelines.flows.sends import attach, read_body
from pipelines.jobs.build import open_source
from pipelines.jobs.mail_models import EmailText, Mail, read_stated
from pipelines.jobs.models import Job

_LONGEST = 1_000_000  # characters; mail programs cut an HTML body off long before (Gmail: after 102 kB)

_MODEST_RATE = 20.0
"""Emails a second, where a refusal for the rate costs a recipient theirs: to search for the pace is to be refused."""

_MODEST_CONCURRENCY = 64


class Spool(Closing):
    """Rows in their order; written first, read after."""

    def __init__(self) -> None:
        self._values = KeptValues()
        self.rows = 0

    def add(self, row: Row) -> None:
        """Keep a row. Raises RunAborted when there is no room."""
        self._values.add([(row.number, row.file, row.columns, row.cells)])
        self.rows += 1

    def read(self, number: int) -> Iterator[list[Row]]:
        """Yield all of them, so many at a time. Raises RunAborted when they are on the disk no more."""
        for first in range(0, self.rows, number):
            yield [self._read(index) for index in range(first, min(first + number, self.rows))]

    def _read(self, index: int) -> Row:
        place, file, columns, cells = self._values.read(index)
        return Row(place, file, tuple(columns), tuple(cells))

    def close(self) -> None:
        """Let go of the rows."""
        self._values.close()


_RULES = ValidationRules(identity="email")

Hear = Callable[[Problem], None]
"""Hears of a row that a person must see."""


@dataclass(slots=True)
class MailCheck:
    """What a check found: the outcomes so far, of the rows that are not to be sent, and what a person should know."""

    outcomes: Counter[MailOutcome] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    read: int = 0


@dataclass(frozen=True, slots=True)
class Checker:
    """Reads a source and keeps in the spool those rows that make an email; `now` is the time of the run."""

    source: Source
    texts: MailTexts
    now: datetime
    limit: int | None
    suppression: Suppression | None
    on_problem: Hear
    is_stopped: Callable[[], bool]

    def check(self, spool: Spool, checked: MailCheck) -> None:
        """Check every row, and write down in `checked` what is found, also if it breaks off. Raises SourceError, and
        RunAborted when it is to stop or the spool has no room."""
        mapping = FieldMapping({"email": ColumnRule(column=self.texts.address_column)})
        prepared = prepare_chunks(
            self.source, mapping, _RULES, today=self.now.date(), limit=self.limit, suppression=self.suppression
        )
        for each in prepared:
            if self.is_stopped():
                raise RunAborted("the run was stopped while its rows were being checked; nothing was sent")
            self._sort_out(each, checked)
            self._keep(each, checked, spool)

    def _sort_out(self, prepared: PreparedChunk, checked: MailCheck) -> None:
        """The rows that are no subscriber to be, are repeated, or want no email."""
        checked.read += prepared.read
        checked.messages += prepared.chunk.messages
        invalid = build_invalid(prepared.chunk, prepared.faults)
        for malformed in prepared.chunk.malformed:
            self.on_problem(build_malformed(malformed, prepared.chunk.name))
        for problem in invalid:
            self.on_problem(problem)
        checked.outcomes[MailOutcome.INVALID] += len(invalid) + len(prepared.chunk.malformed)
        checked.outcomes[MailOutcome.DUPLICATE] += len(prepared.repeats)
        checked.outcomes[MailOutcome.SUPPRESSED] += len(prepared.suppressed)

    def _keep(self, prepared: PreparedChunk, checked: MailCheck, spool: Spool) -> None:
        for row in take_rows(prepared.chunk, prepared.planned.subscribers.index.tolist()):
            try:
                self.compose(row)
            except MessageError as error:
                self._refuse(row, error.field, "email", error.problem, checked)
            except TemplateError as error:
                self._refuse(row, "", "template", str(error), checked)
            else:
                spool.add(row)

    def compose(self, row: Row) -> Message:
        """Return the email of a row. Raises MessageError and TemplateError."""
        return self.texts.compose(read_cells(row), self.now)

    def _refuse(self, row: Row, field: str, code: str, message: str, checked: MailCheck) -> None:
        checked.outcomes[MailOutcome.INVALID] += 1
        self.on_problem(Problem(row, Outcome.INVALID, field, code, message))


def read_cells(row: Row) -> dict[str, str]:
    """Return a row's cells by column, "" for an empty one."""
    return {column: cell or "" for column, cell in zip(row.columns, row.cells, strict=True)}


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
    """Return the mail run of a job, its source opened and its texts read. Raises ConfigurationError and SourceError."""
    if job.mail is None or job.source is None:
        raise ConfigurationError(f"the job {job.name} does not mail: it has no key `mail`")
    if job.source.sql is not None and job.source.sql.cursor is not None:
        raise ConfigurationError("a job that mails has no cursor: the campaign knows which recipients have their email")
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
    """Return the texts of a job, its files read. Raises ConfigurationError: a file is missing or too large, a template
    cannot be read, a header cannot be one, a time has no zone."""
    html = read_body(mail.html) if mail.html else None
    text = read_body(mail.text) if mail.text else None
    return MailTexts(
        shared=Draft(
            sender=mail.from_,
            reply_to=mail.reply_to,
            attachments=(
                *(attach(each, "inline", mail.max_attached) for each in mail.inline),
                *(attach(each, "attachment", mail.max_attached) for each in mail.attach),
            ),
            settings=read_stated(mail.tracking, mail.settings),
            send_at=mail.at,
        ),
        address_column=mail.to.email,
        name_column=mail.to.name,
        subject=_compile(mail.subject, name="mail.subject"),
        html=_compile(html, is_html=True, name=_name("mail.html", mail.html)) if html is not None else None,
        text=_compile(text, name=_name("mail.text", mail.text)) if text is not None else None,
        headers=tuple((name, _compile(value, name=f"mail.headers.{name}")) for name, value in mail.headers.items()),
    )


def _compile(source: str, *, name: str, is_html: bool = False) -> Template:
    return compile_template(source, name=name, longest=_LONGEST, is_html=is_html)


def _name(key: str, text: EmailText | None) -> str:
    return f"{key} ({text.path})" if text is not None and text.path is not None else key
