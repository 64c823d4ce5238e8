"""The emails that were sent to each recipient, so that no email is sent twice: campaigns and single emails
(architecture 4).

Theory of operation. Emails are apart from the ledger of subscribers, which a load locks: an email may be sent while a
load goes on. A run holds its campaign; each move is a compare-and-set on the state that it leaves, inside a transaction
that its caller opened by `EmailLog.transaction`. An email whose intent was marked once is never intended again, unless
it is known not to have left or a person allows it. A campaign that the ledger knows under another account, or may have
forgotten since it was restored, is refused until a person says what it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from sqlalchemy import TextClause, text

from connector.errors import ConfigurationError
from connector.ledger.store import Batch, Hold, Rows, Store, make_storable, refuse_stale
from connector.states import EMAIL, EmailEvent, EmailState


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign; `key` is its number in this ledger. A campaign sends each recipient one email."""

    key: int
    account: str
    name: str


@dataclass(frozen=True, slots=True)
class EmailEntry:
    """The email to one recipient. If the state is SENT, `request_id`, `message_id` and `sent_at` (Unix seconds) are
    those of the answer. If the state is REFUSED, `status` and `words` are those of the refusal. In other states they
    are None. `run_id` is the run that sent the email."""

    state: EmailState
    request_id: int | None
    message_id: str | None
    sent_at: float | None
    status: int | None
    words: str | None
    run_id: str


@dataclass(frozen=True, slots=True)
class OpenEmail:
    """An email of a campaign that needs a person's attention: its address, and the time of its intent (Unix seconds).

    `status` and `words` are those of a refusal; `recipient` is the digest of the address.
    """

    state: EmailState
    address: str
    intended_at: float
    run_id: str
    status: int | None
    words: str | None
    recipient: bytes
    key: int


class EmailLog:
    """The emails of a ledger, with the connection and the transactions of its store. `hold` locks a campaign, and
    `name` is the name of the ledger in messages."""

    def __init__(self, store: Store, hold: Hold) -> None:
        self.store = store
        self.connection, self.name, self.transaction = store.connection, store.name, store.transaction
        self._hold = hold

    # Campaigns

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
        """Lock the campaign against other runs until the context ends, and yield the campaign. Make the campaign if it
        is missing.

        Enter this context outside a transaction. If the process dies, its lock is released.

        Raises LockedError when another run holds it for longer than `wait_s` seconds (or until `is_stopped`),
        LedgerError when there can be no lock, or the ledger is damaged, and ConfigurationError as `find_campaign` does.
        """
        with self._hold(name, wait_s, is_stopped):
            with self.transaction():
                found = self.find_campaign(account, name, is_new_account=is_new_account, is_reopening=is_reopening)
                values = _keep(account, name)
                self.connection.execute(_OPEN_CAMPAIGN if found else _ADD_CAMPAIGN, values)
                campaign = Campaign(*self.connection.execute(_FIND_CAMPAIGN, values).one()[:3])
            yield campaign

    def find_campaign(
        self, account: str, name: str, *, is_new_account: bool = False, is_reopening: bool = False
    ) -> Campaign | None:
        """Return the account's campaign with this name, or None if the campaign has sent nothing.

        Raises ConfigurationError if only another account has a campaign with this name and the campaign is not declared
        new, or if the ledger was restored and the campaign is not reopened (architecture 4.15).
        """
        found = self.connection.execute(_FIND_CAMPAIGN, _keep(account, name)).one_or_none()
        others = self.connection.execute(_FIND_ACCOUNTS, {"name": make_storable(name)}).scalars().all()
        if found is None and others and not is_new_account:
            raise ConfigurationError(
                f"the campaign {name} was sent under the account {others[0]}, and this job's account is {account}: its "
                f"recipients would be mailed a second time. Set service.account to {others[0]} if it is the same "
                "account of the service; if it is another one, run with --new-account"
            )
        restored_at = self.connection.execute(_FIND_RESTORED).scalar_one_or_none()
        is_closed = found.is_closed if found else restored_at is not None
        if is_closed and not is_reopening:
            raise ConfigurationError(
                f"the campaign {name} is closed: the ledger was restored from a backup on {restored_at}, "
                "and does not know which emails were sent after that backup was made. Take their "
                "recipients out of the source, or make sure that there are none, and run with --reopen"
            )
        return Campaign(*found[:3]) if found else None

    def has_campaign_history(self) -> bool:
        """Return whether any campaign was ever recorded or restored here. A new ledger has none."""
        restored_at = self.connection.execute(_FIND_RESTORED).scalar_one_or_none()
        return restored_at is not None or self.connection.execute(_FIND_ANY_CAMPAIGN).first() is not None

    def count_sent(self, campaign: Campaign) -> dict[str, int]:
        """Return the number of emails that each run has sent, by its id; 0 for a run all of whose emails are open."""
        rows = self.connection.execute(_COUNT_SENT, {"campaign": campaign.key, "sent": EmailState.SENT})
        return {run_id: int(number) for run_id, number in rows}

    def find_begin(self, campaign: Campaign) -> str:
        """Return when the campaign's latest run began, or "" if none was recorded."""
        return self._read_mark("run", campaign)

    def mark_begin(self, campaign: Campaign, began_at: str) -> None:
        """Record when the campaign's latest run began, before the run sends anything."""
        self._mark("run", campaign, began_at)

    def find_reopen(self, campaign: Campaign) -> str:
        """Return when the run began that has reopened the campaign last, or ""."""
        return self._read_mark("open", campaign)

    def mark_reopened(self, campaign: Campaign, began_at: str) -> None:
        """Record that a person has reopened the campaign with the run that began then."""
        self._mark("open", campaign, began_at)

    def _read_mark(self, kind: str, campaign: Campaign) -> str:
        return self.connection.execute(_READ_MARK, {"name": _name_mark(kind, campaign)}).scalar_one_or_none() or ""

    def _mark(self, kind: str, campaign: Campaign, value: str) -> None:
        self.connection.execute(_WRITE_MARK, {"name": _name_mark(kind, campaign), "value": value})

    # Reading

    def find(self, campaign: Campaign, recipients: Sequence[bytes]) -> dict[bytes, EmailEntry]:
        """Return the emails to these recipients (digests of `connector.subscribers`). Recipients without an email are
        left out."""
        rows = self.store.select(_FIND, {}, _each(campaign, recipients))
        return {row[0]: EmailEntry(EmailState(row[1]), *row[2:]) for row in rows}

    def read_unsettled(self, campaign: Campaign) -> list[OpenEmail]:
        """Return all emails that may or may not have been sent (UNKNOWN), for a person, in the order of sending."""
        rows = self.connection.execute(_READ, {"campaign": campaign.key, "state": EmailState.UNKNOWN})
        return [OpenEmail(EmailState(state), *rest) for state, *rest in rows]

    # The moves of a campaign's emails

    def mark_intended(
        self, campaign: Campaign, run_id: str, intents: Sequence[tuple[bytes, str]], *, at: float
    ) -> None:
        """Move NONE to SENDING: (recipient, address in clear), at `at` (Unix seconds)."""
        rows = [(campaign.key, recipient, make_storable(address)) for recipient, address in intents]
        self._move(_INSERT_INTENT, rows, EmailState.NONE, EmailEvent.INTENDED, run=make_storable(run_id), at=float(at))

    def mark_accepted(self, campaign: Campaign, accepted: Sequence[tuple[bytes, int, str, float]]) -> None:
        """Move SENDING to SENT: (recipient, SendMessageRequestId, MessageId, Unix seconds). The address is deleted."""
        rows = [
            (campaign.key, recipient, request_id, make_storable(message_id), float(at))
            for recipient, request_id, message_id, at in accepted
        ]
        self._move(_ACCEPT, rows, EmailState.SENDING, EmailEvent.ACCEPTED)

    def mark_refused(self, campaign: Campaign, refused: Sequence[tuple[bytes, int, str]]) -> None:
        """Move SENDING to REFUSED: (recipient, HTTP status, the service's words)."""
        rows = [(campaign.key, recipient, status, make_storable(words)) for recipient, status, words in refused]
        self._move(_REFUSE, rows, EmailState.SENDING, EmailEvent.REFUSED)

    def mark_not_sent(self, campaign: Campaign, recipients: Sequence[bytes]) -> None:
        """Move SENDING to NONE: known never to have left."""
        self._move(_DELETE, _each(campaign, recipients), EmailState.SENDING, EmailEvent.NOT_SENT)

    def mark_lost(self, campaign: Campaign, recipients: Sequence[bytes]) -> None:
        """Move SENDING to UNKNOWN."""
        self._move(_SET_STATE, _each(campaign, recipients), EmailState.SENDING, EmailEvent.LOST)

    def mark_died(self, campaign: Campaign) -> int:
        """Move every SENDING email of the campaign to UNKNOWN, and return their number. Only the run that holds the
        campaign may call this function."""
        to = EMAIL.decide(EmailState.SENDING, EmailEvent.DIED)
        values = {"campaign": campaign.key, "left": EmailState.SENDING, "to": to}
        return self.connection.execute(_SET_ALL, values).rowcount

    def mark_allowed(self, campaign: Campaign, recipients: Sequence[bytes]) -> None:
        """Move REFUSED to NONE: a person says that these may be sent their email once more."""
        self._move(_DELETE, _each(campaign, recipients), EmailState.REFUSED, EmailEvent.ALLOWED)

    def _move(self, batch: Batch, rows: Rows, left: EmailState, event: EmailEvent, **shared: object) -> None:
        values: Mapping[str, Any] = {"left": left, "to": EMAIL.decide(left, event), **shared}
        self.store.change(batch, values, rows)

    # Emails sent by themselves (`connector send`): no lock is held, so that one found SENDING is being sent, or its
    # process died, and only a person can say which

    def mark_single_intended(self, account: str, run_id: str, addresses: str, *, at: float) -> int:
        """Move NONE to SENDING at the time `at` (Unix seconds), for an email to all `addresses`. Return the key of the
        email."""
        to = EMAIL.decide(EmailState.NONE, EmailEvent.INTENDED)
        texts = {"account": account, "address": addresses, "run": run_id}
        values = {name: make_storable(value) for name, value in texts.items()} | {"to": to, "at": float(at)}
        return int(self.connection.execute(_INSERT_SINGLE, values).scalar_one())

    def mark_single_accepted(self, key: int, request_id: int, message_id: str, *, at: float) -> None:
        """Move SENDING to SENT: SendMessageRequestId, MessageId, Unix seconds. The addresses go for good."""
        answer = {"request_id": request_id, "message_id": make_storable(message_id), "at": float(at)}
        self._move_single(_ACCEPT_SINGLE, key, EmailEvent.ACCEPTED, **answer)

    def mark_single_refused(self, key: int, status: int, words: str) -> None:
        """Move SENDING to REFUSED: HTTP status, the service's words."""
        self._move_single(_REFUSE_SINGLE, key, EmailEvent.REFUSED, status=status, words=make_storable(words))

    def mark_single_not_sent(self, key: int) -> None:
        """Move SENDING to NONE: known never to have left."""
        self._move_single(_DELETE_SINGLE, key, EmailEvent.NOT_SENT)

    def mark_single_lost(self, key: int) -> None:
        """Move SENDING to UNKNOWN."""
        self._move_single(_SET_SINGLE, key, EmailEvent.LOST)

    def _move_single(self, statement: TextClause, key: int, event: EmailEvent, **answer: object) -> None:
        values = {"key": key, "left": EmailState.SENDING, **answer}
        to = EMAIL.decide(EmailState.SENDING, event)
        if to is not EmailState.NONE:  # the statement deletes the line
            values["to"] = to
        refuse_stale(self.connection.execute(statement, values).rowcount, 1)


def _each(campaign: Campaign, recipients: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return [(campaign.key, recipient) for recipient in recipients]


def _name_mark(kind: str, campaign: Campaign) -> str:
    """Return the name of a line of `email_meta`, of at most 40 characters."""
    parts = f"{campaign.account}\0{campaign.name}".encode("utf-8", "backslashreplace")
    return f"{kind} {blake2b(parts, digest_size=16).hexdigest()}"


def _keep(account: str, name: str) -> dict[str, str]:
    return {"account": make_storable(account), "name": make_storable(name)}


# The statements are made of constants. Every UPDATE and DELETE of an email names the state that the move leaves.

_EMAIL = "email.campaign_key = item.column1 AND email.recipient = item.column2"
_AT = f"FROM {{item}} WHERE {_EMAIL} AND state = :left"

_FIND = Batch(
    "SELECT recipient, state, request_id, message_id, sent_at, status, words, run_id "
    f"FROM {{item}} JOIN email ON {_EMAIL}",
    "integer bytea",
)
_INSERT_INTENT = Batch(
    "INSERT INTO email (campaign_key, recipient, address, state, run_id, intended_at) "
    "SELECT item.column1, item.column2, item.column3, :to, :run, :at FROM {item} WHERE true "
    "ON CONFLICT DO NOTHING",  # WHERE true: without it SQLite reads ON as a condition of a join
    "integer bytea text",
)
_ACCEPT = Batch(
    "UPDATE email SET state = :to, request_id = item.column3, message_id = item.column4, sent_at = item.column5, "
    f"address = NULL {_AT}",
    "integer bytea bigint text float8",
)
_REFUSE = Batch(
    f"UPDATE email SET state = :to, status = item.column3, words = item.column4 {_AT}", "integer bytea smallint text"
)
_SET_STATE = Batch(f"UPDATE email SET state = :to {_AT}", "integer bytea")
_DELETE = Batch(
    "DELETE FROM email "
    "WHERE state = :left AND (campaign_key, recipient) IN (SELECT item.column1, item.column2 FROM {item})",
    "integer bytea",
)
_SET_ALL = text("UPDATE email SET state = :to WHERE campaign_key = :campaign AND state = :left")
_READ = text(
    "SELECT state, address, intended_at, run_id, status, words, recipient, email_key FROM email "
    "WHERE campaign_key = :campaign AND state = :state ORDER BY email_key"
)

_FIND_CAMPAIGN = text(
    "SELECT campaign_key, account, name, is_closed FROM campaign WHERE account = :account AND name = :name"
)
_FIND_ACCOUNTS = text("SELECT account FROM campaign WHERE name = :name ORDER BY campaign_key")
_FIND_RESTORED = text("SELECT value FROM email_meta WHERE name = 'restored_at'")
_FIND_ANY_CAMPAIGN = text("SELECT campaign_key FROM campaign LIMIT 1")
_COUNT_SENT = text(
    "SELECT run_id, sum(CASE WHEN state = :sent THEN 1 ELSE 0 END) FROM email WHERE campaign_key = :campaign "
    "GROUP BY run_id"
)
_READ_MARK = text("SELECT value FROM email_meta WHERE name = :name")
_WRITE_MARK = text(
    "INSERT INTO email_meta (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_ADD_CAMPAIGN = text("INSERT INTO campaign (account, name, is_closed) VALUES (:account, :name, false)")
_OPEN_CAMPAIGN = text("UPDATE campaign SET is_closed = false WHERE account = :account AND name = :name")
_INSERT_SINGLE = text(
    "INSERT INTO email (account, address, state, run_id, intended_at) VALUES (:account, :address, :to, :run, :at) "
    "RETURNING email_key"
)
_SINGLE = "WHERE email_key = :key AND campaign_key IS NULL AND state = :left"
_ACCEPT_SINGLE = text(
    f"UPDATE email SET state = :to, request_id = :request_id, message_id = :message_id, sent_at = :at, address = NULL "
    f"{_SINGLE}"
)
_REFUSE_SINGLE = text(f"UPDATE email SET state = :to, status = :status, words = :words {_SINGLE}")
_SET_SINGLE = text(f"UPDATE email SET state = :to {_SINGLE}")
_DELETE_SINGLE = text(f"DELETE FROM email {_SINGLE}")
