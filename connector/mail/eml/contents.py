"""A part of an .eml file: the text of a body, or a file with its bytes as they were."""

import re
from email.errors import InvalidBase64LengthDefect
from email.message import Message as Part
from email.policy import compat32
from email.utils import unquote

from connector.mail.eml.charsets import decode
from connector.mail.eml.decoding import read_text
from connector.mail.files import UNKNOWN_TYPE, guess_suffix
from connector.protocol.email import Attachment
from connector.protocol.email_rules import MessageError, check_mime_type

_ENCODINGS = frozenset({"", "7bit", "8bit", "binary", "base64", "quoted-printable"})
_META_CHARSET = re.compile(rb"""<meta[^>]*charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_HEAD = 2048  # bytes of a page in which its character set is looked for; HTML asks for the first 1,024
_TOKEN = re.compile(r"[\w!#$%&'*+.^`{|}~-]+", re.ASCII)
_FORGOTTEN = frozenset({"boundary", "name"})
_AS_FOUND = compat32.clone(max_line_length=None, linesep="\r\n")


def read_body(part: Part, field: str) -> str:
    """A body's text, its lines ended by LF and, where they were broken only for the way (RFC 3676), whole again."""
    raw = _read_bytes(part, field)
    charset = part.get_param("charset")
    if charset is None and part.get_content_subtype() == "html":
        meta = _META_CHARSET.search(raw[:_HEAD])
        charset = meta[1].decode("ascii", "replace") if meta else None
    try:
        text = decode(raw, charset if isinstance(charset, str) else None)
    except ValueError as error:
        raise MessageError(field, str(error)) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if part.get_content_type() == "text/plain" and str(part.get_param("format", "")).lower() == "flowed":
        return _unflow(text, is_blank_dropped=str(part.get_param("delsp", "")).lower() == "yes")
    return text


def read_file(part: Part, number: str, *, is_related: bool, taken: set[str | None]) -> Attachment:
    """A part as a file, under a name made of its number if it has none; `taken` content ids are not given again."""
    field = f"Email, part {number}"
    content = _read_bytes(part, field)
    if not content:
        raise MessageError(field, "is an empty file; take it out of the .eml file")
    mime_type = _read_type(part)
    filename = _read_filename(part, f"{field}, its filename").strip()
    content_id = str(part.get("Content-ID", "")).strip(" \t<>") or None
    if content_id in taken:
        content_id = None
    disposition = part.get_content_disposition()
    is_inline = content_id is not None and (disposition == "inline" or (disposition is None and is_related))
    return Attachment(
        content,
        filename or f"part-{number}{guess_suffix(mime_type)}",
        mime_type,
        "inline" if is_inline else "attachment",
        content_id,
    )


def _read_bytes(part: Part, field: str) -> bytes:
    encoding = str(part.get("Content-Transfer-Encoding", "")).partition(";")[0].strip().lower()
    if encoding not in _ENCODINGS:
        raise MessageError(field, f"is in an encoding that is not known, {encoding[:40]!r}")
    if part.is_multipart():  # an email within the email, which Python has taken apart
        return _read_inner(part, field, encoding)
    raw = part.get_payload(decode=True)
    if any(isinstance(defect, InvalidBase64LengthDefect) for defect in part.defects):
        raise MessageError(field, "is damaged: its base64 ends within a letter")
    return raw if isinstance(raw, bytes) else b""


def _read_inner(part: Part, field: str, encoding: str) -> bytes:
    """An email within the email as it stands there; some programs encode it, though none may (RFC 2046, 5.2.1)."""
    inner = b"\r\n".join(each.as_bytes(policy=_AS_FOUND) for each in part.get_payload())  # type: ignore[union-attr]
    if encoding not in ("base64", "quoted-printable"):
        return inner
    again = Part(policy=compat32)
    again["Content-Transfer-Encoding"] = encoding
    again.set_payload(inner.strip().decode("ascii", "surrogateescape"))
    return _read_bytes(again, field)


def _read_filename(part: Part, field: str) -> str:
    """The file's name; one in RFC 2231's form says its character set, any other may hold encoded words."""
    told = part.get_param("filename", None, "content-disposition", unquote=False)
    if told is None:
        told = part.get_param("name", "", unquote=False)
    if isinstance(told, str):
        return read_text(unquote(told), field)
    charset, _, text = told
    try:
        return decode(unquote(text).encode("latin-1"), charset)  # Python has taken the octets for letters
    except ValueError as error:
        raise MessageError(field, str(error)) from None


def _read_type(part: Part) -> str:
    """The type with the parameters that say how to read the file, as charset or an invitation's method."""
    kind = part.get_content_type()
    try:
        check_mime_type("Attachment.Type", kind)
    except MessageError:
        return UNKNOWN_TYPE
    told = [
        f"; {name}={value}"
        for name, value in (part.get_params() or [])[1:]
        if name.lower() not in _FORGOTTEN and _TOKEN.fullmatch(str(value))  # one in RFC 2231's form is no token
    ]
    return kind + "".join(told)


def _unflow(text: str, *, is_blank_dropped: bool) -> str:
    lines: list[str] = []
    is_open, depth_before = False, 0
    for line in text.split("\n"):
        content = line.lstrip(">")
        depth = len(line) - len(content)
        content = content.removeprefix(" ")
        is_signature = content == "-- "
        if is_open and depth == depth_before and not is_signature:
            lines[-1] += content
        else:
            lines.append(">" * depth + " " * bool(depth) + content)
        is_open, depth_before = content.endswith(" ") and not is_signature, depth
        if is_open and is_blank_dropped:
            lines[-1] = lines[-1][:-1]
    return "\n".join(lines)
