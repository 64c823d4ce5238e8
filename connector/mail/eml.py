"""Writes a message as an .eml file for a person to open, by Python's `email` package.

Each header is one line of any length: Python's folding loses blanks between encoded words. The file does not contain
the service's settings.
"""

from email import errors, policy
from email.headerregistry import Address
from email.message import EmailMessage

from connector.mail.message import Message, MessageError, Recipient

_OWN_TYPES = ("message", "multipart")  # Python would parse such a file, and encode parts that must not be encoded


def write_eml(message: Message) -> bytes:
    """Return the bytes of the file, with CRLF line ends. Raises MessageError for a field that an email cannot hold."""
    mail = EmailMessage(policy=policy.SMTP)
    people = [("From", "Email.From", [message.sender]), ("To", "Email.To", message.to), ("Cc", "Email.Cc", message.cc)]
    people += [("Bcc", "Email.Bcc", message.bcc), ("Reply-To", "Email.ReplyTo", message.reply_to)]
    for name, field, recipients in people:
        if recipients:
            mail[name] = [_build_address(person, f"{field}[{index}]") for index, person in enumerate(recipients)]
    mail["Subject"] = message.subject
    _add_contents(mail, message)
    for index, header in enumerate(message.headers):
        try:
            mail[header.name] = header.value
        except (ValueError, errors.MessageError):
            raise MessageError(
                f"Email.Headers[{index}].Name", f"is {header.name}, which every email has already; remove this header"
            ) from None
    addresses = "".join(person.email for _, _, recipients in people for person in recipients)
    return mail.as_bytes(policy=policy.SMTP.clone(max_line_length=0, utf8=not addresses.isascii()))


def _build_address(recipient: Recipient, field: str) -> Address:
    local, _, domain = recipient.email.rpartition("@")
    try:
        if not local.isascii():  # Python writes such an address, but does not parse it
            return Address(recipient.name or "", local, domain)
        return Address(recipient.name or "", addr_spec=recipient.email)
    except (ValueError, IndexError, errors.MessageError):
        raise MessageError(
            f"{field}.Email", "holds a character that an address cannot have outside of quotes"
        ) from None


def _add_contents(mail: EmailMessage, message: Message) -> None:
    """Add the bodies as alternatives, the inline files to the HTML part, and the other files to the email."""
    page = mail
    if message.plain_text:
        mail.set_content(message.plain_text)
    if message.plain_text and message.html:
        mail.add_alternative(message.html, subtype="html")
        page = mail.get_payload()[-1]  # type: ignore[assignment, index] # the part just added
    elif message.html:
        mail.set_content(message.html, subtype="html")
    for file in sorted(message.attachments, key=lambda file: file.disposition != "inline" or not message.html):
        kind = policy.SMTP.header_factory("Content-Type", file.mime_type)
        is_own = kind.maintype in _OWN_TYPES
        add = page.add_related if file.disposition == "inline" and message.html else mail.add_attachment
        add(
            file.content,
            maintype="application" if is_own else kind.maintype,
            subtype="octet-stream" if is_own else kind.subtype,
            params={} if is_own else dict(kind.params),
            disposition=file.disposition,
            filename=file.filename,
            cid=None if file.content_id is None else f"<{file.content_id}>",
        )
