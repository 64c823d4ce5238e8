"""Emails sent by themselves (`connector send`): the same states, each email known by the key that its intent was given.

Nobody holds a lock for them: one found SENDING is being sent, or its process died, and only a person can tell. Every
function runs inside a transaction that its caller opened by `EmailLog.transaction`.
"""

from sqlalchemy import Connection, TextClause

from connector.email_states import EmailEvent, EmailState, decide_email_state
from connector.ledger.emails import statements as sql
from connector.ledger.emails.store import OpenEmail, read_open
from connector.ledger.store import keep_text, refuse_stale


def mark_single_intended(connection: Connection, account: str, run_id: str, addresses: str, *, at: float) -> int:
    """NONE to SENDING, at `at` (Unix seconds): `addresses` are all that it is for, as people are told. Returns its
    key."""
    to = decide_email_state(EmailState.NONE, EmailEvent.INTENDED)
    texts = {"account": account, "address": addresses, "run": run_id}
    values = {name: keep_text(each) for name, each in texts.items()} | {"to": to, "at": float(at)}
    return int(connection.execute(sql.INSERT_SINGLE, values).scalar_one())


def mark_single_accepted(connection: Connection, key: int, request_id: int, message_id: str, *, at: float) -> None:
    """SENDING to SENT: SendMessageRequestId, MessageId, Unix seconds. The addresses go for good."""
    answer = {"request_id": request_id, "message_id": keep_text(message_id), "at": float(at)}
    _move(connection, sql.ACCEPT_SINGLE, key, EmailEvent.ACCEPTED, **answer)


def mark_single_refused(connection: Connection, key: int, status: int, words: str) -> None:
    """SENDING to REFUSED: HTTP status, the service's words."""
    _move(connection, sql.REFUSE_SINGLE, key, EmailEvent.REFUSED, status=status, words=keep_text(words))


def mark_single_not_sent(connection: Connection, key: int) -> None:
    """SENDING to NONE: known never to have left."""
    _move(connection, sql.DELETE_SINGLE, key, EmailEvent.NOT_SENT)


def mark_single_lost(connection: Connection, key: int) -> None:
    """SENDING to UNKNOWN."""
    _move(connection, sql.SET_SINGLE, key, EmailEvent.LOST)


def read_unsettled_singles(connection: Connection, account: str) -> list[OpenEmail]:
    """All of the account's that may or may not have been sent, UNKNOWN and SENDING, in the order of sending."""
    values = {"account": keep_text(account), "sending": EmailState.SENDING, "unknown": EmailState.UNKNOWN}
    return read_open(connection.execute(sql.READ_SINGLES, values))


def _move(connection: Connection, statement: TextClause, key: int, event: EmailEvent, **told: object) -> None:
    values = {"key": key, "left": EmailState.SENDING, **told}
    to = decide_email_state(EmailState.SENDING, event)
    if to is not EmailState.NONE:  # there it is deleted
        values["to"] = to
    refuse_stale(connection.execute(statement, values).rowcount, 1)
