"""Writes a message for a person to look at: an .eml file by Python's `email` package, and a page for a browser.

Each header of the .eml file is one line of any length: Python's folding loses blanks between encoded words. Neither
file contains the service's settings.
"""

from base64 import b64encode
from email import errors, policy
from email.headerregistry import Address
from email.message import EmailMessage
from html import escape

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


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 16px/1.4 sans-serif; margin: 1rem; }} th {{ text-align: left; vertical-align: top; padding-right: 1rem; }}
td {{ overflow-wrap: anywhere; }} iframe, pre {{ width: 100%; border: 1px solid #888; box-sizing: border-box; }}
iframe {{ height: 75vh; background: #fff; }} pre {{ white-space: pre-wrap; padding: 1rem; }}
</style></head><body><table>{headers}</table>{body}</body></html>
"""


def write_page(message: Message) -> bytes:
    """Return a page with the headers of the email, its HTML with the inline pictures, and the names of its files.

    A page of an email without HTML shows the plain text. The page runs no script and loads nothing from elsewhere, such
    as external pictures.
    """
    people = {"From": [message.sender], "To": message.to, "Cc": message.cc, "Bcc": message.bcc}
    headers = {name: ", ".join(map(_write_recipient, recipients)) for name, recipients in people.items()}
    headers |= {"Reply-To": ", ".join(map(_write_recipient, message.reply_to)), "Subject": message.subject}
    headers |= {header.name: header.value for header in message.headers}
    headers["Files"] = ", ".join(file.filename for file in message.attachments if file.disposition == "attachment")
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in headers.items() if value)
    html = message.html or ""
    inline = {file.content_id: file for file in message.attachments if file.content_id is not None}
    for content_id in sorted(inline, key=len, reverse=True):  # `logo` is also the beginning of `logo2`
        file = inline[content_id]
        html = html.replace(f"cid:{content_id}", f"data:{file.mime_type};base64,{b64encode(file.content).decode()}")
    body = f'<iframe sandbox title="Email" srcdoc="{escape(html)}"></iframe>'
    if not html:
        body = f"<pre>{escape(message.plain_text or '')}</pre>"
    return _PAGE.format(title=escape(message.subject), headers="".join(rows), body=body).encode()


def _write_recipient(recipient: Recipient) -> str:
    return f"{recipient.name} <{recipient.email}>" if recipient.name else recipient.email


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
