"""The plan of a mail run, built from a job, and the check of all rows before the first email leaves."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from math import inf

import numpy as np

from connector.errors import ConfigurationError, RunAborted
from connector.imports.plan import closed_on_error, refuse_unknown_columns
from connector.imports.suppression import SuppressionPlan, read_suppression
from connector.jobs.build import open_source, plan_suppression
from connector.jobs.mail_models import EmailText, Mail
from connector.jobs.models import Job
from connector.kept_rows import KeptRows
from connector.kept_values import KeptValues
from connector.load.candidates import take_rows
from connector.load.session import Problem
from connector.mail.campaign import MailPolicy
from connector.mail.draft import MailTexts
from connector.mail.message import MessageError
from connector.outcomes import MailOutcome, Outcome
from connector.plurals import agree, count
from connector.row_files import build_invalid, build_malformed
from connector.rows import Closing, Row, Source
from connector.settings import Settings
from connector.sources.files import refuse_lacking
from connector.subscribers.consent import read_activity
from connector.subscribers.headers import guess_mapping
from connector.subscribers.identity import split_digests
from connector.subscribers.preparation import PreparedChunk, find_named, prepare_chunks
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from connector.subscribers.suppression import InactiveIdentities, Suppression
from connector.templates import Template, TemplateError, compile_template
from pipelines.flows.sends import draft_shared, read_body

_LONGEST = 1_000_000  # characters; mail programs cut an HTML body off long before (Gmail: after 102 kB)

_MODEST_RATE = 20.0
"""Emails a second, where a refusal for the rate costs a recipient theirs: to search for the pace is to be refused."""

_MODEST_CONCURRENCY = 64


class MailRows(Closing):
    """Rows on disk, in order. All rows are written before the first row is read."""

    def __init__(self) -> None:
        self._values = KeptValues()
        self.rows = 0

    def add(self, row: Row) -> None:
        """Add a row. Raises RunAborted if the disk is full."""
        self._values.add([(row.number, row.file, row.columns, row.cells)])
        self.rows += 1

    def read(self, number: int) -> Iterator[list[Row]]:
        """Yield all rows in lists of `number` rows. Raises RunAborted if the rows cannot be read from the disk."""
        for first in range(0, self.rows, number):
            kept = (self._values.read(index) for index in range(first, min(first + number, self.rows)))
            yield [Row(place, file, tuple(columns), tuple(cells)) for place, file, columns, cells in kept]

    def close(self) -> None:
        """Let go of the rows."""
        self._values.close()


_RULES = ValidationRules(identity="email")


@dataclass(slots=True)
class MailCheck:
    """What a check found: the outcomes so far, of the rows that are not to be sent, and what a person should know."""

    outcomes: Counter[MailOutcome] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    read: int = 0
    inactive: int = 0  # of the suppressed rows, those whose own columns say so
    suppression: Suppression | None = None


@dataclass(frozen=True, slots=True)
class MailPlan:
    """A campaign to be sent."""

    job: str
    campaign: str
    source: Source
    texts: MailTexts
    settings: Settings
    policy: MailPolicy
    ignored: tuple[str, ...] = ()  # columns that say nothing about consent
    skips_inactive: bool = True  # no email goes to an address that the service lists as inactive
    suppression: SuppressionPlan | None = None
    max_invalid: float | None = None
    limit: int | None = None
    wait_s: float = 0.0
    is_new_account: bool = False  # a campaign that the ledger knows under another account is another one
    is_reopening: bool = False  # a campaign that was closed when the ledger was restored is sent on


def check_rows(
    plan: MailPlan,
    now: datetime,
    spool: MailRows,
    checked: MailCheck,
    on_problem: Callable[[Problem], None],
    is_stopped: Callable[[], bool],
) -> None:
    """Check every row of the source, and add the rows that make an email to the spool. `now` is the time of the run.

    `checked` has the findings, also after an error. Raises SourceError, and RunAborted if the run must stop or the disk
    is full.
    """
    suppression = None
    if plan.suppression is not None:
        suppression, messages = read_suppression(plan.suppression, is_stopped)
        checked.messages += messages
        checked.suppression = suppression
    mapping = FieldMapping({"email": ColumnRule(column=plan.texts.address_column)})
    chunks = prepare_chunks(
        plan.source,
        mapping,
        _RULES,
        today=now.date(),
        limit=None,  # a row beyond the limit may say that the recipient wants no email
        suppression=suppression,
        more_columns=plan.texts.columns,
        ignored=plan.ignored,
    )
    consent = _list_activity_columns(plan)
    with KeptRows(plan.source, _RULES.identity) as kept:
        for prepared in kept.keep(chunks):
            if is_stopped():
                raise RunAborted("the run was stopped while its rows were being checked; nothing was sent")
            consent |= dict.fromkeys(prepared.consent)
            read = checked.read + prepared.read
            checked.read = read if plan.limit is None else min(read, plan.limit)
        inactive, unclear = InactiveIdentities(), InactiveIdentities()
        for prepared in kept.read():
            is_inactive, is_unclear = read_activity(prepared.chunk.frame, consent)
            positions, identities = prepared.valid.subscribers.index.to_numpy(), prepared.valid.identities
            for identity in split_digests(identities[is_inactive[positions]]):
                inactive.note(identity)
            named, _ = find_named(prepared.chunk.malformed if consent else (), "email")  # may want no email
            for identity in split_digests(np.concatenate([identities[is_unclear[positions]], named])):
                unclear.note(identity)
        for prepared in kept.read(plan.limit):
            if is_stopped():
                raise RunAborted("the run was stopped while its rows were being checked; nothing was sent")
            _check_chunk(prepared, plan, now, spool, checked, on_problem, consent, inactive, unclear)
    if checked.inactive:
        checked.messages.append(
            f"{count(checked.inactive, 'row')} {agree(checked.inactive, 'is', 'are')} left out as suppressed: "
            f"{agree(checked.inactive, 'its person wants', 'their people want')} no email, by the "
            f"{agree(len(consent), 'column', 'columns')} {', '.join(consent)}"
        )


def _check_chunk(
    prepared: PreparedChunk,
    plan: MailPlan,
    now: datetime,
    spool: MailRows,
    checked: MailCheck,
    on_problem: Callable[[Problem], None],
    consent: Mapping[str, None],
    inactive: InactiveIdentities,
    unclear: InactiveIdentities,
) -> None:
    """Check the rows of one chunk. `consent` are the columns that say who wants no email, `inactive` the recipients of
    all rows that say so, and `unclear` the recipients of all rows that may say so."""
    chunk = prepared.chunk
    problems = [build_malformed(malformed, chunk.name) for malformed in chunk.malformed]
    problems += build_invalid(chunk, prepared.faults)
    checked.messages += chunk.messages
    checked.outcomes[MailOutcome.DUPLICATE] += len(prepared.repeats)
    checked.outcomes[MailOutcome.SUPPRESSED] += len(prepared.suppressed)
    checked.outcomes[MailOutcome.INVALID] += len(problems)
    for problem in problems:
        on_problem(problem)
    planned = prepared.planned
    is_inactive, positions = inactive.find(planned.identities), planned.subscribers.index.to_numpy()
    number = int(np.count_nonzero(is_inactive))
    checked.inactive += number
    checked.outcomes[MailOutcome.SUPPRESSED] += number
    positions, is_unclear = positions[~is_inactive], unclear.find(planned.identities[~is_inactive])
    problems = [
        Problem(row, Outcome.INVALID, "is_active", "flag", f"{_UNCLEAR}: {', '.join(consent)}")
        for row in take_rows(chunk, positions[is_unclear].tolist())
    ]
    checked.outcomes[MailOutcome.INVALID] += len(problems)
    for problem in problems:
        on_problem(problem)
    for row in take_rows(chunk, positions[~is_unclear].tolist()):
        try:
            plan.texts.compose(row, now)
        except MessageError as error:
            problem = Problem(row, Outcome.INVALID, error.field, "email", error.problem)
        except TemplateError as error:
            problem = Problem(row, Outcome.INVALID, "", "template", str(error))
        else:
            spool.add(row)
            continue
        checked.outcomes[MailOutcome.INVALID] += 1
        on_problem(problem)


_UNCLEAR = (
    "this row, or another row of the address, is neither active nor inactive by a column that says who wants no email"
)


def _list_activity_columns(plan: MailPlan) -> dict[str, None]:
    """Return the columns whose headers say who is active, without the ignored ones."""
    rule = guess_mapping(plan.source.columns).rules.get("is_active")
    return dict.fromkeys(column for column in (rule.columns if rule is not None else ()) if column not in plan.ignored)


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
    with closed_on_error(source):
        for column in texts.columns:  # a misspelt variable would spoil every row
            if column not in source.columns:
                meant = get_close_matches(column, source.columns, n=1)
                hint = f" (did you mean {meant[0]}?)" if meant else ""
                raise ConfigurationError(
                    f"{texts.name_place(column)} asks for {column}, which is no column of {source.name}{hint}. "
                    f"Its columns: {', '.join(source.columns)}"
                )
        refuse_lacking(source, texts.columns)
        refuse_unknown_columns(source, job.ignore)
        suppression = plan_suppression(job)
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
        ignored=job.ignore,
        skips_inactive=job.skip_inactive,
        suppression=suppression,
        max_invalid=guard.max_invalid if guard is not None else None,
        limit=limit,
        wait_s=wait_s,
        is_new_account=is_new_account,
        is_reopening=is_reopening,
    )


def build_texts(mail: Mail) -> MailTexts:
    """Return the texts of a job, its files read. Raises ConfigurationError: a file is missing or too large, a template
    cannot be read, a header cannot be one, a time has no zone."""
    html = read_body(mail.html) if mail.html else None
    text = read_body(mail.text) if mail.text else None
    return MailTexts(
        shared=draft_shared(mail),
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
