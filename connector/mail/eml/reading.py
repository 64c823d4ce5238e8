"""A draft of an .eml file, whichever program wrote it: people, subject, both bodies, headers and files.

Nothing is lost silently: what is neither body nor multipart becomes a file, and a file cut short is an error.
"""

import re
from collections.abc import Iterator
from email import message_from_bytes
from email.errors import CloseBoundaryNotFoundDefect, NoBoundaryInMultipartDefect, StartBoundaryNotFoundDefect
from email.message import Message as Part
from typing import NamedTuple

from connector.mail.draft import Draft
from connector.mail.eml.addresses import parse_people
from connector.mail.eml.contents import read_body, read_file
from connector.mail.eml.decoding import RawHeaders, read_text
from connector.mail.eml.kept_headers import is_kept
from connector.protocol.email import Attachment, Header, Recipient
from connector.protocol.email_rules import MessageError, check_text

_BEGINNING = re.compile(rb"(\xef\xbb\xbf)?[\r\n]*")
_TELLING = ("from", "to", "subject", "mime-version", "content-type", "date", "message-id")
_CUT = (CloseBoundaryNotFoundDefect, NoBoundaryInMultipartDefect, StartBoundaryNotFoundDefect)


class _Leaf(NamedTuple):
    """A part that holds no parts; `number` is its place, as 2.1; `is_related`: it stands beside a page."""

    part: Part
    number: str
    is_related: bool


def read_eml(data: bytes) -> Draft:
    """What the file says of an email; its date, ids, route and signatures are left behind.

    Raises MessageError with the field or the number of the part that cannot be read.
    """
    try:
        message = message_from_bytes(data[_BEGINNING.match(data).end() :], policy=RawHeaders())  # type: ignore[union-attr] # it matches nothing, too
        leaves = list(_list_leaves(message, "", is_related=False))
    except RecursionError:
        raise MessageError("Email", "has parts within parts too deep to be read") from None
    if not any(name in message for name in _TELLING):
        raise MessageError("Email", "is not an .eml file: it has none of an email's headers")
    bodies, files = _part_bodies(leaves)
    subject = message.get("Subject")
    return Draft(
        sender=_read_sender(message),
        to=_read_people(message, "To", "Email.To"),
        cc=_read_people(message, "Cc", "Email.Cc"),
        bcc=_read_people(message, "Bcc", "Email.Bcc"),
        reply_to=_read_people(message, "Reply-To", "Email.ReplyTo"),
        subject=None if subject is None else check_text("Email.Subject", read_text(subject, "Email.Subject")),
        html=bodies.get("text/html"),
        plain_text=bodies.get("text/plain"),
        headers=tuple(_read_headers(message)),
        attachments=_read_files(files),
    )


def _read_people(message: Part, name: str, field: str) -> tuple[Recipient, ...]:
    values = [value for value in message.get_all(name, []) if value]
    return parse_people(", ".join(values), field)


def _read_sender(message: Part) -> Recipient | None:
    people = _read_people(message, "From", "Email.From")
    if len(people) > 1:
        raise MessageError("Email.From", f"names {len(people)} people; an email of the service has one sender")
    return people[0] if people else None


def _read_headers(message: Part) -> Iterator[Header]:
    for name, value in message.items():
        if is_kept(name):
            yield Header(name, read_text(value, f"Email.Headers, {name}"))


def _list_leaves(part: Part, number: str, *, is_related: bool) -> Iterator[_Leaf]:
    kind = part.get_content_maintype()
    if kind != "multipart" or _is_encoded(part):
        yield _Leaf(part, number or "1", is_related)
        return
    if any(isinstance(defect, _CUT) for defect in part.defects):
        raise MessageError(f"Email, part {number or '1'}", "ends before its parts do: the file is cut short or damaged")
    children = list(part.get_payload())
    if part.get_content_subtype() == "signed":
        children = children[:1]  # the other is the signature, and the new email is another
    for place, child in enumerate(children, start=1):
        inside = is_related or part.get_content_subtype() == "related"
        yield from _list_leaves(child, f"{number}.{place}" if number else str(place), is_related=inside)


def _is_encoded(part: Part) -> bool:
    """Whether something that calls itself parts is a file, as a type was given by hand."""
    return not part.is_multipart() and str(part.get("Content-Transfer-Encoding", "")).lower() == "base64"


def _part_bodies(leaves: list[_Leaf]) -> tuple[dict[str, str], list[_Leaf]]:
    """The first text of either kind that is no file, and what remains."""
    bodies: dict[str, str] = {}
    files: list[_Leaf] = []
    for leaf in leaves:
        kind = leaf.part.get_content_type()
        is_file = leaf.part.get_content_disposition() == "attachment" or leaf.part.get_filename()
        if kind in ("text/html", "text/plain") and kind not in bodies and not is_file:
            bodies[kind] = read_body(leaf.part, f"Email, part {leaf.number}")
        else:
            files.append(leaf)
    return bodies, files


def _read_files(leaves: list[_Leaf]) -> tuple[Attachment, ...]:
    """The files; a content id is unique in an email, so that a second part of one is a file without."""
    files: list[Attachment] = []
    for leaf in leaves:
        taken = {file.content_id for file in files}
        files.append(read_file(leaf.part, leaf.number, is_related=leaf.is_related, taken=taken))
    return tuple(files)
