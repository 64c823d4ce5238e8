"""The plan of a mail run, and the check of all rows before the first email is sent."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from connector.control import Stop
from connector.errors import ConfigurationError, RunAborted
from connector.imports.suppression import SuppressionPlan, read_suppression
from connector.listing.access import shows_identity
from connector.listing.pages import ListFailed, TokenRefusedError, fetch_page
from connector.listing.reader import read_list
from connector.load.candidates import extract_rows
from connector.mail.campaign import MailPolicy
from connector.mail.draft import MailTexts
from connector.mail.message import MessageError
from connector.outcomes import MailOutcome, Outcome
from connector.rows import CloseableResource, Row, Source
from connector.runs.row_files import build_invalid_problems, build_malformed_problem
from connector.service.client import Client
from connector.service.retry import Retrier
from connector.service.wire import MAX_LIMIT, ListQuery, WireRows
from connector.settings import Settings
from connector.spool import SpooledValues
from connector.spooled_rows import SpooledRows
from connector.subscribers.consent import find_inactive_rows
from connector.subscribers.headers import guess_mapping
from connector.subscribers.identity import InactiveIdentities, Suppression, digest_identity, split_digests
from connector.subscribers.preparation import PreparedChunk, find_possible_identities, prepare_chunks
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from connector.tally import Problem
from connector.templates import TemplateError
from connector.texts import choose_form, count

# The addresses that are inactive in the service


_UNREADABLE_ACTIVITY_MESSAGE = (
    "No row of the service's list shows an IsActive that can be read, so the list does not show who has unsubscribed. "
    "Nothing was sent. Delete the rows of people who have unsubscribed, or add these people to a suppression list (the "
    "job key `suppress`). Then set `skip_inactive: false` in the job"
)
_NOTHING_SENT_MESSAGE = (
    "Nothing was sent, because people who have unsubscribed could get this email. To send without reading the list, "
    "set `skip_inactive: false` in the job"
)


class _InactiveAddressSink:
    def __init__(self) -> None:
        self.inactive_addresses = InactiveIdentities()
        self.has_inactive_rows = False
        self.has_inactive_emails = False

    def start_sweep(self, sweep_number: int) -> None:
        """Do nothing, because an address that an earlier sweep found inactive must also get no email."""

    def receive_rows(self, rows: WireRows) -> None:
        """Collect the email addresses of the inactive subscribers among these rows of the list."""
        for row in rows:
            if row.get("IsActive") is True:  # a missing IsActive is false (service-api.md 2.1)
                continue
            self.has_inactive_rows = True
            if shows_identity(row, "email"):
                self.has_inactive_emails = True
                self.inactive_addresses.add(digest_identity("email", row["Email"]))


async def read_inactive_addresses(client: Client, stop: Stop) -> InactiveIdentities:
    """Return the addresses that are inactive in the service.

    Raises RunAborted if the list is incomplete or shows no email. Raises ConfigurationError if no row of the first page
    has an IsActive that can be read, or if the service refuses the token.
    """
    clock, address_sink, query = stop.clock, _InactiveAddressSink(), ListQuery(limit=MAX_LIMIT)
    retrier = Retrier(clock=clock)
    try:
        rows = (await stop.wait_until_stopped(fetch_page(client, retrier, query))).subscribers
        if rows and not any(isinstance(row.get("IsActive"), bool) for row in rows):
            raise ConfigurationError(_UNREADABLE_ACTIVITY_MESSAGE)
        address_sink.receive_rows(rows)
        inactive_query = replace(query, is_active=False)
        list_reading = read_list(
            client, retrier, inactive_query, address_sink, now=clock.now, monotonic=clock.monotonic
        )
        certificate = await stop.wait_until_stopped(list_reading)
    except TokenRefusedError:
        raise
    except ListFailed as error:
        raise RunAborted(f"{error} {_NOTHING_SENT_MESSAGE}") from None
    if not certificate.is_complete:
        raise RunAborted(
            f"The list of inactive subscribers is incomplete ({certificate.reason.value}). {_NOTHING_SENT_MESSAGE}"
        )
    if address_sink.has_inactive_rows and not address_sink.has_inactive_emails:
        raise RunAborted(f"The list shows no email address of inactive subscribers. {_NOTHING_SENT_MESSAGE}")
    return address_sink.inactive_addresses


class MailRows(CloseableResource):
    """Rows on the disk, in the order of the source. All rows are written before the first row is read."""

    def __init__(self) -> None:
        self._spooled_rows = SpooledValues()
        self.row_count = 0

    def add(self, row: Row) -> None:
        """Add a row. Raises RunAborted if the disk is full."""
        self._spooled_rows.add([(row.number, row.file, row.columns, row.cells)])
        self.row_count += 1

    def read(self, batch_size: int) -> Iterator[list[Row]]:
        """Yield all rows in lists of `batch_size` rows. Raises RunAborted if the rows cannot be read from the disk."""
        for first_index in range(0, self.row_count, batch_size):
            rows = (
                self._spooled_rows.read(index)
                for index in range(first_index, min(first_index + batch_size, self.row_count))
            )
            yield [Row(row_number, file, tuple(columns), tuple(cells)) for row_number, file, columns, cells in rows]

    def close(self) -> None:
        """Delete the rows."""
        self._spooled_rows.close()


_EMAIL_RULES = ValidationRules(identity_field="email")


@dataclass(slots=True)
class MailCheck:
    """The results of a check: the outcomes of rows that get no email, and messages for a person."""

    outcomes: Counter[MailOutcome] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    read_count: int = 0
    # Number of suppressed rows. A consent column of the row, or of another row, shows that the address is inactive.
    inactive_count: int = 0
    suppression: Suppression | None = None


@dataclass(frozen=True, slots=True)
class MailPlan:
    """The plan of a mail run."""

    job: str
    job_path: Path | None
    campaign: str
    source: Source
    texts: MailTexts
    settings: Settings
    policy: MailPolicy
    ignored_columns: tuple[str, ...] = ()  # columns that are not checked for consent
    skips_inactive: bool = True  # send no email to an address that the service lists as inactive
    suppression: SuppressionPlan | None = None
    max_invalid: float | None = None
    row_limit: int | None = None
    wait_s: float = 0.0
    is_new_account: bool = False  # start a new campaign even if another account has a campaign of this name
    is_reopening: bool = False  # continue a campaign that a restore of the ledger closed


def check_rows(
    plan: MailPlan,
    now: datetime,
    mail_rows: MailRows,
    mail_check: MailCheck,
    on_problem: Callable[[Problem], None],
    is_stopped: Callable[[], bool],
) -> None:
    """Check every row of the source. Add a row to `mail_rows` if an email can be sent for the row. `now` is the time of
    the run.

    The results are written into `mail_check`, even if an error is raised. Raises SourceError. Raises RunAborted if the
    run must stop or the disk is full.
    """
    suppression = None
    if plan.suppression is not None:
        suppression, messages = read_suppression(plan.suppression, is_stopped)
        mail_check.messages += messages
        mail_check.suppression = suppression
    mapping = FieldMapping({"email": ColumnRule(column=plan.texts.address_column)})
    chunks = prepare_chunks(
        plan.source,
        mapping,
        _EMAIL_RULES,
        today=now.date(),
        row_limit=None,  # a row beyond the limit may show that the recipient wants no email
        suppression=suppression,
        extra_columns=plan.texts.columns,
        ignored_columns=plan.ignored_columns,
    )
    activity_rule = guess_mapping(plan.source.columns).rules.get("is_active")
    activity_columns = activity_rule.columns if activity_rule is not None else ()
    consent_columns = dict.fromkeys(column for column in activity_columns if column not in plan.ignored_columns)
    with SpooledRows(plan.source, _EMAIL_RULES.identity_field) as source_rows:
        for prepared_chunk in source_rows.spool(chunks):
            if is_stopped():
                raise RunAborted("the run was stopped while its rows were being checked; nothing was sent")
            consent_columns |= dict.fromkeys(prepared_chunk.consent_columns)
            read_count = mail_check.read_count + prepared_chunk.chunk.record_count
            mail_check.read_count = read_count if plan.row_limit is None else min(read_count, plan.row_limit)
        inactive_recipients, unclear_recipients = InactiveIdentities(), InactiveIdentities()
        for prepared_chunk in source_rows.read():
            inactive_mask, unclear_mask = find_inactive_rows(prepared_chunk.chunk.frame, consent_columns)
            positions = prepared_chunk.valid_chunk.subscribers.index.to_numpy()
            identities = prepared_chunk.valid_chunk.identities
            for identity in split_digests(identities[inactive_mask[positions]]):
                inactive_recipients.add(identity)
            # If the source has consent columns, a malformed row may show that its address wants no email.
            malformed_identities, _ = find_possible_identities(
                prepared_chunk.chunk.malformed_rows if consent_columns else (), "email"
            )
            for identity in split_digests(np.concatenate([identities[unclear_mask[positions]], malformed_identities])):
                unclear_recipients.add(identity)
        for prepared_chunk in source_rows.read(plan.row_limit):
            if is_stopped():
                raise RunAborted("the run was stopped while its rows were being checked; nothing was sent")
            _check_chunk(
                prepared_chunk,
                plan,
                now,
                mail_rows,
                mail_check,
                on_problem,
                consent_columns,
                inactive_recipients,
                unclear_recipients,
            )
    if mail_check.inactive_count:
        inactive_count, column_count = mail_check.inactive_count, len(consent_columns)
        mail_check.messages.append(
            f"{count(inactive_count, 'row')} {choose_form(inactive_count, 'counts', 'count')} as suppressed, because "
            f"the {choose_form(column_count, 'column', 'columns')} {', '.join(consent_columns)} "
            f"{choose_form(column_count, 'shows', 'show')} that the "
            f"{choose_form(inactive_count, 'person wants', 'people want')} no email"
        )


def _check_chunk(
    prepared_chunk: PreparedChunk,
    plan: MailPlan,
    now: datetime,
    mail_rows: MailRows,
    mail_check: MailCheck,
    on_problem: Callable[[Problem], None],
    consent_columns: Mapping[str, None],
    inactive_recipients: InactiveIdentities,
    unclear_recipients: InactiveIdentities,
) -> None:
    """Check the rows of one chunk. `consent_columns` show whether a person wants email. `inactive_recipients` are the
    recipients that a row of the source shows as inactive. `unclear_recipients` are the recipients for whom a row is
    malformed, or has no clear value in a consent column."""
    chunk = prepared_chunk.chunk
    invalid_problems = [build_malformed_problem(row, chunk.name) for row in chunk.malformed_rows]
    invalid_problems += build_invalid_problems(chunk, prepared_chunk.faults)
    mail_check.messages += chunk.messages
    mail_check.outcomes[MailOutcome.DUPLICATE] += len(prepared_chunk.repeated_positions)
    mail_check.outcomes[MailOutcome.SUPPRESSED] += len(prepared_chunk.suppressed_positions)
    planned_chunk = prepared_chunk.planned_chunk
    inactive_mask = inactive_recipients.build_digest_mask(planned_chunk.identities)
    positions = planned_chunk.subscribers.index.to_numpy()
    inactive_count = int(np.count_nonzero(inactive_mask))
    mail_check.inactive_count += inactive_count
    mail_check.outcomes[MailOutcome.SUPPRESSED] += inactive_count
    positions = positions[~inactive_mask]
    unclear_mask = unclear_recipients.build_digest_mask(planned_chunk.identities[~inactive_mask])
    invalid_problems += [
        Problem(row, Outcome.INVALID, "is_active", "flag", f"{_UNCLEAR_CONSENT_MESSAGE}: {', '.join(consent_columns)}")
        for row in extract_rows(chunk, positions[unclear_mask].tolist())
    ]
    mail_check.outcomes[MailOutcome.INVALID] += len(invalid_problems)
    for problem in invalid_problems:
        on_problem(problem)
    for row in extract_rows(chunk, positions[~unclear_mask].tolist()):
        try:
            plan.texts.compose(row, now)
        except MessageError as error:
            problem = Problem(row, Outcome.INVALID, error.field, "email", f"{error.field} {error.problem}")
        except TemplateError as error:
            problem = Problem(row, Outcome.INVALID, "", "template", str(error))
        else:
            mail_rows.add(row)
            continue
        mail_check.outcomes[MailOutcome.INVALID] += 1
        on_problem(problem)


_UNCLEAR_CONSENT_MESSAGE = (
    "it is unclear whether this person wants email, because a row with this address is malformed or has no clear value "
    "in the consent columns"
)
