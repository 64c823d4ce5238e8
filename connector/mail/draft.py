"""Builds messages from the parts of an email that a person has set.

The service decides every setting that is null or missing (service-api.md 2.2). So a message has a value for each
setting. Null is sent only if a person has written null. Two settings are exceptions. If SendAt is null, the service
sends the email immediately. If UseDkimSelector is null, the service uses no selector.
"""

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html.parser import HTMLParser
from mimetypes import MimeTypes
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from connector.mail.message import Attachment, EmailSettings, Header, Message, MessageError, Recipient
from connector.rows import Row

if TYPE_CHECKING:
    from connector.templates import Template


# The plain text of an HTML body


_BLOCK_TAGS = frozenset(
    {"address", "article", "aside", "body", "center", "dd", "div", "dt", "fieldset", "figure", "footer", "form",
     "header", "hr", "html", "li", "main", "nav", "option", "section", "tbody", "tr"}
)  # fmt: skip
# Block elements with an empty line before and after them.
_TAGS_WITH_EMPTY_LINES = frozenset(
    {"blockquote", "dl", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "table", "ul"}
)
_HIDDEN_TAGS = frozenset({"head", "noframes", "script", "style", "template", "title"})
_VOID_TAGS = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_TAGS_ENDED_BY_SAME_TAG = frozenset({"dd", "dt", "li", "option", "p", "td", "th", "tr"})
_HIDING_STYLE_PATTERN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_CONTROL_CHARACTERS_PATTERN = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")
_WHITE_SPACE_PATTERN = re.compile(r"[ \t\n\r\f]+")
_HREF_WITHOUT_ADDRESS_PATTERN = re.compile(r"\s*(#|cid:|javascript:|data:)|\s*$", re.IGNORECASE)
_SCHEME_PATTERN = re.compile(r"(?:mailto:|tel:|https?://)", re.IGNORECASE)
# Marks for a new line and for an empty line. Consecutive marks count as one mark.
_NEW_LINE_MARK, _EMPTY_LINE_MARK = "\x1e", "\x1f"
_MAX_LIST_DEPTH = 8  # deeper lists are not indented further


def convert_html_to_text(html: str) -> str:
    """Return the text of any HTML, or "" for HTML without text. A link is written as `text [address]`, and a picture as
    its alt text.

    No line ends with a blank, and an empty line never follows another empty line.
    """
    reader = _HtmlTextReader()
    reader.feed(_CONTROL_CHARACTERS_PATTERN.sub(" ", html))
    reader.close()
    reader.end_link()
    text = re.sub(" +", " ", "".join(reader.pieces))
    text = re.sub(rf"[ \t{_NEW_LINE_MARK}]*{_EMPTY_LINE_MARK}[ \t{_NEW_LINE_MARK}{_EMPTY_LINE_MARK}]*", "\n\n", text)
    text = re.sub(rf"[ \t]*\n?[ \t]*{_NEW_LINE_MARK}[ \t{_NEW_LINE_MARK}]*|[ \t]*\n[ \t]*", "\n", text)
    text = re.sub(r" ?\t[ \t]*", "  ", text).replace("\xa0", " ")
    lines = (line.rstrip() for line in text.split("\n"))  # rstrip removes all Unicode blanks
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


class _HtmlTextReader(HTMLParser):
    """A parser that collects pieces of text. A tab separates cells, and a no-break space is a blank that is not merged
    with other blanks."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        # The tag of the open hidden element, and the number of open elements with this tag.
        self._hidden_tag, self._hidden_depth = "", 0
        self._link, self._link_start = "", 0
        # The last number of each open list, or None for a list without numbers.
        self._list_numbers: list[int | None] = []
        self._preformatted_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden_tag and tag == self._hidden_tag in _TAGS_ENDED_BY_SAME_TAG:
            self._hidden_tag = ""
        if self._hidden_tag:
            self._hidden_depth += tag == self._hidden_tag
            return
        attribute_values = dict(attrs)
        if tag in _HIDDEN_TAGS or (
            tag not in _VOID_TAGS and _HIDING_STYLE_PATTERN.search(attribute_values.get("style") or "")
        ):
            self._hidden_tag, self._hidden_depth = tag, 1
        self._break_line(tag)
        if tag == "br":
            self.pieces.append("\n")
        elif tag in ("td", "th"):
            self.pieces.append("\t")
        elif tag == "img":
            self.pieces.append(_WHITE_SPACE_PATTERN.sub(" ", attribute_values.get("alt") or ""))
        elif tag == "a":
            self.end_link()
            href = attribute_values.get("href") or ""
            self._link = "" if _HREF_WITHOUT_ADDRESS_PATTERN.match(href) else _WHITE_SPACE_PATTERN.sub("", href)
            self._link_start = len(self.pieces)
        elif tag in ("ul", "ol"):
            self._list_numbers.append(0 if tag == "ol" else None)
        elif tag == "li":
            self.pieces.append(self._build_item_mark())
        elif tag == "pre":
            self._preformatted_depth += 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)  # in HTML, <div/> only opens an element

    def handle_endtag(self, tag: str) -> None:
        if self._hidden_tag:
            self._hidden_depth -= tag == self._hidden_tag
            self._hidden_tag = self._hidden_tag if self._hidden_depth else ""
            return
        self._break_line(tag)
        if tag == "a":
            self.end_link()
        elif tag in ("ul", "ol") and self._list_numbers:
            self._list_numbers.pop()
        elif tag == "pre":
            self._preformatted_depth = max(self._preformatted_depth - 1, 0)

    def handle_data(self, data: str) -> None:
        if self._hidden_tag:
            return
        if self._preformatted_depth:
            self.pieces.append(data.replace(" ", "\xa0").replace("\t", "\xa0" * 4).replace("\r", "").replace("\f", ""))
        else:
            self.pieces.append(_WHITE_SPACE_PATTERN.sub(" ", data))

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Skip `<![…]>`, as a browser does, because Python raises AssertionError for most of these sections."""
        return self.rawdata.find(">", i) + 1 or -1

    def end_link(self) -> None:
        """Write the address of the open link. If the text of the link is the address, write nothing."""
        text = "".join(self.pieces[self._link_start :]).strip() if self._link else ""
        if text and _SCHEME_PATTERN.sub("", text).rstrip("/") != _SCHEME_PATTERN.sub("", self._link).rstrip("/"):
            self.pieces.append(f" [{self._link}]")
        self._link = ""

    def _break_line(self, tag: str) -> None:
        if tag in _TAGS_WITH_EMPTY_LINES:
            is_inner_list = tag in ("ul", "ol") and len(self._list_numbers) > 0
            self.pieces.append(_NEW_LINE_MARK if is_inner_list else _EMPTY_LINE_MARK)
        elif tag in _BLOCK_TAGS:
            self.pieces.append(_NEW_LINE_MARK)

    def _build_item_mark(self) -> str:
        indent = "\xa0\xa0" * min(max(len(self._list_numbers) - 1, 0), _MAX_LIST_DEPTH)
        if self._list_numbers and (item_number := self._list_numbers[-1]) is not None:
            self._list_numbers[-1] = item_number + 1
            return f"{indent}{item_number + 1}. "
        return f"{indent}* "


# Recipients as a person writes them: an address, or a name and an address

_NAME_AND_ADDRESS_PATTERN = re.compile(r"(?P<name>[^<>]*)<(?P<email>[^<>]*)>")
_QUOTED_NAME_PATTERN = re.compile(r'"(?P<inside>(?:[^"\\]|\\.)*)"')
_ESCAPED_CHARACTER_PATTERN = re.compile(r"\\(.)")


def parse_recipient(text: str, field: str) -> Recipient:
    """Parse `ann@example.com`, `Ann Lee <ann@example.com>` or `"Lee, Ann" <ann@example.com>`.

    Raises MessageError. The error names `field` and does not show the text.
    """
    person_match = _NAME_AND_ADDRESS_PATTERN.fullmatch(text.strip())
    email, person_name = (person_match["email"], person_match["name"].strip()) if person_match else (text, "")
    quoted_name_match = _QUOTED_NAME_PATTERN.fullmatch(person_name)
    if quoted_name_match:
        person_name = _ESCAPED_CHARACTER_PATTERN.sub(r"\1", quoted_name_match["inside"])
    return build_recipient(email, person_name or None, field)


def build_recipient(email: str, name: str | None, field: str) -> Recipient:
    """Return a recipient with this address and name. Raises MessageError. The error names `field`."""
    try:
        return Recipient(email.strip(), name)
    except MessageError as error:
        field_name = error.field.rpartition(".")[2]
        raise MessageError(f"{field}.{field_name}", error.problem) from None


def convert_to_timestamp(send_at: datetime | None, now: datetime) -> int | None:
    """Return `send_at` as a Unix timestamp, or None if the email is to be sent immediately. `now` has a time zone.

    A fraction of a second is rounded up. Raises MessageError if `send_at` has no time zone or is in the past.
    """
    if send_at is None:
        return None
    if send_at.tzinfo is None:
        raise MessageError("EmailSettings.SendAt", "has no time zone; add an offset, such as +01:00")
    if send_at < now:
        raise MessageError(
            "EmailSettings.SendAt", "is in the past; set a later time, or leave the time out to send immediately"
        )
    return int(send_at.timestamp()) + bool(send_at.microsecond)


# Attached files

ATTACHMENTS_FIELD = "Email.Attachments"
UNKNOWN_MIME_TYPE = "application/octet-stream"

MAX_ATTACHMENT_BYTES = 20_000_000
"""The default limit of an attached file. The limit of the service is unknown (service-api.md 8)."""

# A new table has only Python's own types. The global table of `mimetypes` also reads files of the machine.
_MIME_TABLE = MimeTypes()
# The standard types of Python's table have precedence over its non-standard types.
_MIME_TYPE_BY_SUFFIX = _MIME_TABLE.types_map[False] | _MIME_TABLE.types_map[True]


def guess_mime_type(name: str) -> str:
    """Return the MIME type of a file with this name, or UNKNOWN_MIME_TYPE if Python's table lacks the suffix."""
    return _MIME_TYPE_BY_SUFFIX.get(PurePath(name).suffix.lower(), UNKNOWN_MIME_TYPE)


def read_attachment(
    path: Path,
    *,
    max_bytes: int,
    disposition: Literal["attachment", "inline"] = "attachment",
    content_id: str | None = None,
    mime_type: str | None = None,
) -> Attachment:
    """Read a file of at most `max_bytes` bytes, and return it as an attachment with the name of the file.

    Raises MessageError if the file is missing, unreadable, not a regular file, empty or too large. The error shows the
    path.
    """
    quoted_path = repr(str(path))  # repr escapes characters that could change a terminal
    try:
        file_mode = path.stat().st_mode
        if stat.S_ISDIR(file_mode):
            raise MessageError(
                ATTACHMENTS_FIELD, f"{quoted_path} is a folder; attach a file, or a zip file of the folder"
            )
        if not stat.S_ISREG(file_mode):  # reading a pipe or a device may wait or never end
            raise MessageError(ATTACHMENTS_FIELD, f"{quoted_path} is not a regular file; attach a regular file")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise MessageError(ATTACHMENTS_FIELD, f"{quoted_path} does not exist; check the path") from None
    except OSError as error:
        raise MessageError(ATTACHMENTS_FIELD, f"{quoted_path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise MessageError(ATTACHMENTS_FIELD, f"{quoted_path} is not a path: it has a NUL character") from None
    if len(content) > max_bytes:
        raise MessageError(
            ATTACHMENTS_FIELD, f"{quoted_path} is larger than {max_bytes:,} bytes, the limit; attach a smaller file"
        )
    if not content:
        raise MessageError(ATTACHMENTS_FIELD, f"{quoted_path} is empty; attach a file with content")
    return Attachment(content, path.name, mime_type or guess_mime_type(path.name), disposition, content_id)


# The message

SettingValues = Mapping[str, bool | str | None]
"""The settings that have a value, by their names in SETTING_NAMES."""


def compose_message(
    now: datetime,
    *,
    sender: Recipient | None,
    subject: str | None,
    to: Sequence[Recipient],
    html: str | None = None,
    plain_text: str | None = None,
    settings: SettingValues = MappingProxyType({}),
    send_at: datetime | None = None,
    cc: Sequence[Recipient] = (),
    bcc: Sequence[Recipient] = (),
    reply_to: Sequence[Recipient] = (),
    headers: Sequence[Header] = (),
    attachments: Sequence[Attachment] = (),
) -> Message:
    """Return a message from the parts that a person has set. If there is no plain-text body, convert the HTML to plain
    text. `now` and `send_at` have a time zone.

    Raises MessageError. The error names the first field that is missing or breaks a rule.
    """
    if sender is None:
        raise MessageError("Email.From", "is missing: every email needs a sender's address")
    if subject is None:
        raise MessageError("Email.Subject", 'is missing; for an empty subject write ""')
    setting_values: dict[str, Any] = {**settings, "use_dkim_selector": settings.get("use_dkim_selector") or None}
    if plain_text is None and html:
        plain_text = convert_html_to_text(html) or None
    return Message(
        settings=EmailSettings(**setting_values, send_at=convert_to_timestamp(send_at, now)),
        sender=sender,
        to=to,
        cc=cc,
        bcc=bcc,
        reply_to=reply_to,
        subject=subject,
        html=html,
        plain_text=plain_text,
        headers=headers,
        attachments=attachments,
    )


# The texts of a mail job


@dataclass(frozen=True, slots=True)
class MailTexts:
    """The email of a mail job: the parts that all rows share, and the templates."""

    sender: Recipient
    reply_to: tuple[Recipient, ...]
    attachments: tuple[Attachment, ...]
    settings: SettingValues
    send_at: datetime | None  # with a time zone
    address_column: str
    name_column: str | None
    subject: "Template"
    html: "Template | None"
    text: "Template | None"
    headers: tuple[tuple[str, "Template"], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the addresses and the templates use."""
        used_columns = [self.address_column, *([self.name_column] if self.name_column else [])]
        for template in self._list_templates():
            used_columns += template.columns
        return tuple(dict.fromkeys(used_columns))

    def find_job_key(self, column: str) -> str:
        """Return the first key of the job that uses the column."""
        if column in (self.address_column, self.name_column):
            return "mail.to"
        return next(template.name for template in self._list_templates() if column in template.columns)

    def read_address(self, row: Row) -> str:
        """Return the address of a row's recipient, without white space at its ends."""
        return _read_cells(row).get(self.address_column, "").strip()

    def compose(self, row: Row, now: datetime) -> Message:
        """Return the email of a row. `now` has a time zone. Raises MessageError and TemplateError."""
        cells = _read_cells(row)
        subject = self.subject.render(cells)
        if self.subject.columns and not subject.strip():
            raise MessageError(
                "Email.Subject",
                f"is empty for this row: fill the column {' or '.join(self.subject.columns)}, or change the template",
            )
        person_name = cells.get(self.name_column, "").strip() if self.name_column else ""
        recipient = build_recipient(self.read_address(row), person_name or None, "Email.To[0]")
        return compose_message(
            now,
            sender=self.sender,
            to=(recipient,),
            reply_to=self.reply_to,
            subject=subject,
            html=self.html.render(cells) if self.html else None,
            plain_text=self.text.render(cells) if self.text else None,
            headers=tuple(Header(header, template.render(cells)) for header, template in self.headers),
            attachments=self.attachments,
            settings=self.settings,
            send_at=self.send_at,
        )

    def _list_templates(self) -> "list[Template]":
        templates = [self.subject, self.html, self.text, *(template for _, template in self.headers)]
        return [template for template in templates if template is not None]


def _read_cells(row: Row) -> dict[str, str]:
    return {column: cell or "" for column, cell in zip(row.columns, row.cells, strict=True)}
