"""What a worker stages of an export to a table: its rows, in a table of their own beside the target."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
from sqlalchemy.schema import CreateTable

from connector.atomic_file import describe_unwritable
from connector.databases import explain, list_errors, show_url
from connector.errors import RunAborted
from connector.warehouse.columns import move_nuls
from connector.warehouse.interruption import Interruption
from connector.warehouse.runs import OF_RUN, StagedPart
from connector.warehouse.stage import Stage
from connector.warehouse.tables import Database, TableParts


class TablePartWriter:
    """A PartWriter of one part of a table, named `name`."""

    def __init__(self, parts: TableParts, schema: pa.Schema, database: Database, name: str) -> None:
        self._parts, self._database, self._name = parts, database, name
        self._schema = pa.schema([field for field in schema if field.name not in OF_RUN])
        self._interruption = Interruption()
        self._stage: Stage | None = None

    @property
    def is_committing(self) -> bool:
        """Whether the transaction is at its commit."""
        return self._interruption.is_committing

    def start(self) -> None:
        """Begin to stage."""
        self.discard()
        try:
            file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed with the stage
        except OSError as error:
            raise describe_unwritable(Path(tempfile.gettempdir()), error) from error
        self._stage = Stage(file, self._schema)

    def add(self, table: pa.Table) -> None:
        """Stage rows."""
        if self._stage is None:
            raise ValueError("start() comes before add()")
        try:
            self._stage.add(table.select(self._schema.names))
        except (OSError, pa.ArrowException) as error:
            raise self._describe(error) from None

    def finish(self) -> StagedPart:
        """Copy the rows into a table of their own, in one transaction."""
        if self._stage is None:
            raise ValueError("start() comes before finish()")
        database, part = self._database, self._parts.build(self._name)
        try:
            rows = self._stage.close_rows().map(self._watch)
            with database.connect(self._interruption) as connection:
                connection.execute(CreateTable(part))
                count = database.load(connection, part, rows if database.holds_nul else rows.map(move_nuls), {})
                database.commit(connection, self._interruption)
        except (OSError, pa.ArrowException, *list_errors(database.engine)) as error:
            raise self._describe(error) from None
        finally:
            self.discard()
        return StagedPart({self._name: count})

    def interrupt(self) -> None:
        """End `finish` soon."""
        with suppress(OSError, *list_errors(self._database.engine)):  # what was to be cancelled has ended
            self._interruption.interrupt()

    def discard(self) -> None:
        """Forget the rows."""
        stage, self._stage = self._stage, None
        if stage is not None:
            with suppress(OSError):  # bytes that no longer fit on the disk belong to a file that is gone next
                stage.discard()

    def _watch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._interruption.check()
        return batch

    def _describe(self, error: Exception) -> RunAborted:
        url = self._database.engine.url
        return RunAborted(
            f"Could not stage rows in {show_url(url)}: {explain(error, url)}. The table is as it was; run it again."
        )
