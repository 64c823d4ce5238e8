"""Writes all receipts of a run to their destination, or none. Writing the receipts a second time changes nothing.

In a table, one transaction deletes the earlier rows of the run and inserts the rows. A folder has one file for each
run.
"""

import gzip
from collections.abc import Mapping
from datetime import datetime
from typing import BinaryIO, cast

import pyarrow as pa

from connector.driver_errors import describe_error
from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.warehouse.database import ColumnKind, Interruption, StagedRows, Statement, TableName
from connector.warehouse.destination import Destination, Format
from connector.warehouse.opening import find_format, open_database, open_target
from connector.warehouse.statements import Column

RECEIPT_ROW_SCHEMA = pa.schema(
    [
        pa.field("identity", pa.string()),
        pa.field("outcome", pa.string()),
        pa.field("service_id", pa.int64()),
        pa.field("evidence", pa.string()),
        pa.field("message", pa.string()),
    ]
)
"""The columns whose values differ from receipt to receipt. The other columns of RECEIPT_COLUMNS have one value for all
receipts of a run."""

RECEIPT_COLUMNS: Mapping[str, Column] = {
    "run_id": Column(ColumnKind.NAME, "Id of the run."),
    "job": Column(ColumnKind.TEXT, "Name of the job."),
    "identity": Column(ColumnKind.TEXT, "Email or client_user_id of the subscriber."),
    "outcome": Column(
        ColumnKind.TEXT,
        "`created`, `changed`, `rejected`, `held` or `unknown`. `exists`: the service refused or did not answer the "
        "create, and its list shows the subscriber.",
    ),
    "service_id": Column(ColumnKind.WHOLE_NUMBER, "Id of the subscriber in the service. NULL if it is not known."),
    "evidence": Column(
        ColumnKind.TEXT,
        "How the outcome is known: by the service's `answer`, by a `lookup` in its list, by a `sweep` of the whole "
        "list, or by the `ledger` alone.",
    ),
    "at": Column(ColumnKind.TIME, "Time when the receipt was read from the ledger."),
    "message": Column(
        ColumnKind.TEXT, "For `changed`: the fields that differ. Otherwise the answer of the service, if there is one."
    ),
}
"""The columns of a table of receipts."""


def write_receipts(destination: Destination, run_id: str, job: str, read_at: datetime, rows: StagedRows) -> None:
    """Write the receipts of a run. `rows` have the columns of RECEIPT_ROW_SCHEMA. `read_at` is the time when the rows
    were read from the ledger.

    Raises ConfigurationError for a destination that cannot store receipts, and RunAborted if the destination fails.
    """
    try:
        if destination.format is Format.DELTA:
            from connector.warehouse.delta import replace_run

            replace_run(
                destination.object_url or str(destination.path), run_id, _read_table(rows, run_id, job, read_at)
            )
        elif destination.is_database:
            _write_table(destination, run_id, job, read_at, rows)
        else:
            _write_file(destination, run_id, job, read_at, rows)
    except (OSError, pa.ArrowException) as error:
        raise RunAborted(f"{destination} cannot be written: {describe_error(error)}") from None


def _write_table(destination: Destination, run_id: str, job: str, read_at: datetime, rows: StagedRows) -> None:
    database, interruption = open_database(destination), Interruption()
    dialect, name = database.dialect, TableName(destination.table, destination.schema)
    target_sql = dialect.format_name(name)
    try:
        with database.connect(interruption):
            stored_name, needs_value_by_column = database.find_table(name)
            if stored_name is None:
                column_sqls = (
                    f"{dialect.quote(column)} {dialect.type_by_kind[kind]}"
                    for column, (kind, _) in RECEIPT_COLUMNS.items()
                )
                database.run(
                    Statement(f"CREATE TABLE {target_sql} ({', '.join(column_sqls)}) {dialect.table_options}".rstrip())
                )
            elif {column.lower() for column in needs_value_by_column} != set(RECEIPT_COLUMNS):
                raise ConfigurationError(
                    f"{destination} has other columns than receipts ({', '.join(RECEIPT_COLUMNS)}): name another table"
                )
            condition_sql = f"{dialect.quote('run_id')} = {dialect.parameter_prefix}run_id"
            database.run(Statement(f"DELETE FROM {target_sql} WHERE {condition_sql}", {"run_id": run_id}))  # noqa: S608 - quoted
            database.load(target_sql, rows, {"run_id": run_id, "job": job, "at": database.convert_time(read_at)})
            database.commit(interruption)
    except ConnectorError:
        raise
    except database.errors as error:
        raise RunAborted(f"{destination} cannot be written: {database.explain(error)}") from None


def _write_file(destination: Destination, run_id: str, job: str, read_at: datetime, rows: StagedRows) -> None:
    if destination.object_url is None:
        destination.path.mkdir(mode=0o700, exist_ok=True)
    suffixes = destination.path.suffixes[-2 if destination.is_packed else -1 :]  # .csv.gz, or .csv
    target = open_target(destination.join(run_id + "".join(suffixes)))
    try:
        file = target.open_new_file()
        gzip_file = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) if destination.is_packed else None
        table = _read_table(rows, run_id, job, read_at)
        format_writer = find_format(destination)(
            cast(BinaryIO, gzip_file or file), table.schema, destination.file_options
        )
        format_writer.write(table)
        format_writer.close(None)
        if gzip_file is not None:
            gzip_file.close()
        target.publish(must_be_new=False)
    finally:
        target.discard()


def _read_table(rows: StagedRows, run_id: str, job: str, read_at: datetime) -> pa.Table:
    table = pa.Table.from_batches(rows.read(), rows.schema)
    shared_values = {"run_id": run_id, "job": job, "at": pa.scalar(read_at, pa.timestamp("us", "UTC"))}
    columns = [
        pa.repeat(shared_values[name], len(table)) if name in shared_values else table[name] for name in RECEIPT_COLUMNS
    ]
    return pa.table(columns, names=list(RECEIPT_COLUMNS))
