"""The plan of a mail run, and the check of all rows before the first email leaves."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from connector.errors import RunAborted
from connector.imports.suppression import SuppressionPlan, read_suppression
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
from connector.spooled_rows import SpooledRows
from connector.spooled_values import SpooledValues
from connector.subscribers.consent import read_activity
from connector.subscribers.headers import guess_mapping
from connector.subscribers.identity import split_digests
from connector.subscribers.preparation import PreparedChunk, find_named, prepare_chunks
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from connector.subscribers.suppression import InactiveIdentities, Suppression
from connector.templates import TemplateError


class MailRows(Closing):
    """Rows on disk, in order. All rows are written before the first row is read."""

    def __init__(self) -> None:
        self._values = SpooledValues()
        self.rows = 0

    def add(self, row: Row) -> None:
        """Add a row. Raises RunAborted if the disk is full."""
        self._values.add([(row.number, row.file, row.columns, row.cells)])
        self.rows += 1

    def read(self, number: int) -> Iterator[list[Row]]:
        """Yield all rows in lists of `number` rows. Raises RunAborted if the rows cannot be read from the disk."""
        for first in range(0, self.rows, number):
            source_rows = (self._values.read(index) for index in range(first, min(first + number, self.rows)))
            yield [Row(place, file, tuple(columns), tuple(cells)) for place, file, columns, cells in source_rows]

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
    with SpooledRows(plan.source, _RULES.identity) as source_rows:
        for prepared in source_rows.spool(chunks):
            if is_stopped():
                raise RunAborted("the run was stopped while its rows were being checked; nothing was sent")
            consent |= dict.fromkeys(prepared.consent)
            read = checked.read + prepared.read
            checked.read = read if plan.limit is None else min(read, plan.limit)
        inactive, unclear = InactiveIdentities(), InactiveIdentities()
        for prepared in source_rows.read():
            is_inactive, is_unclear = read_activity(prepared.chunk.frame, consent)
            positions, identities = prepared.valid.subscribers.index.to_numpy(), prepared.valid.identities
            for identity in split_digests(identities[is_inactive[positions]]):
                inactive.add(identity)
            named, _ = find_named(prepared.chunk.malformed if consent else (), "email")  # may want no email
            for identity in split_digests(np.concatenate([identities[is_unclear[positions]], named])):
                unclear.add(identity)
        for prepared in source_rows.read(plan.limit):
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
