"""An export to a table: rows are staged as Arrow while the list is read, then written in one transaction.

So nothing is locked while the list is read, and a reading that fails never touched the database.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.export.names import INVALID, OF_RUN
from connector.export.writers import checking, publishing
from connector.export.writers.homes import Home
from connector.export.writers.kinds import ID, TAGS
from connector.export.writers.layout import Layout, TableName, build_layout
from connector.export.writers.mode import Mode
from connector.export.writers.publishing import Published, Uncertain
from connector.export.writers.run import Changes, Run
from connector.export.writers.runs import name_of, write_filters
from connector.export.writers.session import Place, Session
from connector.export.writers.staged import Staged
from connector.export.writers.tag_rows import TAG_SCHEMA, explode_tags
from connector.export.writers.without_nul import move_nuls


@dataclass(frozen=True, slots=True)
class Way:
    """How rows are brought into a kind of database: `publish` does it, `settle` says whether it was done after all."""

    publish: Callable[[Place, Layout, Published, Run], Changes] = publishing.publish_at
    settle: Callable[[Session, Layout, Run, Uncertain], bool] = publishing.is_published


ONE_TRANSACTION = Way()


class TableWriter:
    """A Writer of a table in one of the modes, with a table of tags beside it if `tags_table` names one."""

    def __init__(
        self,
        name: TableName,
        home: Home,
        schema: pa.Schema,
        mode: Mode = Mode.REPLACE,
        tags_table: str | None = None,
        way: Way = ONE_TRANSACTION,
    ) -> None:
        self._way = way
        self._home = home
        self._schema = pa.schema([field for field in schema if field.name not in OF_RUN])
        self._layout = build_layout(schema, name, mode, home.place.dialect, tags_table)
        self._staged: Staged | None = None
        self._is_checked = False

    def __str__(self) -> str:
        return f"the table {name_of(self._layout.target)} in {self._home.place}"

    @property
    def has_target(self) -> bool:
        """Whether there is such a table, or one of its tags; raises ConfigurationError if the database cannot be
        opened."""
        if not self._home.is_there:
            return False
        with self._looking() as session:
            return any(session.describe(name_of(table)) is not None for table in self._layout.filled)

    def start(self) -> None:
        """Begin a new stage; the first time, see whether the table can be had (ConfigurationError, RunAborted)."""
        self.discard()
        self._home.check()
        if not self._is_checked and self._home.is_there:
            with self._looking() as session:
                checking.check_target(session, self._layout, str(self._home.place))
            if self._home.place.can_rehearse:
                with self._looking(is_reading=False) as session:
                    checking.rehearse(session, self._layout, str(self._home.place))
        self._is_checked = True
        file = self._home.open_stage()
        with self._told():
            self._staged = Staged(file, self._schema)

    def add(self, table: pa.Table) -> None:
        """Stage rows."""
        if self._staged is None:
            raise ValueError("start() comes before add()")
        with self._told():
            self._staged.add(table.select(self._schema.names))  # what all rows share is known when they are published

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """The rows of the last certified export to this table; None where there was none. What is replaced counts
        whatever it was filtered by, else only an export with the same filters."""
        if not self._home.is_there:
            return None
        with self._looking() as session:
            runs = checking.read_last_runs(session, self._layout)
        asked, is_replaced = write_filters(filters), self._layout.mode is Mode.REPLACE
        certified = (run for run in runs if run.verdict == "complete")
        return next((run.rows for run in certified if is_replaced or run.filters == asked), None)

    def publish(self, run: Run) -> Changes:
        """Write the staged rows in one transaction; a database that is new appears whole. Raises RunAborted."""
        if self._staged is None:
            raise ValueError("start() comes before publish()")
        with self._told():
            published = self._close_stage(self._staged)
            pa.default_memory_pool().release_unused()  # the list is read; what its pages took, the database may take
            with self._home.make() as place:
                changes = self._publish(place, published, run)
        self.discard()
        return changes

    def discard(self) -> None:
        """Forget the stage, if there is one."""
        staged, self._staged = self._staged, None
        if staged is not None:
            with suppress(OSError):  # bytes that no longer fit on the disk belong to a file that is gone next
                staged.discard()

    def _close_stage(self, staged: Staged) -> Published:
        rows, of_tags = staged.close_rows(), staged.read_columns([ID, TAGS, INVALID])
        if not self._layout.dialect.holds_nul:  # before tags are rows: where one holds a NUL, all of its list leave
            rows, of_tags = rows.map(move_nuls), of_tags.map(move_nuls)
        return Published(rows, of_tags.map(explode_tags, TAG_SCHEMA) if self._layout.tags is not None else None)

    def _publish(self, place: Place, published: Published, run: Run) -> Changes:
        try:
            return self._way.publish(place, self._layout, published, run)
        except Uncertain as lost:
            return self._settle(place, run, lost)

    def _settle(self, place: Place, run: Run, lost: Uncertain) -> Changes:
        """The connection was lost while the transaction was being committed: ask anew whether it was."""
        try:
            with place.connect() as session:
                is_published = self._way.settle(session, self._layout, run, lost)
        except place.errors as error:
            raise RunAborted(
                f"The connection was lost while {self} was being committed ({place.explain(error)}): it is as before, "
                f"or as after if _connector_runs has the run {run.run_id}. Run it again."
            ) from None
        if not is_published:
            raise lost.error
        return lost.changes

    @contextmanager
    def _looking(self, *, is_reading: bool = True) -> Iterator[Session]:
        """A connection for a look; what fails is told as what it is: nothing was started yet."""
        place = self._home.place
        try:
            with place.connect(is_reading=is_reading) as session:
                yield session
        except ConnectorError:
            raise
        except place.errors as error:
            said = place.explain(error)
            if place.is_passing(error):
                raise RunAborted(f"{self} cannot be had now: {said}. It is as it was; run it again.") from None
            raise ConfigurationError(f"Cannot open or write {self}: {said}. Is it in use, or another file?") from None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn a failure to write into RunAborted, which says that the target is as it was."""
        place = self._home.place
        try:
            yield
        except ConfigurationError as error:  # found only now: it was changed while the list was read
            raise RunAborted(f"{error}. What was there is as it was.") from None
        except (OSError, pa.ArrowException, *place.errors) as error:
            said = place.explain(error)
            raise RunAborted(f"Could not write {self}: {said}. What was there is as it was; run it again.") from None
