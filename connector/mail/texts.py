"""The texts of a mail job as templates, and the email that they make of one row."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from connector.mail.draft import Draft, build_recipient, compose_draft
from connector.mail.message import Header, Message
from connector.templates import Template

Cells = Mapping[str, str]


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
        draft = replace(
            self.shared,
            to=(recipient,),
            subject=self.subject.render(cells),
            html=self.html.render(cells) if self.html else None,
            plain_text=self.text.render(cells) if self.text else None,
            headers=tuple(Header(header, template.render(cells)) for header, template in self.headers),
        )
        return compose_draft(draft, now)

    def _templates(self) -> list[Template]:
        found = [self.subject, self.html, self.text, *(each for _, each in self.headers)]
        return [each for each in found if each is not None]
