"""Writes an export to a Delta table, on the disk or in an object store, in one commit.

The description of the table says that an export made the table, and in which mode. Each commit of an export has a JSON
object under the key `connector` with the run, its filters and its certificate, as `DeltaTable.history()` shows.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from connector.atomic_file import describe_unwritable
from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, RunAborted
from connector.service.settings import is_loopback
from connector.stores import is_url
from connector.warehouse.columns import build_null, build_text, build_time
from connector.warehouse.database import Stage, StagedRows, open_stage
from connector.warehouse.runs import (
    DELETED_AT,
    EXPORTED_AT,
    ID,
    OF_RUN,
    RUN_ID,
    CommitUnknown,
    ExportRun,
    ExportStart,
    FinishedRun,
    Mode,
    RowChanges,
    TargetState,
    check_filters,
    check_target,
    find_last_rows,
    refuse_now,
    write_filters,
)

_DESCRIPTION = "Written by subscriber-connector in the mode "
_COMMIT_KEY = "connector"
_MOST_COMMITS = 200  # commits of the history that are read to find earlier exports
_ERRORS = (DeltaError, OSError, pa.ArrowException)


class DeltaWriter:
    """Writes a Delta table in the mode replace, append or upsert; `place` is a folder or the URL of an object store.

    Readers see nothing before the commit. The commit cannot be interrupted. A new local table is a folder that only its
    owner can open, or also the owner's group if it `is_group_readable`.
    """

    def __init__(
        self,
        place: str,
        schema: pa.Schema,
        mode: Mode,
        partition_by: tuple[str, ...],
        *,
        overwrite: bool,
        is_group_readable: bool,
    ) -> None:
        self._place, self._mode, self._partition_by = place, mode, partition_by
        self._overwrite, self._is_group_readable = overwrite, is_group_readable
        self._staged_schema = pa.schema([field for field in schema if field.name not in OF_RUN])
        deleted = [pa.field(DELETED_AT, schema.field(EXPORTED_AT).type)] if mode is Mode.UPSERT else []
        self._schema = pa.schema([*schema, *deleted])
        self._stage: Stage | None = None
        self._target = TargetState(None, {}, False, (), ())
        self.is_committing = False

    def __str__(self) -> str:
        return f"the Delta table {self._place}"

    @property
    def has_target(self) -> bool:
        return self._target.has_rows

    def prepare(self, beginning: ExportStart) -> None:
        """Check that the table can be written, and begin to stage."""
        check_filters(beginning.filters, self._mode, self._staged_schema.names)
        try:
            table = self._open()
            self._target = self._read_state(table)
        except _ERRORS as error:
            raise ConfigurationError(f"Cannot open {self}: {describe_error(error)}. The table is unchanged.") from None
        check_target(self._target, self._place, self._schema.names, self._mode, str(self), overwrite=self._overwrite)
        if table is not None and self._partition_by not in ((), tuple(table.metadata().partition_columns)):
            existing = ", ".join(table.metadata().partition_columns) or "nothing"
            raise ConfigurationError(
                f"{self} is partitioned by {existing}, and the partition columns of a table cannot change. Leave out "
                "--partition-by (in a job: partition_by), or export to another table."
            )
        if table is None and not is_url(self._place):
            self._check_folder()
        self.start()

    def start(self) -> None:
        self.discard()
        self._stage = open_stage(self._staged_schema)

    def add(self, table: pa.Table) -> None:
        if self._stage is None:
            raise ValueError("prepare() comes before add()")
        with self._translate():
            self._stage.add(table.select(self._staged_schema.names))

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        return find_last_rows(self._target.runs, filters)

    def publish(self, run: ExportRun) -> RowChanges:
        """Write the staged rows in one commit. Raises RunAborted, also if a later export was written meanwhile, and
        CommitUnknown if the table cannot be read after a failure of the commit."""
        if self._stage is None:
            raise ValueError("prepare() comes before publish()")
        with self._translate():
            rows = self._stage.close_rows()
            table = self._open()
            number = _write_number(run.exported_at)
            refuse_now(self._read_state(table), number, run, self._mode, str(self))
            if table is None and not is_url(self._place):
                Path(self._place).mkdir(mode=0o750 if self._is_group_readable else 0o700, parents=True, exist_ok=True)
        self.is_committing = True
        try:
            return self._commit(table, rows, run)
        except _ERRORS as error:
            if self._has_run(run.run_id):
                return RowChanges(inserted=run.rows)
            raise self._build_failure(error) from error

    def interrupt(self) -> None:
        """Do nothing: a commit of a Delta table cannot be interrupted."""

    def discard(self) -> None:
        if self._stage is not None:
            self._stage.discard()
        self._stage = None

    def _commit(self, table: DeltaTable | None, rows: StagedRows, run: ExportRun) -> RowChanges:
        """Write the rows in one commit. A commit that another export has overtaken raises CommitFailedError."""
        batches = rows.map(lambda batch: self._stamp(batch, run)).read()
        source = pa.RecordBatchReader.from_batches(self._schema, batches)
        properties = CommitProperties(custom_metadata={_COMMIT_KEY: json.dumps(self._describe(run), default=str)})
        if table is not None and self._mode is Mode.UPSERT:
            changes = self._merge(table, source, run, properties)
        else:
            write_deltalake(
                table or self._place,
                source,
                mode="append" if self._mode is Mode.APPEND and table is not None else "overwrite",
                partition_by=list(self._partition_by) or None,
                description=_DESCRIPTION + self._mode,
                commit_properties=properties,
                schema_mode=None if table is None else "merge",  # columns of the user's own stay, without values
                storage_options=_read_storage_options(self._place),
            )
            changes = RowChanges(inserted=run.rows)
        if table is not None and not _is_ours(table) and (adopted := self._open()) is not None:
            adopted.alter.set_table_description(_DESCRIPTION + self._mode)
        return changes

    def _merge(
        self, table: DeltaTable, source: pa.RecordBatchReader, run: ExportRun, properties: CommitProperties
    ) -> RowChanges:
        """Update the rows that differ, insert new rows, and mark rows that are gone from a list that is whole."""
        compared = [name for name in self._staged_schema.names if name != ID]
        differs = " OR ".join(f"(t.{name} IS DISTINCT FROM s.{name})" for name in compared)
        merge = (
            table.merge(source, f"t.{ID} = s.{ID}", source_alias="s", target_alias="t", commit_properties=properties)
            .when_matched_update_all(predicate=f"{differs} OR (t.{DELETED_AT} IS NOT NULL)")
            .when_not_matched_insert_all()
        )
        if run.is_whole:
            asked = (f"t.{name} = {_quote(value)}" for name, value in run.asked.items())
            time = f"TIMESTAMP '{run.exported_at.isoformat()}'"
            merge = merge.when_not_matched_by_source_update(
                predicate=" AND ".join([f"t.{DELETED_AT} IS NULL", *asked]),
                updates={DELETED_AT: time, EXPORTED_AT: time, RUN_ID: _quote(run.run_id)},
            )
        metrics = merge.execute()
        return RowChanges(metrics["num_target_rows_inserted"], metrics["num_target_rows_updated"])

    def _stamp(self, batch: pa.RecordBatch, run: ExportRun) -> pa.RecordBatch:
        """Return the staged rows with the columns of the run and, for upsert, without a `deleted_at`."""
        stamps = {
            RUN_ID: build_text(run.run_id),
            EXPORTED_AT: build_time(run.exported_at),
            DELETED_AT: build_null(self._schema.field(EXPORTED_AT).type),
        }
        columns = [
            pa.repeat(stamps[name], len(batch)) if name in stamps else batch.column(name) for name in self._schema.names
        ]
        return pa.record_batch(columns, schema=self._schema)

    def _describe(self, run: ExportRun) -> dict[str, object]:
        return {
            "run_id": run.run_id,
            "job": run.job,
            "mode": str(self._mode),
            "filters": write_filters(run.asked),
            "rows": run.rows,
            "number": _write_number(run.exported_at),
            "started_at": run.exported_at.isoformat(),
            "finished_at": run.finished_at.isoformat(),
            "certificate": run.certificate.as_report(),
        }

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._place, storage_options=_read_storage_options(self._place))
        except TableNotFoundError:
            return None

    def _read_state(self, table: DeltaTable | None) -> TargetState:
        if table is None:
            return TargetState(None, {}, False, (), ())
        runs = [_read_run(commit[_COMMIT_KEY]) for commit in table.history(_MOST_COMMITS) if _COMMIT_KEY in commit]
        if not runs and _is_ours(table):  # the log keeps commits for 30 days by default, and the description for good
            mode = str(table.metadata().description).removeprefix(_DESCRIPTION)
            runs = [FinishedRun(0, "", mode, "", "", 0)]
        columns = {field.name: not field.nullable for field in table.schema().fields}
        return TargetState(self._place, columns, table.count() > 0, runs, ())

    def _has_run(self, run_id: str) -> bool:
        try:
            return any(run.run_id == run_id for run in self._read_state(self._open()).runs)
        except _ERRORS as error:
            raise CommitUnknown(
                f"{self} cannot be read after its commit failed: {describe_error(error)}. The table has either all of "
                f"the new rows or none. It has the new rows if rows have the _run_id {run_id}."
            ) from error

    def _check_folder(self) -> None:
        """Raise ConfigurationError if the folder of a new table has files, or cannot be made."""
        folder = Path(self._place)
        try:
            if folder.is_dir() and any(folder.iterdir()):
                raise ConfigurationError(
                    f"{folder} has files and is not a Delta table. Export to a new or an empty folder."
                )
            parent = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        except OSError as error:
            raise describe_unwritable(folder, error) from None
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise ConfigurationError(f"{parent} cannot be written. Allow it to this user, or name another place.")

    @contextmanager
    def _translate(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise self._build_failure(error) from error

    def _build_failure(self, error: Exception) -> RunAborted:
        return RunAborted(
            f"Could not write {self}: {describe_error(error)}. No row of this export was written. Run the export again."
        )


def replace_run(place: str, run_id: str, table: pa.Table) -> None:
    """Write rows to a Delta table in the place of its rows of the run, in one commit. Raises RunAborted."""
    options = _read_storage_options(place)
    try:
        if not is_url(place):
            Path(place).mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            existing: DeltaTable | str = DeltaTable(place, storage_options=options)
        except TableNotFoundError:
            existing = place
        predicate = None if existing == place else f"run_id = {_quote(run_id)}"
        write_deltalake(existing, table, mode="overwrite", predicate=predicate, storage_options=options)
    except _ERRORS as error:
        raise RunAborted(f"the Delta table {place} cannot be written: {describe_error(error)}") from None


def _is_ours(table: DeltaTable) -> bool:
    return str(table.metadata().description).startswith(_DESCRIPTION)


def _read_storage_options(place: str) -> dict[str, str] | None:
    """Return the options beyond those that the store's library reads from the environment: plain http to loopback."""
    host = urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname or ""
    return {"AWS_ALLOW_HTTP": "true"} if is_url(place) and is_loopback(host) else None


def _read_run(text: str) -> FinishedRun:
    values = json.loads(text)
    certificate = values["certificate"]
    return FinishedRun(
        values["number"], values["run_id"], values["mode"], certificate["verdict"], values["filters"], values["rows"]
    )


def _write_number(started_at: datetime) -> int:
    """Return the number of an export among those of its table: its start in microseconds."""
    return int(started_at.timestamp() * 1_000_000)


def _quote(value: object) -> str:
    """Return a value of a filter as a literal of SQL."""
    if isinstance(value, bool | int):
        return str(value).lower()
    return "'" + str(value).replace("'", "''") + "'"
