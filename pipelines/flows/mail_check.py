"""Every row of a mail run is checked before the first email leaves: its address, its texts, all that is sent. Rows that
make an email are kept in a file without a name: the source is read once, so that what is sent is what was checked.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from types import TracebackType
from typing import Self

import orjson

from connector.errors import RunAborted
from connector.load import Problem, Row
from connector.load.candidates import take_rows
from connector.mail.draft import Composed
from connector.mail.message import Message, MessageError
from connector.mail.texts import MailTexts
from connector.outcomes import MailOutcome, Outcome
from connector.rows import Source
from connector.subscribers import ColumnRule, FieldMapping, PreparedChunk, Suppression, ValidationRules, prepare_chunks
from connector.templates import TemplateError
from pipelines.rows.rejects import build_invalid, build_malformed


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunAborted(
            f"the rows of the run cannot be kept in {tempfile.gettempdir()}: {error.strerror}. Nothing was sent; make "
            "room there, or name another folder by TMPDIR, and run again"
        ) from None


@dataclass(frozen=True, slots=True)
class Kept:
    """A row, and the digest of the files that went with its email as it was checked."""

    row: Row
    files: bytes


def digest_files(message: Message) -> bytes:
    """A digest (16 bytes) of all that is attached: what a row names may be another file by the time it is sent."""
    digest = blake2b(digest_size=16)
    for each in message.attachments:
        digest.update(blake2b(each.content).digest())
    return digest.digest()


class Spool:
    """Rows in their order; written first, read after."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # on a full disk what is still in memory is not written: it is not read any more
            self._file.close()

    def add(self, row: Row, files: bytes) -> None:
        """Keep a row, and the digest of the files that go with its email. Raises RunAborted when there is no room."""
        with _explained():
            self._file.write(orjson.dumps([row.number, row.file, row.columns, row.cells, files.hex()]) + b"\n")
        self.rows += 1

    def read(self, number: int) -> Iterator[list[Kept]]:
        """All of them, so many at a time."""
        with _explained():
            self._file.seek(0)  # what is still in memory is written
        batch: list[Kept] = []
        for line in self._file:
            place, file, columns, cells, files = orjson.loads(line)
            batch.append(Kept(Row(place, file, tuple(columns), tuple(cells)), bytes.fromhex(files)))
            if len(batch) == number:
                yield batch
                batch = []
        if batch:
            yield batch


_RULES = ValidationRules(identity="email")

Hear = Callable[[Problem, str | None], None]
"""A row that a person must see, and its record if that is no row."""


@dataclass(slots=True)
class Checked:
    """What a check found: the outcomes so far, of the rows that are not to be sent, and what a person should know."""

    outcomes: Counter[MailOutcome] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    warnings: set[str] = field(default_factory=set)
    read: int = 0


@dataclass(frozen=True, slots=True)
class Checker:
    """Reads a source and keeps in the spool those rows that make an email; `now` is the time of the run."""

    source: Source
    texts: MailTexts
    now: datetime
    limit: int | None
    suppression: Suppression | None
    hear: Hear
    is_stopped: Callable[[], bool]

    def check(self, spool: Spool, checked: Checked) -> None:
        """Check every row, and write down in `checked` what is found, also if it breaks off. Raises SourceError, and
        RunAborted when it is to stop or the spool has no room."""
        mapping = FieldMapping({"email": ColumnRule(column=self.texts.address_column)})
        prepared = prepare_chunks(
            self.source, mapping, _RULES, today=self.now.date(), limit=self.limit, suppression=self.suppression
        )
        for each in prepared:
            if self.is_stopped():
                raise RunAborted("the run was stopped while its rows were being checked; nothing was sent")
            self._sort_out(each, checked)
            self._keep(each, checked, spool)

    def _sort_out(self, prepared: PreparedChunk, checked: Checked) -> None:
        """The rows that are no subscriber to be, are repeated, or want no email."""
        checked.read += prepared.read
        checked.messages += prepared.chunk.messages
        invalid = build_invalid(prepared.chunk, prepared.faults)
        for malformed in prepared.chunk.malformed:
            self.hear(build_malformed(malformed, prepared.chunk.name), malformed.raw)
        for problem in invalid:
            self.hear(problem, None)
        checked.outcomes[MailOutcome.INVALID] += len(invalid) + len(prepared.chunk.malformed)
        checked.outcomes[MailOutcome.DUPLICATE] += len(prepared.repeats)
        checked.outcomes[MailOutcome.SUPPRESSED] += len(prepared.suppressed)

    def _keep(self, prepared: PreparedChunk, checked: Checked, spool: Spool) -> None:
        for row in self._take_rows(prepared):
            try:
                composed = self.compose(row)
            except MessageError as error:
                self._refuse(row, error.field, "email", error.problem, checked)
            except TemplateError as error:
                self._refuse(row, "", "template", str(error), checked)
            else:
                checked.warnings.update(composed.warnings)
                spool.add(row, digest_files(composed.message))

    def _take_rows(self, prepared: PreparedChunk) -> Iterator[Row]:
        yield from take_rows(prepared.chunk, prepared.planned.subscribers.index.tolist())

    def compose(self, row: Row) -> Composed:
        """The email of a row. Raises MessageError and TemplateError."""
        return self.texts.compose(read_cells(row), self.now)

    def _refuse(self, row: Row, field: str, code: str, message: str, checked: Checked) -> None:
        checked.outcomes[MailOutcome.INVALID] += 1
        self.hear(Problem(row, Outcome.INVALID, field, code, message), None)


def read_cells(row: Row) -> dict[str, str]:
    """A row's cells by column, "" for an empty one."""
    return {column: cell or "" for column, cell in zip(row.columns, row.cells, strict=True)}
