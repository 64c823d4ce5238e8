"""The email log: the ledger's records of campaign emails, which ensure that no recipient gets an email twice
(architecture 4).

The rules:

- A load locks the ledger of subscribers. The email log is not locked then, so a mail run can send emails during a load.
- A mail run holds the lock of its campaign.
- Each state transition of an email is a compare-and-set on the old state. The caller must open the transaction with
  `EmailLog.transaction`.
- The intent to send an email is recorded only once, with two exceptions: the first request is known not to have left,
  or a person allows another attempt.
- A campaign needs a person's decision if the ledger has the campaign only under another account, or if the ledger was
  restored. A restored ledger may lack emails of the campaign.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from sqlalchemy import text

from connector.errors import ConfigurationError
from connector.ledger.store import BatchStatement, CampaignLock, Rows, Store, make_storable
from connector.states import EMAIL_STATE_MACHINE, EmailEvent, EmailState

StartKind = Literal["run", "open"]
"""The kinds of recorded starts: "run" for every run, and "open" for a run that has reopened the campaign."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign sends each recipient at most one email. `key` is the number of the campaign in this ledger."""

    key: int
    account: str
    name: str


@dataclass(frozen=True, slots=True)
class EmailEntry:
    """The email to one recipient. If the state is SENT, `request_id`, `message_id` and `sent_at` (Unix seconds) are
    from the service's answer. If the state is REFUSED, `status` and `message` are the status and the message of the
    refusal. In other states, these fields are None. `run_id` is the run that sent the email."""

    state: EmailState
    request_id: int | None
    message_id: str | None
    sent_at: float | None
    status: int | None
    message: str | None
    run_id: str


@dataclass(frozen=True, slots=True)
class UnsettledEmail:
    """An UNKNOWN email of a campaign, about which a person must decide. `recipient` is the digest of the address."""

    recipient: bytes
    address: str
    run_id: str


class EmailLog:
    """The records of emails in a ledger, with the connection and the transactions of its store. The argument
    `hold_campaign` is a function that locks a campaign. `name` is the name of the ledger in messages."""

    def __init__(self, store: Store, hold_campaign: CampaignLock) -> None:
        self.store = store
        self.connection, self.name, self.transaction = store.connection, store.name, store.transaction
        self._hold_campaign = hold_campaign

    # Methods for campaigns: lock, find, and record their starts

    @contextmanager
    def hold_campaign(
        self,
        account: str,
        name: str,
        *,
        is_new_account: bool = False,
        is_reopening: bool = False,
        wait_s: float = 0.0,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[Campaign]:
        """Lock the campaign against other runs until the context ends, and yield the campaign. Add the campaign to the
        ledger if it is missing.

        Enter this context outside a transaction. If the process dies, its lock is released.

        Raises LockedError if another run holds the campaign for longer than `wait_s` seconds (or until `is_stopped`
        returns True). Raises LedgerError if no lock is possible or the ledger is damaged, and the ConfigurationError of
        `find_campaign`.
        """
        storable_names = _build_storable_names(account, name)
        with self._hold_campaign(name, wait_s, is_stopped):
            with self.transaction():
                campaign = self.find_campaign(account, name, is_new_account=is_new_account, is_reopening=is_reopening)
                self.connection.execute(_OPEN_CAMPAIGN if campaign else _ADD_CAMPAIGN, storable_names)
                campaign = Campaign(*self.connection.execute(_FIND_CAMPAIGN, storable_names).one()[:3])
            yield campaign

    def find_campaign(
        self, account: str, name: str, *, is_new_account: bool = False, is_reopening: bool = False
    ) -> Campaign | None:
        """Return the account's campaign with this name, or None if the ledger has no such campaign.

        Raises ConfigurationError in two cases:

        - Only another account has a campaign with this name, and `is_new_account` is false.
        - The campaign is closed by a restore of the ledger (architecture 4.15), and `is_reopening` is false.
        """
        campaign = self.connection.execute(_FIND_CAMPAIGN, _build_storable_names(account, name)).one_or_none()
        accounts = self.connection.execute(_FIND_ACCOUNTS_OF_CAMPAIGN, {"name": make_storable(name)}).scalars().all()
        if campaign is None and accounts and not is_new_account:
            raise ConfigurationError(
                f"the campaign {name} was sent under the account {accounts[0]}, and this job's account is {account}: "
                f"the recipients would get the email a second time. If both are the same account of the service, set "
                f"service.account to {accounts[0]}. If they are different accounts, run with --new-account"
            )
        restored_at = self.connection.execute(_FIND_RESTORED_AT).scalar_one_or_none()
        is_closed = campaign.is_closed if campaign else restored_at is not None
        if is_closed and not is_reopening:
            raise ConfigurationError(
                f"the campaign {name} is closed: the ledger was restored from a backup on {restored_at}, "
                "and has no record of emails that were sent after the backup was made. If such emails exist, remove "
                "their recipients from the source. Then run with --reopen"
            )
        return Campaign(*campaign[:3]) if campaign else None

    def has_campaign_history(self) -> bool:
        """Return whether any campaign was ever recorded or restored in this ledger."""
        restored_at = self.connection.execute(_FIND_RESTORED_AT).scalar_one_or_none()
        return restored_at is not None or self.connection.execute(_FIND_ANY_CAMPAIGN).first() is not None

    def count_sent_emails(self, campaign: Campaign) -> dict[str, int]:
        """Return the number of SENT emails by run id. The number is 0 for a run whose emails all have another state."""
        rows = self.connection.execute(_COUNT_SENT_EMAILS, {"campaign": campaign.key, "sent": EmailState.SENT})
        return {run_id: int(email_count) for run_id, email_count in rows}

    def read_last_start(self, campaign: Campaign, start_kind: StartKind) -> str:
        """Return the time of the campaign's latest start of this kind, or "" if there is no such start."""
        parameters = {"name": _format_start_key(start_kind, campaign)}
        return self.connection.execute(_READ_EMAIL_META, parameters).scalar_one_or_none() or ""

    def record_start(self, campaign: Campaign, start_kind: StartKind, started_at: str) -> None:
        """Record the time of the campaign's latest start of this kind. Call this method before the run sends
        anything."""
        parameters = {"name": _format_start_key(start_kind, campaign), "value": started_at}
        self.connection.execute(_WRITE_EMAIL_META, parameters)

    # Methods that read emails

    def find_emails(self, campaign: Campaign, recipients: Sequence[bytes]) -> dict[bytes, EmailEntry]:
        """Return the email of each recipient, by recipient (the digest of an address). Leave out recipients that have
        no email."""
        rows = self.store.select(_FIND_EMAILS, {}, _build_rows(campaign, recipients))
        return {row[0]: EmailEntry(EmailState(row[1]), *row[2:]) for row in rows}

    def read_unsettled_emails(self, campaign: Campaign) -> list[UnsettledEmail]:
        """Return all UNKNOWN emails in the order of their intents. The service may have sent these emails."""
        rows = self.connection.execute(_READ_UNSETTLED_EMAILS, {"campaign": campaign.key, "state": EmailState.UNKNOWN})
        return [UnsettledEmail(*row) for row in rows]

    # Methods for the state transitions of a campaign's emails

    def mark_intended(
        self, campaign: Campaign, run_id: str, intents: Sequence[tuple[bytes, str]], *, intended_at: float
    ) -> None:
        """Add emails in the state SENDING to recipients that have no email yet. `intents` are (recipient, address as a
        text). `intended_at` is the time in Unix seconds."""
        rows = [(campaign.key, recipient, make_storable(address)) for recipient, address in intents]
        self._change_state(
            _INSERT_INTENT, rows, EmailState.NONE, EmailEvent.INTENDED, run=make_storable(run_id), at=float(intended_at)
        )

    def mark_accepted(self, campaign: Campaign, accepted_emails: Sequence[tuple[bytes, int, str, float]]) -> None:
        """Move emails from SENDING to SENT, and delete their addresses. `accepted_emails` are (recipient,
        SendMessageRequestId, MessageId, Unix seconds)."""
        rows = [
            (campaign.key, recipient, request_id, make_storable(message_id), float(sent_at))
            for recipient, request_id, message_id, sent_at in accepted_emails
        ]
        self._change_state(_SET_EMAILS_SENT, rows, EmailState.SENDING, EmailEvent.ACCEPTED)

    def mark_refused(self, campaign: Campaign, refusals: Sequence[tuple[bytes, int, str]]) -> None:
        """Move emails from SENDING to REFUSED. `refusals` are (recipient, HTTP status, message of the service)."""
        rows = [(campaign.key, recipient, status, make_storable(message)) for recipient, status, message in refusals]
        self._change_state(_SET_EMAILS_REFUSED, rows, EmailState.SENDING, EmailEvent.REFUSED)

    def mark_not_sent(self, campaign: Campaign, recipients: Sequence[bytes]) -> None:
        """Delete the records of the SENDING emails to these recipients, because the requests never left."""
        self._change_state(_DELETE_EMAILS, _build_rows(campaign, recipients), EmailState.SENDING, EmailEvent.NOT_SENT)

    def mark_lost(self, campaign: Campaign, recipients: Sequence[bytes]) -> None:
        """Move the emails to these recipients from SENDING to UNKNOWN, because their requests got no answer."""
        self._change_state(_SET_STATE, _build_rows(campaign, recipients), EmailState.SENDING, EmailEvent.LOST)

    def mark_sending_emails_unknown(self, campaign: Campaign) -> int:
        """Move every SENDING email of the campaign to UNKNOWN, and return the number of these emails. Only the run that
        holds the campaign may call this function."""
        new_state = EMAIL_STATE_MACHINE.decide(EmailState.SENDING, EmailEvent.DIED)
        parameters = {"campaign": campaign.key, "old_state": EmailState.SENDING, "new_state": new_state}
        return self.connection.execute(_SET_STATE_OF_CAMPAIGN, parameters).rowcount

    def allow_another_attempt(self, campaign: Campaign, recipients: Sequence[bytes]) -> None:
        """Delete the records of the REFUSED emails to these recipients, because a person has allowed a new attempt."""
        self._change_state(_DELETE_EMAILS, _build_rows(campaign, recipients), EmailState.REFUSED, EmailEvent.ALLOWED)

    def _change_state(
        self, statement: BatchStatement, rows: Rows, old_state: EmailState, event: EmailEvent, **shared_values: object
    ) -> None:
        new_state = EMAIL_STATE_MACHINE.decide(old_state, event)
        self.store.change(statement, {"old_state": old_state, "new_state": new_state, **shared_values}, rows)


def _build_rows(campaign: Campaign, recipients: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return [(campaign.key, recipient) for recipient in recipients]


def _format_start_key(start_kind: StartKind, campaign: Campaign) -> str:
    """Return the key (at most 40 characters) under which `email_meta` has the campaign's latest start of this kind."""
    key = f"{campaign.account}\0{campaign.name}".encode("utf-8", "backslashreplace")
    return f"{start_kind} {blake2b(key, digest_size=16).hexdigest()}"


def _build_storable_names(account: str, name: str) -> dict[str, str]:
    return {"account": make_storable(account), "name": make_storable(name)}


# The statements contain only constants. Every UPDATE and DELETE of an email has the old state as a condition.

_IS_EMAIL_OF_ITEM_SQL = "email.campaign_key = item.column1 AND email.recipient = item.column2"
_FROM_OLD_STATE_SQL = f"FROM {{item}} WHERE {_IS_EMAIL_OF_ITEM_SQL} AND state = :old_state"

_FIND_EMAILS = BatchStatement(
    "SELECT recipient, state, request_id, message_id, sent_at, status, words, run_id "
    f"FROM {{item}} JOIN email ON {_IS_EMAIL_OF_ITEM_SQL}",
    "integer bytea",
)
_INSERT_INTENT = BatchStatement(
    "INSERT INTO email (campaign_key, recipient, address, state, run_id, intended_at) "
    "SELECT item.column1, item.column2, item.column3, :new_state, :run, :at FROM {item} WHERE true "
    "ON CONFLICT DO NOTHING",  # the statement has WHERE true, because SQLite otherwise reads ON as a part of a join
    "integer bytea text",
)
_SET_EMAILS_SENT = BatchStatement(
    "UPDATE email SET state = :new_state, request_id = item.column3, message_id = item.column4, "
    f"sent_at = item.column5, address = NULL {_FROM_OLD_STATE_SQL}",
    "integer bytea bigint text float8",
)
_SET_EMAILS_REFUSED = BatchStatement(
    f"UPDATE email SET state = :new_state, status = item.column3, words = item.column4 {_FROM_OLD_STATE_SQL}",
    "integer bytea smallint text",
)
_SET_STATE = BatchStatement(f"UPDATE email SET state = :new_state {_FROM_OLD_STATE_SQL}", "integer bytea")
_DELETE_EMAILS = BatchStatement(
    "DELETE FROM email "
    "WHERE state = :old_state AND (campaign_key, recipient) IN (SELECT item.column1, item.column2 FROM {item})",
    "integer bytea",
)
_SET_STATE_OF_CAMPAIGN = text(
    "UPDATE email SET state = :new_state WHERE campaign_key = :campaign AND state = :old_state"
)
_READ_UNSETTLED_EMAILS = text(
    "SELECT recipient, address, run_id FROM email WHERE campaign_key = :campaign AND state = :state ORDER BY email_key"
)

_FIND_CAMPAIGN = text(
    "SELECT campaign_key, account, name, is_closed FROM campaign WHERE account = :account AND name = :name"
)
_FIND_ACCOUNTS_OF_CAMPAIGN = text("SELECT account FROM campaign WHERE name = :name ORDER BY campaign_key")
_FIND_RESTORED_AT = text("SELECT value FROM email_meta WHERE name = 'restored_at'")
_FIND_ANY_CAMPAIGN = text("SELECT campaign_key FROM campaign LIMIT 1")
_COUNT_SENT_EMAILS = text(
    "SELECT run_id, sum(CASE WHEN state = :sent THEN 1 ELSE 0 END) FROM email WHERE campaign_key = :campaign "
    "GROUP BY run_id"
)
_READ_EMAIL_META = text("SELECT value FROM email_meta WHERE name = :name")
_WRITE_EMAIL_META = text(
    "INSERT INTO email_meta (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_ADD_CAMPAIGN = text("INSERT INTO campaign (account, name, is_closed) VALUES (:account, :name, false)")
_OPEN_CAMPAIGN = text("UPDATE campaign SET is_closed = false WHERE account = :account AND name = :name")
