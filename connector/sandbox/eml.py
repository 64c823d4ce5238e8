"""Writes an email as an .eml file (RFC 5322, MIME): pure, and checked already by the rules."""

from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8

from connector.sandbox.emails import Attachment, Email

_SINGLE = frozenset({"subject", "from", "sender", "to", "cc", "bcc", "reply-to", "date", "message-id"})


def compose_eml(email: Email, message_id: str, at: float) -> bytes:
    """The bytes of the file; `at` is the moment of acceptance in Unix seconds."""
    people = (*email.to, *email.cc, *email.bcc, *email.reply_to, email.sender)
    is_ascii = all(address.isascii() for address, _ in people)
    message = EmailMessage(policy=SMTP if is_ascii else SMTPUTF8)
    message["Message-ID"] = message_id
    message["Date"] = datetime.fromtimestamp(at, UTC)
    message["From"] = _address(email.sender)
    for name, group in (("To", email.to), ("Cc", email.cc), ("Bcc", email.bcc), ("Reply-To", email.reply_to)):
        if group:
            message[name] = tuple(_address(each) for each in group)
    message["Subject"] = email.subject
    for name, value in email.headers:
        if name.lower().startswith(("content-", "mime-")):
            continue  # even unprotected: they are what the parts below are told apart by
        if name.lower() in _SINGLE:  # only when the switches do not protect it: then it overrides
            del message[name]
        message[name] = value
    if email.settings["SendAt"] is not None:
        message["X-Sandbox-Send-At"] = datetime.fromtimestamp(email.settings["SendAt"], UTC).isoformat()
    _add_bodies(message, email)
    return message.as_bytes()


def _address(person: tuple[str, str]) -> Address:
    email, name = person
    local, _, domain = email.rpartition("@")
    return Address(name, username=local.strip('"'), domain=domain)


def _add_bodies(message: EmailMessage, email: Email) -> None:
    """Alternatives of text and page, inline files related to the page, and the other files around them."""
    if email.plain_text:
        message.set_content(email.plain_text)
    if email.html and email.plain_text:
        message.add_alternative(email.html, subtype="html")
    elif email.html:
        message.set_content(email.html, subtype="html")
    inline = [each for each in email.attachments if each.is_inline]
    page = message
    if inline and email.html and email.plain_text:
        parts = message.get_payload()
        page = parts[-1]  # type: ignore[index,assignment]  # an alternative's payload is a list of its parts
    for each in inline:
        main, _, sub = each.mime_type.partition("/")
        page.add_related(
            each.content, main, sub, cid=f"<{each.content_id}>", filename=each.filename, disposition="inline"
        )
    for each in email.attachments:
        if not each.is_inline:
            _attach(message, each)


def _attach(message: EmailMessage, each: Attachment) -> None:
    main, _, sub = each.mime_type.partition("/")
    cid = f"<{each.content_id}>" if each.content_id else None
    message.add_attachment(each.content, main, sub, filename=each.filename, cid=cid)
