"""An .eml file of a message, for a person to look at, and a draft of an .eml file: by Python's own `email`.

A header stands in one line, whatever its length: Python's folding loses blanks between encoded words. The service's
settings are no part of a file.
"""

import re
from collections.abc import Iterator, Sequence
from email import errors, message_from_bytes, policy
from email.headerregistry import Address
from email.message import EmailMessage, MIMEPart
from mimetypes import guess_extension

from connector.mail.draft import Draft, build_recipient
from connector.mail.message import Attachment, Header, Message, MessageError, Recipient, check_text

_OWN_TYPES = ("message", "multipart")  # Python would take such a file apart, and encode what it must not
_DAMAGE = (
    errors.StartBoundaryNotFoundDefect,
    errors.CloseBoundaryNotFoundDefect,
    errors.NoBoundaryInMultipartDefect,
    errors.InvalidBase64LengthDefect,
)
_LONGEST_HEADER = 256 * 1024
"""Python reads a header in a time that grows with its square: half a second for one of this length."""

_UNREADABLE = "\ufffd"
"""What Python gives for bytes of a header that it cannot decode."""

_SHOWN = ("from", "to", "cc", "bcc", "reply-to", "subject")
# Headers that are fields of their own, of that one sending, its way, its proofs, or a mail program's notes.
_LEFT_BEHIND = re.compile(
    r"from|to|cc|bcc|reply-to|subject|date|sender|return-path|user-agent|fcc|lines|(x-)?status|x-mailer|openpgp|"
    r"(message-id|mime-|content-|resent-|received|(x-)?delivered-to|(x-)?envelope-|dkim-|domainkey-|arc-|autocrypt|"
    r"(x-)?authentication-|bimi-|thread-|spamdiagnostic|"
    r"x-(received|original|forwarded|originating|sender|source|get-message|antiabuse|authenticated|rcpt|google|gm-|ms-|"
    r"microsoft|forefront|exchange|tm-|ses-|sg-|mailgun|mandrill|dkim|pgp|spam|virus|rspamd|ham|barracuda|proofpoint|"
    r"mimecast|ironport|amavis|scanned|bogosity|mozilla|account-key|identity-key|uid|evolution|apple|uniform|"
    r"universally|gmail|unsent|enigmail|kmail|keywords|mimeole)).*"
)


def write_eml(message: Message) -> bytes:
    """Return the file's bytes; line ends become CRLF. Raises MessageError for what no email can hold."""
    mail = EmailMessage(policy=policy.SMTP)
    people = [("From", "Email.From", [message.sender]), ("To", "Email.To", message.to), ("Cc", "Email.Cc", message.cc)]
    people += [("Bcc", "Email.Bcc", message.bcc), ("Reply-To", "Email.ReplyTo", message.reply_to)]
    for name, field, recipients in people:
        if recipients:
            mail[name] = [_build_address(each, f"{field}[{index}]") for index, each in enumerate(recipients)]
    mail["Subject"] = message.subject
    _add_contents(mail, message)
    for index, header in enumerate(message.headers):
        try:
            mail[header.name] = header.value
        except (ValueError, errors.MessageError):
            raise MessageError(
                f"Email.Headers[{index}].Name", f"is {header.name}, which the email has of itself; leave it out"
            ) from None
    addresses = "".join(each.email for _, _, recipients in people for each in recipients)
    return mail.as_bytes(policy=policy.SMTP.clone(max_line_length=0, utf8=not addresses.isascii()))


def _build_address(recipient: Recipient, field: str) -> Address:
    local, _, domain = recipient.email.rpartition("@")
    try:
        if not local.isascii():  # which Python writes, and does not read
            return Address(recipient.name or "", local, domain)
        return Address(recipient.name or "", addr_spec=recipient.email)
    except (ValueError, IndexError, errors.MessageError):
        raise MessageError(
            f"{field}.Email", "holds a character that an address cannot have outside of quotes"
        ) from None


def _add_contents(mail: EmailMessage, message: Message) -> None:
    """Files around a choice of texts; the page's pictures with the page."""
    page = mail
    if message.plain_text:
        mail.set_content(message.plain_text)
    if message.plain_text and message.html:
        mail.add_alternative(message.html, subtype="html")
        page = mail.get_payload()[-1]  # type: ignore[assignment, index] # the part just added
    elif message.html:
        mail.set_content(message.html, subtype="html")
    pictures = [each for each in message.attachments if each.disposition == "inline" and message.html]
    for each in pictures:
        _add_file(page, each, is_related=True)
    for each in message.attachments:
        if each not in pictures:
            _add_file(mail, each, is_related=False)


def _add_file(mail: EmailMessage, file: Attachment, *, is_related: bool) -> None:
    kind = policy.SMTP.header_factory("Content-Type", file.mime_type)
    is_own = kind.maintype in _OWN_TYPES
    add = mail.add_related if is_related else mail.add_attachment
    add(
        file.content,
        maintype="application" if is_own else kind.maintype,
        subtype="octet-stream" if is_own else kind.subtype,
        params={} if is_own else dict(kind.params),
        disposition=file.disposition,
        filename=file.filename,
        cid=None if file.content_id is None else f"<{file.content_id}>",
    )


class _Reading(policy.EmailPolicy):
    """Python's policy, with headers that stand as UTF-8 (RFC 6532) decoded; a class is how one asks Python for that."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        if len(value) > _LONGEST_HEADER:
            raise MessageError("Email", f"has a header {name[:40]} of more than 256 KB: shorten it")
        return name, value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def read_eml(data: bytes) -> Draft:
    """Return what the file says of an email; its date, ids, way and signatures are left behind.

    Raises MessageError with the field or the part that cannot be read.
    """
    try:
        return _read_draft(data)
    except MessageError:
        raise
    except RecursionError:
        raise MessageError("Email", "holds parts within parts too deep to read: save the email again") from None
    except (errors.MessageError, AttributeError, LookupError, TypeError, ValueError):
        # Python's parser of headers raises these for some that are damaged.
        raise MessageError("Email", "has a header that cannot be read: correct it, or save the email again") from None


def _read_draft(data: bytes) -> Draft:
    mail = message_from_bytes(data, policy=_Reading())
    if not isinstance(mail, EmailMessage) or not any(
        name in mail for name in ("From", "To", "Subject", "MIME-Version", "Date", "Message-ID")
    ):
        raise MessageError("Email", "is not an .eml file: it has none of an email's headers")
    for name, value in mail.items():
        if _UNREADABLE in str(value) and (name.lower() in _SHOWN or not _is_left_behind(name)):
            raise MessageError("Email", f"has a header {name} in no character set that can be read: correct it")
    found = {kind: mail.get_body((kind,)) for kind in ("html", "plain")}
    bodies = {kind: part for kind, part in found.items() if part is not None and not part.get_filename()}
    senders = _read_people(mail, "From", "Email.From")
    if len(senders) > 1:
        raise MessageError("Email.From", f"names {len(senders)} senders; an email of the service has one")
    subject = mail["Subject"]
    return Draft(
        sender=senders[0] if senders else None,
        to=_read_people(mail, "To", "Email.To"),
        cc=_read_people(mail, "Cc", "Email.Cc"),
        bcc=_read_people(mail, "Bcc", "Email.Bcc"),
        reply_to=_read_people(mail, "Reply-To", "Email.ReplyTo"),
        subject=None if subject is None else check_text("Email.Subject", str(subject)),
        html=_read_body(bodies.get("html"), "Email.Html"),
        plain_text=_read_body(bodies.get("plain"), "Email.PlainText"),
        headers=tuple(Header(name, str(value)) for name, value in mail.items() if not _is_left_behind(name)),
        attachments=tuple(_read_files(mail, list(bodies.values()))),
    )


def _is_left_behind(name: str) -> bool:
    return _LEFT_BEHIND.fullmatch(name.lower()) is not None


def _read_people(mail: EmailMessage, name: str, field: str) -> tuple[Recipient, ...]:
    """Return the recipients of a header, members of groups included. Text that Python cannot read as an address is an
    error."""
    header = mail[name]
    if header is None:
        return ()
    return tuple(
        build_recipient(each.addr_spec, each.display_name or None, f"{field}[{index}]")
        for index, each in enumerate(header.addresses)
    )


def _read_body(part: MIMEPart | None, field: str) -> str | None:
    if part is None:
        return None
    named = part.get_content_charset() or "utf-8"
    try:
        text = _read_bytes(part, field).decode("utf-8" if named == "us-ascii" else named)
    except (LookupError, UnicodeDecodeError):
        raise MessageError(field, f"is not in the character set that it names, {named[:40]!r}") from None
    return text.replace("\r\n", "\n").removesuffix("\n")


def _read_files(part: MIMEPart, bodies: Sequence[MIMEPart], number: str = "") -> Iterator[Attachment]:
    """Yield every part that is neither body nor multipart: nothing is lost silently."""
    if any(isinstance(defect, _DAMAGE) for defect in part.defects):
        raise MessageError("Email", f"is cut short or damaged in part {number or '1'}")
    if part.get_content_maintype() == "multipart":
        for index, child in enumerate(part.iter_parts(), start=1):
            yield from _read_files(child, bodies, f"{number}.{index}" if number else str(index))
    elif not any(part is body for body in bodies):
        yield _read_file(part, number or "1")


def _read_file(part: MIMEPart, number: str) -> Attachment:
    field = f"Email, part {number}"
    kind = part["Content-Type"]
    mime_type = "; ".join(
        [
            part.get_content_type(),
            *(f"{key}={each}" for key, each in kind.params.items() if key in ("charset", "method")),
        ]
        if kind is not None
        else [part.get_content_type()]
    )
    content_id = str(part.get("Content-ID", "")).strip(" <>") or None
    is_inline = content_id is not None and part.get_content_disposition() != "attachment"
    filename = part.get_filename() or f"part-{number}{guess_extension(part.get_content_type()) or '.bin'}"
    try:
        return Attachment(
            _read_bytes(part, field), filename, mime_type, "inline" if is_inline else "attachment", content_id
        )
    except MessageError as error:
        raise MessageError(f"{field}, {error.field}", error.problem) from None


def _read_bytes(part: MIMEPart, field: str) -> bytes:
    if part.is_multipart():  # an email within the email
        return b"".join(each.as_bytes(policy=policy.SMTP.clone(refold_source="none")) for each in part.iter_parts())
    raw = part.get_payload(decode=True)
    if any(isinstance(defect, _DAMAGE) for defect in part.defects):
        raise MessageError(field, "is damaged: its base64 ends within a letter")
    return raw if isinstance(raw, bytes) else b""
