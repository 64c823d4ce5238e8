"""The emails of a mail run to look at, none of them sent: every row is checked, the first are written as files."""

import asyncio
import os
from collections import Counter
from pathlib import Path

from connector.clock import Clock, system_clock
from connector.errors import ConfigurationError, RunAborted, SourceError
from connector.ledger import open_existing_emails
from connector.load import Problem
from connector.mail.eml import write_eml
from connector.mail.files import FIELD as ATTACHMENTS
from connector.outcomes import MailOutcome
from connector.plan.digests import digest_identity
from connector.protocol.email import Message
from connector.states import EmailState
from pipelines.emails.checking import Checked, Checker, read_cells
from pipelines.emails.mailing import MailPlan
from pipelines.emails.spool import Spool
from pipelines.rows.suppressing import read_suppression
from pipelines.runs.progress import Progress
from pipelines.runs.report import Report, Status, count_mail_rows, end_report, start_report
from pipelines.runs.stopping import Stop
from pipelines.words import agree, count

_FAULTS_SHOWN = 10
_AT_ONCE = 256  # rows that are looked up in the ledger together
_FORESEEN = {
    EmailState.SENT: MailOutcome.ALREADY_SENT,
    EmailState.REFUSED: MailOutcome.REJECTED,
    EmailState.UNKNOWN: MailOutcome.UNKNOWN,
    EmailState.SENDING: MailOutcome.UNKNOWN,
}


async def preview(
    plan: MailPlan, folder: Path, number: int, stop: Stop, progress: Progress, clock: Clock | None = None
) -> Report:
    """Check every row, and write the first `number` emails into `folder`. Raises ConfigurationError if it is there and
    not empty, or cannot be written."""
    clock = clock or system_clock()
    report = start_report("mail", plan.job, clock.now())
    report.is_planned = True
    _make_folder(folder)
    faults: list[str] = []
    with plan.source, Spool() as spool:
        progress.follow(lambda: f"checking: {spool.rows:,} emails can be sent so far")
        try:
            checked, checker = await asyncio.to_thread(_check, plan, spool, report, stop, faults)
        except (SourceError, RunAborted) as error:
            report.rows, report.signal = count_mail_rows(0, {}), stop.signal
            return end_report(report, "aborted" if stop.signal is None else "stopped", clock.now(), str(error))
        outcomes = Counter(checked.outcomes) + await asyncio.to_thread(_foresee, plan, spool)
        for place, (kept,) in enumerate(spool.read(1), start=1):
            if place > number:
                break
            _write(folder / f"{place:04d}", checker.texts.compose(read_cells(kept.row), checker.now).message)
    report.rows = count_mail_rows(checked.read, outcomes)
    report.messages += [*dict.fromkeys(checked.messages), *sorted(checked.warnings), *faults]
    written = min(number, spool.rows)
    said = f"{count(written, 'email')} {agree(written, 'was', 'were')} written to {folder}; nothing was sent"
    report.messages.append(said)
    status: Status = "partial" if checked.outcomes[MailOutcome.INVALID] else "ok"
    return end_report(report, status, clock.now())


def _check(plan: MailPlan, spool: Spool, report: Report, stop: Stop, faults: list[str]) -> tuple[Checked, Checker]:
    def hear(problem: Problem, _raw: str | None) -> None:
        if len(faults) < _FAULTS_SHOWN:
            faults.append(f"row {problem.row.number} is invalid: {problem.field or 'template'}: {_describe(problem)}")

    suppression = None
    if plan.suppression is not None:
        suppression, messages = read_suppression(plan.suppression, stop.event.is_set)
        report.messages += messages
    at = report.started_at
    checker = Checker(plan.source, plan.texts, at, plan.limit, suppression, hear, stop.event.is_set)
    checked = Checked()
    checker.check(spool, checked)
    return checked, checker


def _foresee(plan: MailPlan, spool: Spool) -> Counter[MailOutcome]:
    """What would become of the rows that make an email, by what is on record. Raises LedgerError."""
    foreseen = Counter[MailOutcome]()
    with open_existing_emails(plan.settings.ledger_url) as log:
        if log is None:
            return Counter({MailOutcome.SENT: spool.rows})
        with log.transaction():
            campaign = log.find_campaign(
                plan.settings.account,
                plan.campaign,
                is_new_account=plan.is_new_account,
                is_reopening=plan.is_reopening,
            )
            for batch in spool.read(_AT_ONCE):
                people = [digest_identity("email", plan.texts.read_address(read_cells(each.row))) for each in batch]
                known = log.find(campaign, people) if campaign is not None else {}
                foreseen.update(_FORESEEN[known[each].state] if each in known else MailOutcome.SENT for each in people)
    if plan.policy.allows_rejected:
        foreseen[MailOutcome.SENT] += foreseen.pop(MailOutcome.REJECTED, 0)
    return foreseen


def _describe(problem: Problem) -> str:
    """What is wrong, with nothing of the row: the path of its file is made of its cells."""
    if problem.field == ATTACHMENTS:
        return "a file that goes with it is missing, unreadable, empty, too large or outside of its folder"
    return problem.message


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigurationError(f"{folder} is not empty: name a new folder with --preview-dir")
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be made or read: {error.strerror}; name another with --preview-dir"
        ) from None


def _write(stem: Path, message: Message) -> None:
    """An email as .eml and, if it has HTML, that as .html; readable by their owner alone."""
    contents = {".eml": write_eml(message)} | ({".html": message.html.encode()} if message.html else {})
    for suffix, content in contents.items():
        descriptor = os.open(stem.with_suffix(suffix), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
