"""The texts of a mail job as templates, and the email that they make of one row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from connector.mail.draft import Composed, Draft
from connector.mail.files import read_attachment
from connector.mail.recipients import build_recipient
from connector.mail.send_times import parse_send_at
from connector.protocol.email import Attachment, Header
from connector.protocol.email_rules import MessageError
from connector.templates import Template, compile_template
from pipelines.emails.drafting import attach, compose_draft, read_text
from pipelines.jobs.emails import AttachedFile, EmailText, read_stated
from pipelines.jobs.mail import Mail

_MARKS = ("{{", "{%", "{#")

_LONGEST = 1_000_000  # characters; mail programs cut an HTML body off long before (Gmail: after 102 kB)

Cells = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _RowFile:
    """A file to attach whose path a row says, within `folder`."""

    folder: Path
    template: Template
    mime_type: str | None


@dataclass(frozen=True, slots=True)
class MailTexts:
    """A job's email before any row: what all rows share, and the templates."""

    shared: Draft
    address_column: str
    name_column: str | None
    subject: Template
    html: Template | None
    text: Template | None
    headers: tuple[tuple[str, Template], ...]
    row_files: tuple[_RowFile, ...]
    most_attached: int = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is asked for."""
        asked = [self.address_column, *([self.name_column] if self.name_column else [])]
        for each in self._templates():
            asked += each.columns
        return tuple(dict.fromkeys(asked))

    def name_place(self, column: str) -> str:
        """Which of the job's texts asks for a column."""
        if column in (self.address_column, self.name_column):
            return "mail.to"
        return next(each.name for each in self._templates() if column in each.columns)

    def read_address(self, cells: Cells) -> str:
        """The address that a row's email goes to, as it is sent."""
        return cells.get(self.address_column, "").strip()

    def compose(self, cells: Cells, now: datetime) -> Composed:
        """The email of a row with these cells by column; `now` is aware. Raises MessageError and TemplateError."""
        name = cells.get(self.name_column, "").strip() if self.name_column else ""
        recipient = build_recipient(self.read_address(cells), name or None, "Email.To[0]")
        headers = [Header(header, template.render(cells)) for header, template in self.headers]
        draft = Draft(
            sender=self.shared.sender,
            to=(recipient,),
            reply_to=self.shared.reply_to,
            subject=self.subject.render(cells),
            html=self.html.render(cells) if self.html else None,
            plain_text=self.text.render(cells) if self.text else None,
            headers=tuple(headers),
            attachments=(*self.shared.attachments, *(self._attach(each, cells) for each in self.row_files)),
            settings=self.shared.settings,
            send_at=self.shared.send_at,
        )
        return compose_draft(draft, now)

    def _attach(self, file: _RowFile, cells: Cells) -> Attachment:
        path = Path(file.template.render(cells))
        if not path.resolve().is_relative_to(file.folder.resolve()):
            raise MessageError("Email.Attachments", "the row names a file outside of the folder that the job names")
        return read_attachment(path, most_bytes=self.most_attached, mime_type=file.mime_type)

    def _templates(self) -> list[Template]:
        found = [self.subject, self.html, self.text, *(each for _, each in self.headers)]
        return [each for each in found if each is not None] + [each.template for each in self.row_files]


def build_texts(mail: Mail) -> MailTexts:
    """The texts of a job, its files read. Raises ConfigurationError: a file is missing or too large, a template cannot
    be read, a header cannot be one, a time has no zone."""
    html = read_text(mail.html) if mail.html else None
    text = read_text(mail.text) if mail.text else None
    return MailTexts(
        shared=Draft(
            sender=mail.from_,
            reply_to=mail.reply_to,
            attachments=(
                *(attach(each, "inline", mail.max_attached) for each in mail.inline),
                *(attach(each, "attachment", mail.max_attached) for each in mail.attach if not _is_template(each)),
            ),
            settings=read_stated(mail.tracking, mail.settings),
            send_at=parse_send_at(mail.at) if mail.at is not None else None,
        ),
        address_column=mail.to.email,
        name_column=mail.to.name,
        subject=_compile(mail.subject, name="mail.subject"),
        html=_compile(html, is_html=True, name=_name("mail.html", mail.html)) if html is not None else None,
        text=_compile(text, name=_name("mail.text", mail.text)) if text is not None else None,
        headers=tuple((name, _compile(value, name=f"mail.headers.{name}")) for name, value in mail.headers.items()),
        row_files=tuple(_build_row_file(each) for each in mail.attach if _is_template(each)),
        most_attached=mail.max_attached,
    )


def _compile(source: str, *, name: str, is_html: bool = False) -> Template:
    return compile_template(source, name=name, longest=_LONGEST, is_html=is_html)


def _name(key: str, text: EmailText | None) -> str:
    return f"{key} ({text.path})" if text is not None and text.path is not None else key


def _is_template(file: AttachedFile) -> bool:
    return any(mark in str(file.path) for mark in _MARKS)


def _build_row_file(file: AttachedFile) -> _RowFile:
    """A row may choose among the files of a folder, the last one that the job itself names."""
    parts = file.path.parts
    fixed = next(place for place, part in enumerate(parts) if any(mark in part for mark in _MARKS))
    template = _compile(str(file.path), name="mail.attach")
    return _RowFile(Path(*parts[:fixed]), template, file.type)
