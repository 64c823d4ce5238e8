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
from connector.ledger.emails import statements as sql
from connector.ledger.emails.campaigns import Campaign, find_campaign_or_add
from connector.ledger.store import Batch, Rows, Store, keep_text

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
    """The emails of a ledger, over its store; `hold` holds a campaign of it."""

    def __init__(self, store: Store, hold: Hold) -> None:
        self.store = store
        self._hold = hold

    @property
    def connection(self) -> Connection:
        """The store's."""
        return self.store.connection

    @property
    def name(self) -> str:
        """Which ledger it is, for messages."""
        return self.store.name

    def transaction(self) -> AbstractContextManager[Connection]:
        """One durable unit, as `Store.transaction` is."""
        return self.store.transaction()

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
        rows = self.store.select(sql.FIND, {}, _each(campaign, recipients))
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

    def mark_allowed(self, campaign: Campaign, recipients: Sequence[bytes]) -> None:
        """REFUSED to NONE: these may be sent their email once more."""
        self._move(sql.DELETE, _each(campaign, recipients), EmailState.REFUSED, EmailEvent.ALLOWED)

    def _read(self, campaign: Campaign, state: EmailState) -> list[OpenEmail]:
        rows = self.connection.execute(sql.READ, {"campaign": campaign.key, "state": state})
        return read_open(rows)

    def _move(self, batch: Batch, rows: Rows, left: EmailState, event: EmailEvent, **shared: object) -> None:
        """Carry out for each of `rows`; anything but one email changed by each is an error, and undoes all."""
        values: Mapping[str, Any] = {"left": left, "to": decide_email_state(left, event), **shared}
        self.store.change(batch, values, rows)


def read_open(rows: Iterable[Sequence[Any]]) -> list[OpenEmail]:
    """Lines of the statements that read them, as values."""
    return [OpenEmail(EmailState(state), *rest) for state, *rest in rows]


def _each(campaign: Campaign, recipients: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return [(campaign.key, recipient) for recipient in recipients]
