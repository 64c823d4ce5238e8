"""Writes an export to a Delta table, on the disk or in an object store, in one commit.

The description of the table says that an export created the table, and in which mode. Each commit of an export has a
JSON object under the key `connector`, with the run, the filters and the certificate. `DeltaTable.history()` shows this
object.
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

from connector.arrow import build_null_scalar, build_text_scalar, build_time_scalar
from connector.atomic_file import build_write_error
from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, RunAborted
from connector.service.settings import is_loopback
from connector.stores import is_url
from connector.warehouse.database import StagedRows, StagingFile
from connector.warehouse.runs import (
    COLUMNS_OF_RUN,
    DELETED_AT,
    EXPORTED_AT,
    ID,
    RUN_ID,
    CommitUnknown,
    ExportRun,
    ExportStart,
    FinishedRun,
    RowChanges,
    TargetState,
    WriteMode,
    check_filters,
    check_target,
    find_last_row_count,
    format_filters,
    refuse_if_superseded,
)

_DESCRIPTION_PREFIX = "Written by subscriber-connector in the mode "
_COMMIT_KEY = "connector"
_MAX_COMMITS_READ = 200  # number of the latest commits that are read to find earlier exports
_DELTA_ERRORS = (DeltaError, OSError, pa.ArrowException)


class DeltaWriter:
    """A writer of a Delta table in the mode replace, append or upsert. `location` is a folder, or a URL in a store.

    Readers see no new row before the commit. The commit cannot be interrupted. A new local table is a folder that only
    its owner can open. If `is_group_readable`, the owner's group can also open the folder.
    """

    def __init__(
        self,
        location: str,
        schema: pa.Schema,
        mode: WriteMode,
        partition_by: tuple[str, ...],
        *,
        overwrite: bool,
        is_group_readable: bool,
    ) -> None:
        self._location, self._mode, self._partition_by = location, mode, partition_by
        self._overwrite, self._is_group_readable = overwrite, is_group_readable
        self._staged_schema = pa.schema([field for field in schema if field.name not in COLUMNS_OF_RUN])
        deleted_at_fields = [pa.field(DELETED_AT, schema.field(EXPORTED_AT).type)] if mode is WriteMode.UPSERT else []
        self._schema = pa.schema([*schema, *deleted_at_fields])
        self._staging_file: StagingFile | None = None
        self._target_state = TargetState()
        self.is_committing = False

    def __str__(self) -> str:
        return f"the Delta table {self._location}"

    @property
    def has_target(self) -> bool:
        return self._target_state.has_rows

    def prepare(self, export_start: ExportStart) -> None:
        """Check that the table can be written, and begin to stage rows."""
        check_filters(export_start.filters, self._mode, self._staged_schema.names)
        try:
            table = self._open_table()
            self._target_state = self._read_state(table)
        except _DELTA_ERRORS as error:
            raise ConfigurationError(f"Cannot open {self}: {describe_error(error)}. The table is unchanged.") from None
        check_target(
            self._target_state, self._location, self._schema.names, self._mode, str(self), overwrite=self._overwrite
        )
        if table is not None and self._partition_by not in ((), tuple(table.metadata().partition_columns)):
            existing_columns_text = ", ".join(table.metadata().partition_columns) or "nothing"
            raise ConfigurationError(
                f"{self} is partitioned by {existing_columns_text}, and the partition columns of a table cannot change."
                " Leave out --partition-by (in a job: `partition_by`), or export to another table."
            )
        if table is None and not is_url(self._location):
            self._check_new_folder()
        self.start()

    def start(self) -> None:
        self.discard()
        self._staging_file = StagingFile(self._staged_schema)

    def add(self, table: pa.Table) -> None:
        if self._staging_file is None:
            raise ValueError("prepare() comes before add()")
        with self._translate_errors():
            self._staging_file.add(table.select(self._staged_schema.names))

    def find_last_row_count(self, filters: Mapping[str, object]) -> int | None:
        return find_last_row_count(self._target_state.runs, filters)

    def publish(self, run: ExportRun) -> RowChanges:
        """Write the staged rows in one commit. Raises RunAborted, for example if a later export was written meanwhile.
        Raises CommitUnknown if the table cannot be read after a failure of the commit.
        """
        if self._staging_file is None:
            raise ValueError("prepare() comes before publish()")
        with self._translate_errors():
            rows = self._staging_file.finish_staging()
            table = self._open_table()
            run_number = _compute_run_number(run.exported_at)
            refuse_if_superseded(self._read_state(table), run_number, run, self._mode, str(self))
            if table is None and not is_url(self._location):
                Path(self._location).mkdir(
                    mode=0o750 if self._is_group_readable else 0o700, parents=True, exist_ok=True
                )
        self.is_committing = True
        try:
            return self._commit_rows(table, rows, run)
        except _DELTA_ERRORS as error:
            if self._has_run(run.run_id):
                return RowChanges(inserted_row_count=run.row_count)
            raise self._build_failure(error) from error

    def interrupt(self) -> None:
        """Do nothing, because a commit of a Delta table cannot be interrupted."""

    def discard(self) -> None:
        if self._staging_file is not None:
            self._staging_file.discard()
        self._staging_file = None

    def _commit_rows(self, table: DeltaTable | None, rows: StagedRows, run: ExportRun) -> RowChanges:
        """Write the rows in one commit. Raises CommitFailedError if a commit of another export conflicts with this
        commit. Two appends do not conflict."""
        batches = rows.map(lambda batch: self._add_run_columns(batch, run)).read()
        row_reader = pa.RecordBatchReader.from_batches(self._schema, batches)
        commit_properties = CommitProperties(
            custom_metadata={_COMMIT_KEY: json.dumps(self._describe_run(run), default=str)}
        )
        if table is not None and self._mode is WriteMode.UPSERT:
            changes = self._merge_rows(table, row_reader, run, commit_properties)
        else:
            write_deltalake(
                table or self._location,
                row_reader,
                mode="append" if self._mode is WriteMode.APPEND and table is not None else "overwrite",
                partition_by=list(self._partition_by) or None,
                description=_DESCRIPTION_PREFIX + self._mode,
                commit_properties=commit_properties,
                # With "merge", columns that the user has added stay. New rows have no values in these columns.
                schema_mode=None if table is None else "merge",
                storage_options=_read_storage_options(self._location),
            )
            changes = RowChanges(inserted_row_count=run.row_count)
        is_overwritten = table is not None and not _is_made_by_connector(table)
        if is_overwritten and (overwritten_table := self._open_table()) is not None:
            overwritten_table.alter.set_table_description(_DESCRIPTION_PREFIX + self._mode)
        return changes

    def _merge_rows(
        self, table: DeltaTable, row_reader: pa.RecordBatchReader, run: ExportRun, commit_properties: CommitProperties
    ) -> RowChanges:
        """Update changed rows, and insert new rows. If the run can prove that subscribers have left the list, mark
        the rows of these subscribers."""
        compared_names = [name for name in self._staged_schema.names if name != ID]
        is_changed_sql = " OR ".join(f"(t.{name} IS DISTINCT FROM s.{name})" for name in compared_names)
        merge = (
            table.merge(
                row_reader, f"t.{ID} = s.{ID}", source_alias="s", target_alias="t", commit_properties=commit_properties
            )
            .when_matched_update_all(predicate=f"{is_changed_sql} OR (t.{DELETED_AT} IS NOT NULL)")
            .when_not_matched_insert_all()
        )
        if run.proves_absence:
            filter_sqls = (f"t.{name} = {_quote_literal(value)}" for name, value in run.filters.items())
            exported_at_sql = f"TIMESTAMP '{run.exported_at.isoformat()}'"
            merge = merge.when_not_matched_by_source_update(
                predicate=" AND ".join([f"t.{DELETED_AT} IS NULL", *filter_sqls]),
                updates={DELETED_AT: exported_at_sql, EXPORTED_AT: exported_at_sql, RUN_ID: _quote_literal(run.run_id)},
            )
        metrics = merge.execute()
        return RowChanges(metrics["num_target_rows_inserted"], metrics["num_target_rows_updated"])

    def _add_run_columns(self, batch: pa.RecordBatch, run: ExportRun) -> pa.RecordBatch:
        """Return the staged rows with the columns of the run. In the mode upsert, also add an empty `deleted_at`."""
        run_columns = {
            RUN_ID: build_text_scalar(run.run_id),
            EXPORTED_AT: build_time_scalar(run.exported_at),
            DELETED_AT: build_null_scalar(self._schema.field(EXPORTED_AT).type),
        }
        columns = [
            pa.repeat(run_columns[name], len(batch)) if name in run_columns else batch.column(name)
            for name in self._schema.names
        ]
        return pa.record_batch(columns, schema=self._schema)

    def _describe_run(self, run: ExportRun) -> dict[str, object]:
        return {
            "run_id": run.run_id,
            "job": run.job,
            "mode": str(self._mode),
            "filters": format_filters(run.filters),
            "rows": run.row_count,
            "number": _compute_run_number(run.exported_at),
            "started_at": run.exported_at.isoformat(),
            "finished_at": run.finished_at.isoformat(),
            "certificate": run.certificate.as_report(),
        }

    def _open_table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._location, storage_options=_read_storage_options(self._location))
        except TableNotFoundError:
            return None

    def _read_state(self, table: DeltaTable | None) -> TargetState:
        if table is None:
            return TargetState()
        runs = [_read_run(commit[_COMMIT_KEY]) for commit in table.history(_MAX_COMMITS_READ) if _COMMIT_KEY in commit]
        if not runs and _is_made_by_connector(table):
            # The mode is read from the description of the table, because Delta deletes commits from the log after 30
            # days by default.
            mode = str(table.metadata().description).removeprefix(_DESCRIPTION_PREFIX)
            runs = [FinishedRun(0, "", mode, "", "", 0)]
        needs_value_by_column = {field.name: not field.nullable for field in table.schema().fields}
        return TargetState(self._location, needs_value_by_column, table.count() > 0, runs)

    def _has_run(self, run_id: str) -> bool:
        try:
            return any(run.run_id == run_id for run in self._read_state(self._open_table()).runs)
        except _DELTA_ERRORS as error:
            raise CommitUnknown(
                f"{self} cannot be read after its commit failed: {describe_error(error)}. The table has either all of "
                f"the new rows or none. The table has the new rows if rows have the _run_id {run_id}."
            ) from error

    def _check_new_folder(self) -> None:
        """Raise ConfigurationError if the folder of a new table has files, or cannot be created."""
        folder = Path(self._location)
        try:
            if folder.is_dir() and any(folder.iterdir()):
                raise ConfigurationError(
                    f"{folder} has files and is not a Delta table. Export to a new or an empty folder."
                )
            parent = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        except OSError as error:
            raise build_write_error(folder, error) from None
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise ConfigurationError(
                f"{parent} cannot be written. Allow this user to write to the folder, or name another folder."
            )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except _DELTA_ERRORS as error:
            raise self._build_failure(error) from error

    def _build_failure(self, error: Exception) -> RunAborted:
        return RunAborted(
            f"Could not write {self}: {describe_error(error)}. No row of this export was written. Run the export again."
        )


def replace_run(location: str, run_id: str, table: pa.Table) -> None:
    """Replace the rows of the run in a Delta table by the rows of `table`, in one commit. Raises RunAborted."""
    storage_options = _read_storage_options(location)
    try:
        if not is_url(location):
            Path(location).mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            table_or_location: DeltaTable | str = DeltaTable(location, storage_options=storage_options)
        except TableNotFoundError:
            table_or_location = location
        predicate = None if table_or_location == location else f"run_id = {_quote_literal(run_id)}"
        write_deltalake(
            table_or_location, table, mode="overwrite", predicate=predicate, storage_options=storage_options
        )
    except _DELTA_ERRORS as error:
        raise RunAborted(f"the Delta table {location} cannot be written: {describe_error(error)}") from None


def _is_made_by_connector(table: DeltaTable) -> bool:
    return str(table.metadata().description).startswith(_DESCRIPTION_PREFIX)


def _read_storage_options(location: str) -> dict[str, str] | None:
    """Return the option that allows http without TLS to a loopback address, or None. The store's library does not read
    this option from the environment."""
    host = urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname or ""
    return {"AWS_ALLOW_HTTP": "true"} if is_url(location) and is_loopback(host) else None


def _read_run(run_json: str) -> FinishedRun:
    run_values = json.loads(run_json)
    return FinishedRun(
        run_values["number"],
        run_values["run_id"],
        run_values["mode"],
        run_values["certificate"]["verdict"],
        run_values["filters"],
        run_values["rows"],
    )


def _compute_run_number(started_at: datetime) -> int:
    """Return the number that orders the exports to a table: the start of the export in microseconds since 1970."""
    return int(started_at.timestamp() * 1_000_000)


def _quote_literal(value: object) -> str:
    if isinstance(value, bool | int):
        return str(value).lower()
    return "'" + str(value).replace("'", "''") + "'"
