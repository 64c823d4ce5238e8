"""The texts of a mail job as templates, and the email that they make of one row."""

from dataclasses import dataclass, replace
from datetime import datetime

from connector.mail.draft import Draft, build_recipient, compose_draft
from connector.mail.message import Header, Message
from connector.rows import Row
from connector.templates import Template


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

    def read_address(self, row: Row) -> str:
        """Return the address that a row's email goes to, as it is sent."""
        return _read_cells(row).get(self.address_column, "").strip()

    def compose(self, row: Row, now: datetime) -> Message:
        """Return the email of a row; `now` is aware. Raises MessageError and TemplateError."""
        cells = _read_cells(row)
        name = cells.get(self.name_column, "").strip() if self.name_column else ""
        recipient = build_recipient(self.read_address(row), name or None, "Email.To[0]")
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


def _read_cells(row: Row) -> dict[str, str]:
    """Return a row's cells by column, "" for an empty one."""
    return {column: cell or "" for column, cell in zip(row.columns, row.cells, strict=True)}
