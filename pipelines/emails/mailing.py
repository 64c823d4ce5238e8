"""The flow of `connector mail`: check every row, then send each its email, at most once in the campaign."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from connector.api.client import Client, open_client
from connector.api.retries import Retrier
from connector.clock import Clock, system_clock
from connector.errors import ConnectorError, LedgerError, LockedError
from connector.ledger import Campaign, EmailLog, open_emails
from connector.load import Problem, Row
from connector.mail.mailer import Addressee, Letter, Mailer, MailPolicy, Told
from connector.outcomes import MailOutcome, Outcome
from connector.pace import Pace
from connector.plan.digests import digest_identity
from connector.plan.suppression import Suppression
from connector.protocol.email import Message
from connector.protocol.email_rules import MessageError
from connector.rows import Source
from connector.templates import TemplateError
from pipelines.emails.checking import Checked, Checker, read_cells
from pipelines.emails.spool import Kept, Spool, digest_files
from pipelines.emails.templates import MailTexts
from pipelines.rows.rejects import RejectsFile
from pipelines.rows.suppressing import SuppressionPlan, read_suppression
from pipelines.runs.faults import describe_fault
from pipelines.runs.progress import Progress
from pipelines.runs.report import (
    Report,
    UncountedError,
    count_mail_rows,
    count_requests,
    end_report,
    start_report,
)
from pipelines.runs.stopping import Stop, enter_in_thread, stay_alive
from pipelines.settings import Settings, build_service
from pipelines.words import agree, count

_AT_ONCE = 256  # rows that are looked up in the ledger together
_FOR_A_PERSON = (MailOutcome.INVALID, MailOutcome.REJECTED, MailOutcome.UNKNOWN)


@dataclass(frozen=True, slots=True)
class MailPlan:
    """A campaign to be sent."""

    job: str
    campaign: str
    source: Source
    texts: MailTexts
    settings: Settings
    policy: MailPolicy
    max_rate: float
    max_concurrency: int
    suppression: SuppressionPlan | None = None
    max_invalid: float | None = None
    limit: int | None = None
    wait_s: float = 0.0
    is_new_account: bool = False  # a campaign that the ledger knows under another account is another one
    is_reopening: bool = False  # a campaign that was closed when the ledger was restored is sent on


@dataclass(slots=True)
class _Run:
    """One mail run in progress."""

    plan: MailPlan
    report: Report
    stop: Stop
    progress: Progress
    clock: Clock
    rejects: RejectsFile
    checked: Checked = field(default_factory=Checked)
    told: set[bytes] = field(default_factory=set)  # recipients known to be unknown, of whom a row was read
    has_others: bool = False  # there are unknown ones of whom none was
    rows: dict[bytes, Kept] = field(default_factory=dict)  # of those whose outcome is not known yet

    @property
    def outcomes(self) -> Counter[MailOutcome]:
        """Those so far."""
        return self.checked.outcomes

    def hear(self, problem: Problem, raw: str | None) -> None:
        self.rejects.write(problem, raw)

    def hear_of(self, addressee: Addressee, told: Told) -> None:
        """What became of somebody's email."""
        row = self.rows.pop(addressee.recipient).row
        self.outcomes[told.outcome] += 1
        if told.outcome in _FOR_A_PERSON:
            self.told.add(addressee.recipient)
            self.hear(Problem(row, Outcome(told.outcome), "email", told.outcome, told.words, told.status), None)


async def run_mail(plan: MailPlan, stop: Stop, progress: Progress, clock: Clock | None = None) -> Report:
    """Check all rows, send what may be sent, and tell what became of each."""
    clock = clock or system_clock()
    report = start_report("mail", plan.job, clock.now())
    report.rows = count_mail_rows(0, {})
    try:
        with ExitStack() as opened:
            opened.enter_context(plan.source)
            path = plan.settings.state_dir / "rejects" / f"{report.run_id}.csv"
            rejects = opened.enter_context(RejectsFile(path, plan.source.columns, report.run_id, clock.now))
            run = _Run(plan, report, stop, progress, clock, rejects)
            log = opened.enter_context(open_emails(plan.settings.ledger_url))
            held = log.hold_campaign(
                plan.settings.account,
                plan.campaign,
                is_new_account=plan.is_new_account,
                is_reopening=plan.is_reopening,
                wait_s=plan.wait_s,
                is_stopped=stop.event.is_set,
            )
            async with enter_in_thread(held, stop) as campaign:
                await _work(run, log, campaign)
    except LockedError as error:
        report.signal = stop.signal
        end_report(report, "locked" if stop.signal is None else "stopped", clock.now(), str(error))
    except LedgerError as error:
        end_report(report, "aborted", clock.now(), str(error))
    return report


async def _work(run: _Run, log: EmailLog, campaign: Campaign) -> None:
    reason = None
    with log.transaction():
        log.mark_died(campaign)
    try:
        with Spool() as spool:
            await _check(run, spool)
            run.report.messages += [*dict.fromkeys(run.checked.messages), *sorted(run.checked.warnings)]
            reason = _judge_invalid(run.plan, run.checked)
            if reason is None:
                reason = await _send(run, log, campaign, spool)
        _tell_others(run, log, campaign)
    except ConnectorError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - a fault of ours: the run ends in a report all the same
        reason = describe_fault(error)
    except asyncio.CancelledError:
        if run.stop.signal is None:
            raise
        reason = "a second signal ended it: emails whose answer had not come are unknown, and never sent again"
        stay_alive()
    run.outcomes[MailOutcome.UNSENT] += run.checked.read - run.outcomes.total()  # of a run that broke off
    _end(run, reason or run.rejects.failure)


async def _check(run: _Run, spool: Spool) -> None:
    """In a thread, so that a signal is heard meanwhile."""
    plan, suppression = run.plan, None
    is_stopped = run.stop.event.is_set
    if plan.suppression is not None:
        suppression, messages = await asyncio.to_thread(read_suppression, plan.suppression, is_stopped)
        run.report.messages += messages
    checker = _build_checker(run, suppression, is_stopped)
    run.progress.follow(lambda: f"checking: {spool.rows:,} emails can be sent so far")
    try:
        await asyncio.to_thread(checker.check, spool, run.checked)
    except asyncio.CancelledError:  # the thread goes on for a moment
        run.checked = Checked(Counter(run.checked.outcomes), read=run.checked.read)
        raise


def _build_checker(run: _Run, suppression: Suppression | None, is_stopped: Callable[[], bool]) -> Checker:
    plan = run.plan
    return Checker(plan.source, plan.texts, run.report.started_at, plan.limit, suppression, run.hear, is_stopped)


def _judge_invalid(plan: MailPlan, checked: Checked) -> str | None:
    """Why nothing is sent, if too many rows are invalid."""
    invalid = checked.outcomes[MailOutcome.INVALID]
    if plan.max_invalid is None or invalid <= plan.max_invalid * checked.read:
        return None
    return (
        f"{invalid:,} of {count(checked.read, 'row')} {agree(invalid, 'is', 'are')} invalid, "
        f"and guard.max_invalid allows {plan.max_invalid:.1%}: "
        "nothing was sent; correct them, or the templates, and run again"
    )


async def _send(run: _Run, log: EmailLog, campaign: Campaign, spool: Spool) -> str | None:
    """Send the rows of the spool; returns why it ended early."""
    plan = run.plan
    async with open_client(build_service(plan.settings, plan.max_concurrency)) as client:
        mailer = _build_mailer(run, log, campaign, client)
        run.progress.follow(
            lambda: f"{run.outcomes[MailOutcome.SENT]:,} of {spool.rows:,} sent at {mailer.rate:,.0f}/s"
        )
        try:
            async with mailer:
                for batch in spool.read(_AT_ONCE):
                    addressees = [_name_addressee(run, kept) for kept in batch]
                    await mailer.mail(_write_letters(run, mailer, await mailer.look_up(addressees)))
        finally:
            run.report.requests = count_requests(client.counts)
            if mailer.sent_again:
                run.report.messages.append(
                    f"{mailer.sent_again:,} times an email was refused for its rate (429) and sent again, as "
                    "mail.retry_limited says: if the service sends what it refuses, somebody has two"
                )
    return mailer.reason


def _build_mailer(run: _Run, log: EmailLog, campaign: Campaign, client: Client) -> Mailer:
    plan = run.plan
    pace = Pace(plan.max_rate, plan.max_concurrency)
    stopping = run.stop.event
    return Mailer(
        log, campaign, run.report.run_id, client, Retrier(), pace, run.clock, stopping, run.hear_of, plan.policy
    )


def _name_addressee(run: _Run, kept: Kept) -> Addressee:
    address = run.plan.texts.read_address(read_cells(kept.row))
    addressee = Addressee(digest_identity("email", address), address)
    run.rows[addressee.recipient] = kept
    return addressee


def _write_letters(run: _Run, mailer: Mailer, addressees: Sequence[Addressee]) -> list[Letter]:
    """Their emails once more, as they were checked; none once the run is to end."""
    letters = []
    for each in addressees:
        try:
            if mailer.is_going_on:
                letters.append(Letter(each.recipient, each.address, _compose_again(run, run.rows[each.recipient])))
            else:
                run.hear_of(each, Told(MailOutcome.UNSENT))
        except (MessageError, TemplateError) as error:  # a file that was there when it was checked is not any more
            run.hear_of(each, Told(MailOutcome.INVALID, None, str(error)))
    return letters


def _compose_again(run: _Run, kept: Kept) -> Message:
    """The email as it was checked. Raises MessageError if a file that goes with it is another by now."""
    message = run.plan.texts.compose(read_cells(kept.row), run.report.started_at).message
    if digest_files(message) != kept.files:
        raise MessageError(
            "Email.Attachments", "a file was altered after it was checked; run again to send it as it is"
        )
    return message


def _tell_others(run: _Run, log: EmailLog, campaign: Campaign) -> None:
    """Recipients of the campaign who are unknown, and whose rows this run did not read."""
    with log.transaction():
        others = [each for each in log.read_unsettled(campaign) if each.recipient not in run.told]
    for each in others:
        words = f"{each.address}: the run {each.run_id} sent it, and no certain answer came"
        run.hear(Problem(Row(0, "", (), ()), Outcome.UNKNOWN, "email", "unknown", words, each.status), None)
    run.has_others = bool(others)
    if others:
        run.report.messages.append(
            f"{len(others):,} further recipients of this campaign, who are not among these rows, may or may not have "
            "been sent their email: the rejects file names them"
        )


def _end(run: _Run, reason: str | None) -> None:
    report, at = run.report, run.clock.now()
    report.rejects_file = run.rejects.path
    try:
        report.rows = count_mail_rows(run.checked.read, run.outcomes)
    except UncountedError as error:
        report.rows, reason = error.rows, f"{reason or 'a fault of the program'}; besides, {error}"
    if run.stop.signal is not None:
        report.signal = run.stop.signal
        end_report(report, "stopped", at, reason)
    elif reason is not None:
        end_report(report, "aborted", at, reason)
    else:
        is_partial = run.has_others or any(run.outcomes[each] for each in _FOR_A_PERSON)
        end_report(report, "partial" if is_partial else "ok", at)
