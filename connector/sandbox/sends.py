"""Send an email (api.md 4.1): check, compose, keep in the outbox, record, answer. Nothing leaves the machine."""

import orjson

from connector.sandbox.answers import Answer
from connector.sandbox.creates import parse_json_object
from connector.sandbox.emails import Email, parse_email
from connector.sandbox.eml import compose_eml
from connector.sandbox.faults import Fate
from connector.sandbox.state import State


def send_email(state: State, body: bytes, fate: Fate) -> Answer:
    """Takes an email on, its answer having this fate; raises RejectedError when it breaks a rule."""
    if state.email_rules is None:
        raise RuntimeError("the state has no email rules: it was not made by open_state")
    email = parse_email(parse_json_object(body), state.email_rules)
    request_id, message_id = state.outbox.take_ids()
    entry = _describe(email)
    state.outbox.keep(request_id, message_id, entry, compose_eml(email, message_id, state.wall()))
    state.truth.note_sent(request_id, message_id, fate, entry)
    sent = {"SendMessageRequestId": request_id, "MessageId": message_id}
    return Answer(200, orjson.dumps({"success": True, "SendEmail": sent}))


def _describe(email: Email) -> dict[str, object]:
    """What the truth log and the outbox tell of an email besides its file."""
    return {
        "from": email.sender[0],
        "to": [address for address, _ in email.to],
        "cc": [address for address, _ in email.cc],
        "bcc": [address for address, _ in email.bcc],
        "reply_to": [address for address, _ in email.reply_to],
        "subject": email.subject,
        "attachments": [each.filename for each in email.attachments],
        "tracking": email.tracking,
        "settings": email.settings,
    }
