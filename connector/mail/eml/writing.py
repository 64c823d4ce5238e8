"""An .eml file of a message: what it amounts to, for a person to look at. The service's own settings are no part of it.

The same message always gives the same bytes: there is no date and no id but those that are given as headers.
"""

import binascii
import re
from base64 import encodebytes
from collections.abc import Iterator, Sequence

from connector.mail.eml.encoding import LINE_END, encode_filename, encode_people, encode_text
from connector.protocol.email import Attachment, Header, Message
from connector.protocol.email_rules import MessageError

_OWN = frozenset({"from", "to", "cc", "bcc", "reply-to", "subject", "mime-version"})
_CONTENT_ID = re.compile(r"[!-;=?-~]{1,900}")  # printable ASCII without < and >
_TYPE = re.compile(r"[ -~]{1,900}")


def write_eml(message: Message) -> bytes:
    """The file's bytes; line ends of bodies become CRLF.

    Raises MessageError for what no email can hold: an address, a header of the email's own, a content id or a type.
    """
    lines = [*_list_headers(message), "MIME-Version: 1.0", _build_whole(message)]
    return LINE_END.join(lines).encode()


def _list_headers(message: Message) -> Iterator[str]:
    yield encode_people("From", "Email.From", [message.sender])
    for name, field, people in (
        ("To", "Email.To", message.to),
        ("Cc", "Email.Cc", message.cc),
        ("Bcc", "Email.Bcc", message.bcc),
        ("Reply-To", "Email.ReplyTo", message.reply_to),
    ):
        if people:
            yield encode_people(name, field, people)
    yield encode_text("Subject", message.subject)
    for place, header in enumerate(message.headers):
        _refuse_own(header, f"Email.Headers[{place}].Name")
        yield encode_text(header.name, header.value)


def _refuse_own(header: Header, field: str) -> None:
    if header.name.lower() in _OWN or header.name.lower().startswith("content-"):
        raise MessageError(field, f"is {header.name}, which the email has of itself; leave it out of the headers")


def _build_whole(message: Message) -> str:
    """The parts within each other: the files around a choice of texts, and the page's pictures with the page."""
    files = [(f"Email.Attachments[{place}]", each) for place, each in enumerate(message.attachments)]
    pictures = [(field, each) for field, each in files if each.disposition == "inline" and message.html]
    around = [(field, each) for field, each in files if (field, each) not in pictures]
    bodies: list[str] = []
    if message.plain_text:
        bodies.append(_build_body("plain", message.plain_text))
    if message.html:
        page = _build_body("html", message.html)
        bodies.append(_build_parts('related; type="text/html"', [page, *_build_files(pictures)]))
    return _build_parts("mixed", [_build_parts("alternative", bodies), *_build_files(around)])


def _build_parts(kind: str, parts: Sequence[str]) -> str:
    """The parts as one; one alone stands for itself.

    No body holds the line that divides them: each is quoted-printable or base64, and `=_` is in neither.
    """
    if len(parts) == 1:
        return parts[0]
    boundary = f"=_{kind.partition(';')[0]}"
    inside = "".join(f"--{boundary}{LINE_END}{part}{LINE_END}" for part in parts)
    return f'Content-Type: multipart/{kind}; boundary="{boundary}"{LINE_END}{LINE_END}{inside}--{boundary}--{LINE_END}'


def _build_body(kind: str, text: str) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    quoted = binascii.b2a_qp(lines.encode(), quotetabs=False, istext=True).decode("ascii")
    return LINE_END.join(
        [
            f'Content-Type: text/{kind}; charset="utf-8"',
            "Content-Transfer-Encoding: quoted-printable",
            "",
            quoted.replace("\n", LINE_END),
        ]
    )


def _build_files(files: Sequence[tuple[str, Attachment]]) -> list[str]:
    return [_build_file(field, each) for field, each in files]


def _build_file(field: str, file: Attachment) -> str:
    if not _TYPE.fullmatch(file.mime_type):
        raise MessageError(f"{field}.Type", "is longer than a header may be, or more than ASCII")
    lines = [f"Content-Type: {file.mime_type}", "Content-Transfer-Encoding: base64"]
    if file.content_id is not None:
        if not _CONTENT_ID.fullmatch(file.content_id):
            raise MessageError(f"{field}.ContentId", "must be ASCII without blanks, < and >, and of 900 characters")
        lines.append(f"Content-ID: <{file.content_id}>")
    lines.append(f"Content-Disposition: {file.disposition}{encode_filename(file.filename)}")
    content = encodebytes(file.content).decode("ascii").rstrip().replace("\n", LINE_END)
    return LINE_END.join([*lines, "", content])
