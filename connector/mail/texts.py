"""The texts of a mail job as templates, and the email that they make of one row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from connector.mail.draft import Draft, build_recipient, compose_draft, read_attachment
from connector.mail.message import Attachment, Header, Message, MessageError
from connector.templates import Template

Cells = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RowAttachment:
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
    row_files: tuple[RowAttachment, ...]
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
        """Return the address that a row's email goes to, as it is sent."""
        return cells.get(self.address_column, "").strip()

    def compose(self, cells: Cells, now: datetime) -> Message:
        """Return the email of a row with these cells by column; `now` is aware. Raises MessageError and
        TemplateError."""
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

    def _attach(self, file: RowAttachment, cells: Cells) -> Attachment:
        path = Path(file.template.render(cells))
        if not path.resolve().is_relative_to(file.folder.resolve()):
            raise MessageError("Email.Attachments", "the row names a file outside of the folder that the job names")
        return read_attachment(path, most_bytes=self.most_attached, mime_type=file.mime_type)

    def _templates(self) -> list[Template]:
        found = [self.subject, self.html, self.text, *(each for _, each in self.headers)]
        return [each for each in found if each is not None] + [each.template for each in self.row_files]
