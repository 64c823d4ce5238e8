"""The flow of `connector mail`: check every row, and then send each email at most once in the campaign.

A preview writes the first emails as files, and sends none.
"""

import asyncio
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from pathlib import Path
from typing import assert_never

from connector.atomic_file import create_private_file
from connector.control import Stop, enter_in_thread, ignore_cancellation
from connector.databases import format_ledger_location, parse_ledger_location
from connector.errors import (
    ConfigurationError,
    ConnectorError,
    ContentError,
    LedgerError,
    LockedError,
    RunAborted,
    SourceError,
)
from connector.ledger.emails import Campaign, EmailLog
from connector.ledger.opening import open_email_log, open_existing_email_log, start_pace
from connector.ledger.records import read_suppression_size, record_suppression_size
from connector.ledger.schema import email_meta
from connector.mail.campaign import (
    Addressee,
    CampaignEmail,
    CampaignHistory,
    CampaignSender,
    MailPolicy,
    SendResult,
    read_history,
    record_campaign_start,
    refuse_older_ledger,
)
from connector.mail.checking import MailCheck, MailPlan, MailRows, check_rows, read_inactive_addresses
from connector.mail.draft import MailTexts
from connector.mail.message import Recipient, format_eml
from connector.mail.single import send_without_record
from connector.outcomes import MailOutcome, Outcome, needs_person
from connector.progress import Progress, ProgressMeter
from connector.rows import Row
from connector.runs.rejects import is_workbook_name
from connector.runs.report import (
    Report,
    RunScope,
    Status,
    UncountedRowsError,
    count_mail_rows,
    describe_fault,
    describe_rate,
    describe_row_limit,
    drop_empty_values,
    end_report,
    end_run,
    record_report,
    start_report,
)
from connector.runs.row_files import RejectsFile
from connector.runs.run_log import list_runs
from connector.service.client import open_client
from connector.service.retry import Retrier
from connector.settings import build_service, limit_in_flight_count
from connector.states import EmailState
from connector.subscribers.identity import IDENTITY_BYTES, InactiveIdentities, digest_identity, join_digests
from connector.tally import Problem, exceeds_share
from connector.texts import choose_form, count

_BATCH_SIZE = 256  # rows that one query of the ledger looks up


@dataclass(slots=True)
class _Run:
    plan: MailPlan
    report: Report
    stop: Stop
    progress: Progress
    rejects: RejectsFile
    mail_check: MailCheck = field(default_factory=MailCheck)
    reported_digests: set[bytes] = field(default_factory=set)  # recipients with a line in the rejects file
    has_unknown_emails_without_row: bool = False  # whether an email without a certain answer has no row in this run
    is_token_refused: bool = False  # whether the service refused the token at the first email
    unreported_count: int = 0  # number of emails with the recorded state `sending` and no outcome

    def on_result(self, addressee: Addressee, result: SendResult) -> None:
        """Count the outcome of a recipient's email. If a person must act, write the outcome to the rejects file."""
        self.mail_check.outcomes[result.outcome] += 1
        if needs_person(result.outcome):
            self.reported_digests.add(addressee.recipient_digest)
            outcome, message, status = result.outcome, result.message, result.status
            self.rejects.write_problem(Problem(addressee.row, Outcome(outcome), "email", outcome, message, status))


async def run_mail(plan: MailPlan, stop: Stop, progress: Progress) -> Report:
    """Check all rows, send the emails that may be sent, and report each row's outcome."""
    clock = stop.clock
    report = start_report("mail", plan.job, clock.now(), _describe_scope(plan))
    report.rows = count_mail_rows(0, {})
    with record_report(report, plan.settings.state_dir, plan.settings.retention_s, clock.now):
        try:
            with ExitStack() as stack:
                stack.enter_context(plan.source)
                rejects_path = plan.settings.state_dir / "rejects" / f"{report.run_id}.csv"
                workbook_path = rejects_path.with_suffix(".xlsx") if is_workbook_name(plan.source.name) else None
                rejects = stack.enter_context(
                    RejectsFile(
                        rejects_path, plan.source.columns, report.run_id, clock.now, workbook_path=workbook_path
                    )
                )
                run = _Run(plan, report, stop, progress, rejects)
                email_log = stack.enter_context(
                    open_email_log(plan.settings.ledger_url, may_create=plan.settings.may_create_ledger)
                )
                campaign_context = email_log.hold_campaign(
                    plan.settings.account,
                    plan.campaign,
                    is_new_account=plan.is_new_account,
                    is_reopening=plan.is_reopening,
                    wait_s=plan.wait_s,
                    is_stopped=stop.event.is_set,
                )
                async with enter_in_thread(campaign_context, stop) as campaign:
                    reports = list_runs(plan.settings.state_dir)
                    record_campaign_start(
                        email_log, campaign, report.started_at, reports, is_reopening=plan.is_reopening
                    )
                    await _check_and_send(run, email_log, campaign)
        except LockedError as error:
            report.signal = stop.signal
            end_report(report, "locked" if stop.signal is None else "stopped", clock.now(), str(error))
        except LedgerError as error:
            status: Status = "usage" if isinstance(error, ConfigurationError) else "aborted"
            end_report(report, status, clock.now(), str(error))
    return report


def _describe_scope(plan: MailPlan) -> RunScope:
    settings = {
        "job_file": "" if plan.job_path is None else str(plan.job_path),
        "campaign": plan.campaign,
        "limit": describe_row_limit(plan.row_limit),
        "max_rate": describe_rate(plan.policy.max_rate),
        "retry_limited": "yes" if plan.policy.resends_after_429 else "",
    }
    service_url, account = plan.settings.service.base_url, plan.settings.account
    return RunScope(plan.source.name, service_url, "", account, drop_empty_values(settings))


async def _check_and_send(run: _Run, email_log: EmailLog, campaign: Campaign) -> None:
    """Check the rows, send the emails, and end the report. Raises ConfigurationError if the token or the settings are
    refused before any email was sent."""
    reason, is_run_refused = None, False
    with email_log.transaction():
        email_log.mark_sending_emails_unknown(campaign)
    try:
        with MailRows() as mail_rows:
            await _check_in_thread(run, mail_rows)
            _check_suppression_size(email_log, run.plan, run.mail_check, is_recording_size=True)
            invalid_count, read_count = run.mail_check.outcomes[MailOutcome.INVALID], run.mail_check.read_count
            if run.plan.max_invalid is not None and exceeds_share(invalid_count, run.plan.max_invalid, read_count):
                reason = (
                    f"{invalid_count:,} of {count(read_count, 'row')} {choose_form(invalid_count, 'is', 'are')} "
                    f"invalid, and guard.max_invalid allows {run.plan.max_invalid:.1%}. Nothing was sent. "
                    "Correct the rows or the templates, and run again"
                )
            else:
                reason = await _send_emails(run, email_log, campaign, mail_rows)
        _report_unknown_emails_without_row(run, email_log, campaign)
    except ConfigurationError as error:
        reason, is_run_refused = str(error), True
    except ConnectorError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - also after a bug, the run ends with a report
        reason = describe_fault(error)
    except asyncio.CancelledError:
        if run.stop.signal is None:
            raise
        reason = "a second signal ended the run: emails without an answer are unknown, and will not be sent again"
        ignore_cancellation()
    # Rows that the run did not reach are unsent.
    # An email with the recorded state `sending` and no outcome does not count as unsent.
    unsent_count = run.mail_check.read_count - run.mail_check.outcomes.total() - run.unreported_count
    run.mail_check.outcomes[MailOutcome.UNSENT] += unsent_count
    _end_report(run, reason or run.rejects.failure)
    has_sent_email = run.report.requests.get("send", {}).get("sent", 0) > 0
    # If an email was sent, the run ends with a report instead of an error.
    is_run_refused = is_run_refused and not has_sent_email
    if (run.is_token_refused or is_run_refused) and reason is not None:
        raise ConfigurationError(reason)


def _check_suppression_size(
    email_log: EmailLog, plan: MailPlan, mail_check: MailCheck, *, is_recording_size: bool
) -> None:
    """Compare the size of the suppression list with its size in the last run. With `is_recording_size`, record the new
    size. Raises ConfigurationError and LedgerError."""
    suppression, account = mail_check.suppression, plan.settings.account
    if suppression is None:
        return
    with email_log.transaction():
        suppression.refuse_shrunk_list(read_suppression_size(email_log.connection, email_meta, account, suppression))
        if is_recording_size:
            record_suppression_size(email_log.connection, email_meta, account, suppression)


async def _check_in_thread(run: _Run, mail_rows: MailRows) -> None:
    """Check all rows in a thread, so that signals are handled during the check."""
    run.progress.set_describe_function(lambda: f"checking: {mail_rows.row_count:,} emails can be sent so far")
    now, is_stopped = run.report.started_at, run.stop.event.is_set
    try:
        await asyncio.to_thread(
            check_rows, run.plan, now, mail_rows, run.mail_check, run.rejects.write_problem, is_stopped
        )
    except asyncio.CancelledError:  # copy the results, because the thread may still change them for a moment
        run.mail_check = MailCheck(
            Counter(run.mail_check.outcomes), list(run.mail_check.messages), run.mail_check.read_count
        )
        raise
    finally:
        run.report.messages += dict.fromkeys(run.mail_check.messages)


async def _send_emails(run: _Run, email_log: EmailLog, campaign: Campaign, mail_rows: MailRows) -> str | None:
    """Send the emails for the checked rows. Return the reason if the run ended early, else None."""
    plan = run.plan
    service = build_service(plan.settings, plan.policy.max_concurrency)
    max_rate, max_concurrency = plan.policy.max_rate, limit_in_flight_count(service, plan.policy.max_concurrency)
    policy = replace(plan.policy, max_concurrency=max_concurrency)
    pace = await start_pace(plan.settings, max_rate, run.stop.clock, run.stop, max_concurrency=max_concurrency)
    async with open_client(service) as client:
        run_id = run.report.run_id
        campaign_sender = CampaignSender(
            run.stop, email_log, campaign, run_id, client, Retrier(clock=run.stop.clock), run.on_result, pace, policy
        )
        progress_meter = ProgressMeter(run.stop.clock.monotonic)

        def describe_progress() -> str:
            sent_count, pause_s = (
                run.mail_check.outcomes[MailOutcome.SENT],
                client.paused_until - run.stop.clock.monotonic(),
            )
            pause_text = f" (waiting {pause_s:.0f} s: the service has asked for a pause)" if pause_s > 1 else ""
            return f"{sent_count:,} sent; {progress_meter.describe(sent_count, mail_rows.row_count)}{pause_text}"

        try:
            inactive_identities = InactiveIdentities()
            if plan.skips_inactive and mail_rows.row_count:
                run.progress.set_describe_function(lambda: "reading the inactive subscribers of the service")
                inactive_identities = await read_inactive_addresses(client, run.stop)
            run.progress.set_describe_function(describe_progress)
            await campaign_sender.send(_EmailStream(run, campaign_sender, mail_rows, inactive_identities).fetch)
        finally:
            run.report.copy_request_counts(client)
            run.is_token_refused = campaign_sender.is_token_refused
            run.unreported_count = campaign_sender.unreported_count
            if campaign_sender.resent_count:
                run.report.messages.append(
                    f"The service refused emails with 429 ({count(campaign_sender.resent_count, 'time')}), and this "
                    "run sent them again (mail.retry_limited). If the service delivered an email in spite of its 429, "
                    "the recipient got two emails"
                )
    return run.stop.reason


class _EmailStream:
    """The emails for the checked rows whose recipients may get the email. An email is composed when the sender fetches
    the email.

    Recipients count as suppressed if they are inactive in the service, or if the list does not show whether they are
    active.
    """

    def __init__(
        self, run: _Run, campaign_sender: CampaignSender, mail_rows: MailRows, inactive_identities: InactiveIdentities
    ) -> None:
        self._texts, self._now = run.plan.texts, run.report.started_at
        self._run, self._campaign_sender, self._inactive_identities = run, campaign_sender, inactive_identities
        self._batches = mail_rows.read(_BATCH_SIZE)
        self._sendable_addressees = deque[Addressee]()

    async def fetch(self, max_count: int) -> list[CampaignEmail]:
        """Return the next emails, at most `max_count`, or an empty list at the end. Raises LedgerError."""
        emails: list[CampaignEmail] = []
        while not emails and await self._look_up_next_rows():
            addressees = [
                self._sendable_addressees.popleft() for _ in range(min(max_count, len(self._sendable_addressees)))
            ]
            for addressee in addressees:
                message = self._texts.compose(addressee.row, self._now)
                emails.append(CampaignEmail(addressee.row, addressee.recipient_digest, addressee.address, message))
        return emails

    async def _look_up_next_rows(self) -> bool:
        """Look up rows until at least one recipient may get an email. Return False at the end of the rows."""
        while not self._sendable_addressees and (batch := next(self._batches, None)) is not None:
            addressees = [_find_addressee(self._texts, row) for row in batch]
            recipient_digests = join_digests([addressee.recipient_digest for addressee in addressees], IDENTITY_BYTES)
            inactive_mask = self._inactive_identities.build_digest_mask(recipient_digests)
            self._run.mail_check.outcomes[MailOutcome.SUPPRESSED] += int(inactive_mask.sum())
            self._sendable_addressees += self._campaign_sender.look_up(list(compress(addressees, ~inactive_mask)))
            await asyncio.sleep(0)
        return bool(self._sendable_addressees)


def _find_addressee(texts: MailTexts, row: Row) -> Addressee:
    address = texts.read_address(row)
    return Addressee(row, digest_identity("email", address), address)


def _report_unknown_emails_without_row(run: _Run, email_log: EmailLog, campaign: Campaign) -> None:
    """Report each email of the campaign that got no certain answer, and whose recipient is in no row of this run."""
    with email_log.transaction():
        entries_without_row = [
            entry for entry in email_log.read_unsettled_emails(campaign) if entry.recipient not in run.reported_digests
        ]
    for entry in entries_without_row:
        message = f"{entry.address!r}: the run {entry.run_id} sent the email, and no certain answer came"
        run.rejects.write_problem(Problem(Row(0, "", (), ()), Outcome.UNKNOWN, "email", "unknown", message))
    run.has_unknown_emails_without_row = bool(entries_without_row)
    if entry_count := len(entries_without_row):
        run.report.messages.append(
            f"{count(entry_count, 'more recipient')} of this campaign may have got the email, but this run read no row "
            f"of {choose_form(entry_count, 'this recipient', 'these recipients')}. The rejects file lists "
            f"{choose_form(entry_count, 'the recipient', 'the recipients')}"
        )


def _end_report(run: _Run, reason: str | None) -> None:
    report, ended_at = run.report, run.stop.clock.now()
    run.rejects.close()
    report.rejects_file, report.causes = run.rejects.path, run.rejects.findings.causes
    try:
        report.rows = count_mail_rows(run.mail_check.read_count, run.mail_check.outcomes)
    except UncountedRowsError as error:
        report.rows, reason = error.rows, f"{reason or 'a fault of the program'}; also, {error}"
    is_partial = run.has_unknown_emails_without_row or any(
        row_count for outcome, row_count in run.mail_check.outcomes.items() if needs_person(outcome)
    )
    status: Status = "aborted" if reason is not None else "partial" if is_partial else "ok"
    end_run(report, run.stop, status, ended_at, reason)


_MAX_SHOWN_FAULTS = 10


async def write_preview(plan: MailPlan, folder: Path, email_count: int, stop: Stop, progress: Progress) -> Report:
    """Check every row, and write the first `email_count` emails into `folder`. Raises ConfigurationError if the folder
    is not empty or cannot be written."""
    clock = stop.clock
    report = start_report("mail", plan.job, clock.now(), _describe_scope(plan))
    report.is_planned = True
    _make_folder(folder)
    faults: list[str] = []
    mail_check = MailCheck()

    def on_problem(problem: Problem) -> None:
        if len(faults) < _MAX_SHOWN_FAULTS:
            faults.append(f"row {problem.row.number} is invalid: {problem.message}")

    now, is_stopped = report.started_at, stop.event.is_set
    with plan.source, MailRows() as mail_rows:
        progress.set_describe_function(lambda: f"checking: {mail_rows.row_count:,} emails can be sent so far")
        try:
            await asyncio.to_thread(check_rows, plan, now, mail_rows, mail_check, on_problem, is_stopped)
        except ContentError:
            raise
        except (SourceError, RunAborted) as error:
            report.rows = count_mail_rows(0, {})
            report.messages += dict.fromkeys(mail_check.messages)
            return end_run(report, stop, "aborted", clock.now(), str(error))
        outcomes = Counter(mail_check.outcomes) + await asyncio.to_thread(
            _predict_outcomes, plan, mail_rows, mail_check
        )
        for email_number, (row,) in enumerate(islice(mail_rows.read(1), email_count), start=1):
            with create_private_file(folder / f"{email_number:04d}.eml") as file:  # only the owner can read the file
                file.write(format_eml(plan.texts.compose(row, now)))
    report.rows = count_mail_rows(mail_check.read_count, outcomes)
    report.messages += [*dict.fromkeys(mail_check.messages), *faults]
    written_count = min(email_count, mail_rows.row_count)
    if plan.skips_inactive:
        report.messages.append(
            "The preview does not read the service's list. The campaign also leaves out addresses that the list shows "
            "as inactive (skip_inactive)"
        )
    report.messages.append(
        f"Nothing was sent. {count(written_count, 'email')} {choose_form(written_count, 'was', 'were')} written to the "
        f"folder {folder}, as .eml files that a mail program can open"
    )
    status: Status = "partial" if mail_check.outcomes[MailOutcome.INVALID] else "ok"
    return end_report(report, status, clock.now())


async def send_sample(plan: MailPlan, recipient: Recipient, stop: Stop) -> Report:
    """Send the email of the first valid row to `recipient` immediately, and record nothing. Raises ConfigurationError
    if no row is valid. Raises the errors of `check_rows`."""
    now = stop.clock.now()
    with plan.source, MailRows() as mail_rows:
        await asyncio.to_thread(check_rows, plan, now, mail_rows, MailCheck(), lambda _: None, stop.event.is_set)
        row = next((row for rows in mail_rows.read(1) for row in rows), None)
        if row is None:
            raise ConfigurationError("no row is valid, so no email can be sent. Run with --preview 1 to see why")
        message = plan.texts.compose(row, now)
    message = replace(message, to=(recipient,), settings=replace(message.settings, send_at=None))
    return await send_without_record(message, plan.settings, plan.job, stop)


def _predict_outcomes(plan: MailPlan, mail_rows: MailRows, mail_check: MailCheck) -> Counter[MailOutcome]:
    """Return the outcomes that the checked rows would have, as far as the ledger shows. Raises LedgerError."""
    outcomes = Counter[MailOutcome]()
    account, reports = plan.settings.account, list_runs(plan.settings.state_dir)
    with open_existing_email_log(plan.settings.ledger_url) as email_log:
        if email_log is None:
            if not plan.is_reopening:
                ledger_name = format_ledger_location(parse_ledger_location(plan.settings.ledger_url))
                refuse_older_ledger(ledger_name, account, plan.campaign, reports, CampaignHistory())
            return Counter({MailOutcome.SENT: mail_rows.row_count})
        _check_suppression_size(email_log, plan, mail_check, is_recording_size=False)
        with email_log.transaction():
            campaign = email_log.find_campaign(
                account, plan.campaign, is_new_account=plan.is_new_account, is_reopening=plan.is_reopening
            )
            if not plan.is_reopening:
                history = CampaignHistory() if campaign is None else read_history(email_log, campaign)
                refuse_older_ledger(email_log.name, account, plan.campaign, reports, history)
            for batch in mail_rows.read(_BATCH_SIZE):
                recipient_digests = [_find_addressee(plan.texts, row).recipient_digest for row in batch]
                entry_by_digest = email_log.find_emails(campaign, recipient_digests) if campaign is not None else {}
                for recipient_digest in recipient_digests:
                    entry = entry_by_digest.get(recipient_digest)
                    state = EmailState.NONE if entry is None else entry.state
                    outcomes[_predict_outcome(state, plan.policy)] += 1
    return outcomes


def _predict_outcome(state: EmailState, policy: MailPolicy) -> MailOutcome:
    match state:
        case EmailState.NONE:
            return MailOutcome.SENT
        case EmailState.SENT:
            return MailOutcome.ALREADY_SENT
        case EmailState.REFUSED:
            return MailOutcome.SENT if policy.sends_rejected_again else MailOutcome.REJECTED
        case EmailState.SENDING | EmailState.UNKNOWN:
            return MailOutcome.UNKNOWN
    assert_never(state)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigurationError(f"{folder} is not empty: name a new folder with --preview-dir")
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be made or read: {error.strerror}; name another folder with --preview-dir"
        ) from None
