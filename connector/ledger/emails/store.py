"""The moves of a campaign's emails: one function for each, a compare-and-set on the state that it leaves (design 4.2).

Every `mark_` runs inside a transaction that its caller opened by `EmailLog.transaction`, and while its caller holds the
campaign; nothing here commits. An email whose intent was marked once is never intended again, unless it is known not to
have left or a person allows it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from connector.email_states import EmailEvent, EmailState, decide_email_state
from connector.ledger.batches import Rows, change, select
from connector.ledger.emails import statements as sql
from connector.ledger.emails.campaigns import Campaign, find_campaign_or_add
from connector.ledger.faults import build_error, translated
from connector.ledger.statements import Batch
from connector.ledger.store import StaleMoveError
from connector.ledger.texts import keep_text

Hold = Callable[[str, str, float, Callable[[], bool]], AbstractContextManager[None]]
"""Holds the campaign of an account and a name, waiting for it so many seconds or until it is to stop."""


@dataclass(frozen=True, slots=True)
class EmailEntry:
    """What is known of one recipient's email: the answer's `request_id`, `message_id` and time (`sent_at`, Unix
    seconds) when it is SENT, `status` and `words` when REFUSED, None in other states; `run_id` is who sent it."""

    state: EmailState
    request_id: int | None
    message_id: str | None
    sent_at: float | None
    status: int | None
    words: str | None
    run_id: str


@dataclass(frozen=True, slots=True)
class OpenEmail:
    """An email that a person has to be told of: whom it was for, and when it was about to be sent (Unix seconds).

    `status` and `words` are those of a refusal; `recipient` is the digest of the address, None of an email that was
    sent by itself, whose `address` may name several.
    """

    state: EmailState
    address: str
    intended_at: float
    run_id: str
    status: int | None
    words: str | None
    recipient: bytes | None
    key: int


class EmailLog:
    """The store, over one connection; use it from one thread at a time, inside `transaction`.

    `name` says in messages which ledger it is; it holds no password.
    """

    def __init__(self, connection: Connection, name: str, hold: Hold) -> None:
        self.connection = connection
        self.name = name
        self._hold = hold

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One durable unit: all that is done inside is on the disk when it ends, or none of it.

        Raises LedgerError when the database fails, and from then on if the connection is lost: it is never made anew,
        since the lock of a campaign went with it.
        """
        if self.connection.invalidated:
            raise build_error(self.name, "the connection to it was lost")
        with translated(self.name), self.connection.begin():
            yield self.connection

    @contextmanager
    def hold_campaign(
        self, account: str, name: str, *, wait_s: float = 0.0, is_stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[Campaign]:
        """The campaign, made if there is none, and no other run's for as long as the context lasts; enter it in no
        transaction. The lock goes with the process that holds it, however that ends.

        Raises LockedError when another run holds it for longer than `wait_s` seconds (or until `is_stopped`), and
        LedgerError when there can be no lock, or the ledger is damaged.
        """
        with self._hold(account, name, wait_s, is_stopped):
            with self.transaction() as connection:
                campaign = find_campaign_or_add(connection, account, name)
            yield campaign

    # Reading

    def find(self, campaign: Campaign, recipients: Sequence[bytes]) -> dict[bytes, EmailEntry]:
        """The emails to these recipients (digests of `connector.plan.digests`); those that have none are left out."""
        rows = select(self.connection, sql.FIND, {}, _each(campaign, recipients))
        return {row[0]: EmailEntry(EmailState(row[1]), *row[2:]) for row in rows}

    def count_by_state(self, campaign: Campaign) -> dict[EmailState, int]:
        """How many of the campaign's emails are in each state; all but NONE are told, also those of none."""
        counts = dict.fromkeys((state for state in EmailState if state is not EmailState.NONE), 0)
        found = self.connection.execute(sql.COUNT, {"campaign": campaign.key})
        return counts | {EmailState(state): number for state, number in found}

    def read_unsettled(self, campaign: Campaign) -> list[OpenEmail]:
        """Everybody whose email may or may not have been sent (UNKNOWN), for a person, in the order of sending."""
        return self._read(campaign, EmailState.UNKNOWN)

    def read_refused(self, campaign: Campaign) -> list[OpenEmail]:
        """Everybody whose email the service refused (REFUSED), for a person, in the order of sending."""
        return self._read(campaign, EmailState.REFUSED)

    # Before a request

    def mark_intended(
        self, campaign: Campaign, run_id: str, intents: Sequence[tuple[bytes, str]], *, at: float
    ) -> None:
        """NONE to SENDING: (recipient, address in clear), at `at` (Unix seconds)."""
        rows = [(campaign.key, recipient, keep_text(address)) for recipient, address in intents]
        self._move(sql.INSERT_INTENT, rows, EmailState.NONE, EmailEvent.INTENDED, run=keep_text(run_id), at=float(at))

    # After it

    def mark_accepted(self, campaign: Campaign, accepted: Sequence[tuple[bytes, int, str, float]]) -> None:
        """SENDING to SENT: (recipient, SendMessageRequestId, MessageId, Unix seconds). The address goes for good."""
        rows = [
            (campaign.key, recipient, request_id, keep_text(message_id), float(at))
            for recipient, request_id, message_id, at in accepted
        ]
        self._move(sql.ACCEPT, rows, EmailState.SENDING, EmailEvent.ACCEPTED)

    def mark_refused(self, campaign: Campaign, refused: Sequence[tuple[bytes, int, str]]) -> None:
        """SENDING to REFUSED: (recipient, HTTP status, the service's words)."""
        rows = [(campaign.key, recipient, status, keep_text(words)) for recipient, status, words in refused]
        self._move(sql.REFUSE, rows, EmailState.SENDING, EmailEvent.REFUSED)

    def mark_not_sent(self, campaign: Campaign, recipients: Sequence[bytes]) -> None:
        """SENDING to NONE: known never to have left."""
        self._move(sql.DELETE, _each(campaign, recipients), EmailState.SENDING, EmailEvent.NOT_SENT)

    def mark_lost(self, campaign: Campaign, recipients: Sequence[bytes]) -> None:
        """SENDING to UNKNOWN."""
        self._move(sql.SET_STATE, _each(campaign, recipients), EmailState.SENDING, EmailEvent.LOST)

    def mark_died(self, campaign: Campaign) -> int:
        """Every SENDING of the campaign to UNKNOWN: only a run that holds it may say so. Returns how many."""
        to = decide_email_state(EmailState.SENDING, EmailEvent.DIED)
        values = {"campaign": campaign.key, "left": EmailState.SENDING, "to": to}
        return self.connection.execute(sql.SET_ALL, values).rowcount

    # What a person decides

    def mark_allowed(self, campaign: Campaign) -> int:
        """Every REFUSED of the campaign to NONE: it may be sent once more. Returns how many."""
        decide_email_state(EmailState.REFUSED, EmailEvent.ALLOWED)
        values = {"campaign": campaign.key, "left": EmailState.REFUSED}
        return self.connection.execute(sql.DELETE_ALL, values).rowcount

    def _read(self, campaign: Campaign, state: EmailState) -> list[OpenEmail]:
        rows = self.connection.execute(sql.READ, {"campaign": campaign.key, "state": state})
        return read_open(rows)

    def _move(self, batch: Batch, rows: Rows, left: EmailState, event: EmailEvent, **shared: object) -> None:
        """Carry out for each of `rows`; anything but one email changed by each is an error, and undoes all."""
        values: Mapping[str, Any] = {"left": left, "to": decide_email_state(left, event), **shared}
        refuse_stale(change(self.connection, batch, values, rows), len(rows))


def read_open(rows: Iterable[Sequence[Any]]) -> list[OpenEmail]:
    """Lines of the statements that read them, as values."""
    return [OpenEmail(EmailState(state), *rest) for state, *rest in rows]


def refuse_stale(changed: int, number: int) -> None:
    """Raises StaleMoveError unless as many emails were changed as were to be."""
    if changed != number:
        raise StaleMoveError(
            f"the ledger of emails has changed under this run: {number - changed} of {number} emails were not in the "
            "state they were left in. Nothing of this step was recorded; run again, and report it if it recurs"
        )


def _each(campaign: Campaign, recipients: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return [(campaign.key, recipient) for recipient in recipients]
