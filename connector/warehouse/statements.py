# ruff: noqa: S608 - names are quoted, and values are parameters
"""The SQL of an export to a table. All databases share the statements, and a Dialect has the differences of one
database. The functions have no side effects.

The stage is a temporary table with the rows of the export. Each statement names the stage once, because MySQL can read
a temporary table only once in a statement. The stage does not have the columns of the run, whose values are parameters.

Texts are compared by bytes. A merge does not write unchanged rows, so `_run_id` and `_exported_at` of a row are from
the export that last changed the row.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from connector.warehouse.database import ColumnKind, Dialect, ParameterValues, Statement, TableName
from connector.warehouse.runs import (
    COLUMNS_OF_RUN,
    DELETED_AT,
    EXPORTED_AT,
    FINISHED_RUN_COLUMNS,
    ID,
    IS_CURRENT,
    RUN_ID,
    RUNS_TABLE,
    VALID_FROM,
    VALID_TO,
    ExportRun,
    WriteMode,
)

_STAGE_NAME, _CHANGED_ROWS_NAME = "_connector_stage", "_connector_changed"

_NO_ROW_CONDITION_SQL = "1 = 0"


_PRIMARY_KEY_BY_MODE: Mapping[WriteMode, tuple[str, ...]] = {
    WriteMode.REPLACE: (ID,),
    WriteMode.UPSERT: (ID,),
    WriteMode.APPEND: (RUN_ID, ID),
    WriteMode.HISTORY: (ID, VALID_FROM),
}
"""The columns of a table's primary key, by the mode of the table."""


class Column(NamedTuple):
    """A column that the connector adds: the kind of its values, and its description for the reference."""

    kind: ColumnKind
    description: str


MODE_COLUMNS: Mapping[WriteMode, Mapping[str, Column]] = {
    WriteMode.REPLACE: {},
    WriteMode.APPEND: {},
    WriteMode.UPSERT: {
        DELETED_AT: Column(
            ColumnKind.TIME,
            "Time of the export that no longer found the subscriber on the list. NULL while the subscriber is listed.",
        ),
    },
    WriteMode.HISTORY: {
        VALID_FROM: Column(ColumnKind.TIME, "Time of the export that first read this version of the subscriber."),
        VALID_TO: Column(
            ColumnKind.TIME,
            "Time of the export that read a newer version or no longer found the subscriber. NULL for the current "
            "version.",
        ),
        IS_CURRENT: Column(ColumnKind.FLAG, "Whether this is the last version and the subscriber is listed."),
    },
}
"""The columns that a table has in addition to the columns of an export, by the mode of the table. In the descriptions,
the time of an export is the value that its rows have in `_exported_at`."""

RUN_COLUMNS: Mapping[str, Column] = {
    "table_name": Column(ColumnKind.NAME, "Table that the export writes."),
    "number": Column(ColumnKind.WHOLE_NUMBER, "Number of the export among the exports to its table, from 1."),
    "run_id": Column(ColumnKind.TEXT, "Id of the run, as in the report and in `_run_id`."),
    "job": Column(ColumnKind.TEXT, "Name of the job, or of the destination if the export has no job file."),
    "mode": Column(ColumnKind.TEXT, "`replace`, `upsert`, `append` or `history`."),
    "filters": Column(ColumnKind.TEXT, "Filters of the list as a JSON object. `{}` if the whole list was read."),
    "started_at": Column(ColumnKind.TIME, "Start of the export. The list was read after this time."),
    "finished_at": Column(ColumnKind.TIME, "End of the export. NULL: the export wrote nothing."),
    "verdict": Column(
        ColumnKind.TEXT, "`complete` if it is proved that the whole list was read, otherwise `incomplete`."
    ),
    "reason": Column(
        ColumnKind.TEXT, "Why the list counts as complete or incomplete: `certificate.reason` of the report."
    ),
    "list_order": Column(ColumnKind.TEXT, "Order of the list: `id`, `id_desc`, `other` or `unstable`."),
    "sweeps": Column(ColumnKind.WHOLE_NUMBER, "How often the export read the list from its start to its end (sweeps)."),
    "pages": Column(
        ColumnKind.WHOLE_NUMBER, "Number of pages. Pages that were fetched ahead of time and not used do not count."
    ),
    "distinct_ids": Column(
        ColumnKind.WHOLE_NUMBER, "Number of different ids that the export found when it last read the list."
    ),
    "total_first": Column(
        ColumnKind.WHOLE_NUMBER, "TotalCount of the list's first answer. NULL if the answer has no TotalCount."
    ),
    "total_last": Column(
        ColumnKind.WHOLE_NUMBER, "TotalCount of the list's last answer. NULL if the answer has no TotalCount."
    ),
    "appeared": Column(
        ColumnKind.WHOLE_NUMBER, "At least this many subscribers appeared on the list while the export read it."
    ),
    "vanished": Column(
        ColumnKind.WHOLE_NUMBER, "At least this many subscribers vanished from the list while the export read it."
    ),
    "rows_read": Column(
        ColumnKind.WHOLE_NUMBER, "Number of subscribers that the export found when it last read the list."
    ),
    "rows_written": Column(ColumnKind.WHOLE_NUMBER, "Number of subscribers in the export, changed or not."),
    "rows_inserted": Column(ColumnKind.WHOLE_NUMBER, "Number of rows that were inserted."),
    "rows_updated": Column(ColumnKind.WHOLE_NUMBER, "Number of rows that got new values."),
    "rows_closed": Column(
        ColumnKind.WHOLE_NUMBER, "Number of rows that were replaced, got a `deleted_at`, or got a `valid_to`."
    ),
}
"""The columns of `_connector_runs`, which has one row for each export to a table."""

_KIND_BY_ARROW_TYPE = {kind.value.arrow: kind for kind in ColumnKind if kind is not ColumnKind.NAME}


def read_kinds(schema: pa.Schema) -> dict[str, ColumnKind]:
    """Return the kind of each column of an export."""
    if unknown_types := set(schema.types) - _KIND_BY_ARROW_TYPE.keys():
        raise TypeError(f"ColumnKind has no member with the Arrow type {unknown_types.pop()}.")
    return {
        field.name: ColumnKind.NAME if field.name == RUN_ID else _KIND_BY_ARROW_TYPE[field.type] for field in schema
    }


MergeStep = tuple[Literal["inserted", "updated", "closed"] | None, Statement]
"""A step of a merge: the name under which the changed rows are counted (None: not counted), and the statement."""


class TableStatements:
    """The statements of exports to the table `name` in one mode. `schema` has the columns of an export."""

    def __init__(self, dialect: Dialect, name: TableName, schema: pa.Schema, mode: WriteMode) -> None:
        self._dialect, self._name, self._mode = dialect, name, mode
        self._kind_by_column = kind_by_column = read_kinds(schema)
        self.columns = [*kind_by_column, *MODE_COLUMNS[mode]]
        self._kind_by_stage_column = {
            column: kind for column, kind in kind_by_column.items() if column not in COLUMNS_OF_RUN
        }
        self.target = dialect.format_name(name)
        self.runs = dialect.format_name(TableName(RUNS_TABLE, name.schema))
        self.stage_table = dialect.temporary_prefix + dialect.quote(_STAGE_NAME)

    @property
    def deletes_rows(self) -> bool:
        """Whether `publish` deletes rows of the table, either to replace or to update them."""
        return self._mode is WriteMode.REPLACE or (self._mode is WriteMode.UPSERT and self._dialect.is_columnar)

    def build_schema_creation(self, schema: str) -> Statement:
        """Return the statement that creates the schema."""
        catalog_prefix = "" if self._dialect.catalog is None else f"{self._dialect.quote(self._dialect.catalog)}."
        return Statement(f"CREATE SCHEMA {catalog_prefix}{self._dialect.quote(schema)}")

    def build_target_creation(self) -> Statement:
        """Return the statement that creates the table."""
        kind_by_column = self._kind_by_column | {name: column.kind for name, column in MODE_COLUMNS[self._mode].items()}
        return self._build_table_creation(
            "TABLE", self.target, kind_by_column, _PRIMARY_KEY_BY_MODE[self._mode], self._dialect.table_options
        )

    def build_runs_table_creation(self) -> Statement:
        """Return the statement that creates `_connector_runs`."""
        kind_by_column = {name: column.kind for name, column in RUN_COLUMNS.items()}
        key_columns, options = ("table_name", "number"), self._dialect.table_options
        return self._build_table_creation("TABLE", self.runs, kind_by_column, key_columns, options)

    def build_stage_creation(self) -> Statement:
        """Return the statement that creates the stage. The end of the transaction or of the connection drops the
        stage."""
        key_columns = () if self._dialect.is_columnar else (ID,)
        options = self._dialect.stage_table_options or self._dialect.table_options
        return self._build_table_creation(
            "TEMPORARY TABLE", self.stage_table, self._kind_by_stage_column, key_columns, options
        )

    def _build_table_creation(
        self,
        table_kind: str,
        name: str,
        kind_by_column: Mapping[str, ColumnKind],
        key_columns: Sequence[str],
        options: str,
    ) -> Statement:
        quote, type_by_kind = self._dialect.quote, self._dialect.type_by_kind
        column_definitions = [
            f"{quote(column)} {type_by_kind[kind]}{' NOT NULL' if column in key_columns else ''}"
            for column, kind in kind_by_column.items()
        ]
        if key_columns:
            column_definitions.append(f"PRIMARY KEY ({self._dialect.format_names(key_columns)})")
        return Statement(f"CREATE {table_kind} {name} ({', '.join(column_definitions)}) {options}".rstrip())

    def build_first_row_query(self) -> Statement:
        """Return a query whose result is one row if the table is not empty."""
        return Statement(self._dialect.first_row_template.format(self.target))

    def build_last_run_number_query(self) -> Statement:
        """Return a query whose result is the highest run number of this table, or 0 if the table has no run."""
        return self._build_runs_query(f"coalesce(max({self._dialect.quote('number')}), 0)")

    def build_lowest_run_number_query(self) -> Statement:
        """Return a query whose result is the lowest run number of this table, or null if the table has no run."""
        return self._build_runs_query(f"min({self._dialect.quote('number')})")

    def build_finished_runs_query(self) -> Statement:
        """Return a query whose rows are the finished runs of this table, the latest first."""
        quote = self._dialect.quote
        finished_condition_sql = f" AND {quote('finished_at')} IS NOT NULL ORDER BY {quote('number')} DESC"
        return self._build_runs_query(self._dialect.format_names(FINISHED_RUN_COLUMNS), finished_condition_sql)

    def build_finished_run_query(self, run_number: int) -> Statement:
        """Return a query whose result is one row if the run with this number has finished."""
        condition_sql = f"{self._format_condition_of_run()} AND {self._dialect.quote('finished_at')} IS NOT NULL"
        return Statement(f"SELECT 1 FROM {self.runs} WHERE {condition_sql}", self._list_parameters_of_run(run_number))

    def _build_runs_query(self, columns_sql: str, query_end_sql: str = "") -> Statement:
        condition_sql = f"{self._dialect.quote('table_name')} = {self._dialect.parameter_prefix}table_name"
        query_sql = f"SELECT {columns_sql} FROM {self.runs} WHERE {condition_sql}{query_end_sql}"
        return Statement(query_sql, {"table_name": self._name.table})

    def build_run_row_insert(self, values: ParameterValues) -> Statement:
        """Return the statement that adds a row to `_connector_runs`."""
        parameters_sql = ", ".join(f"{self._dialect.parameter_prefix}{name}" for name in values)
        return Statement(
            f"INSERT INTO {self.runs} ({self._dialect.format_names(list(values))}) VALUES ({parameters_sql})", values
        )

    def build_run_row_update(self, run_number: int, row_values: ParameterValues) -> Statement:
        """Return the statement that sets these values in the row of the run with this number."""
        assignments_sql = ", ".join(
            f"{self._dialect.quote(name)} = {self._dialect.parameter_prefix}{name}" for name in row_values
        )
        row_values = {**row_values, **self._list_parameters_of_run(run_number)}
        return Statement(
            f"UPDATE {self.runs} SET {assignments_sql} WHERE {self._format_condition_of_run()}", row_values
        )

    def build_run_row_lock(self, run_number: int) -> Statement:
        """Return the statement that locks the row of the run with this number and changes nothing."""
        return Statement(
            self._format_update_without_change(self.runs, "job", self._format_condition_of_run()),
            self._list_parameters_of_run(run_number),
        )

    def _format_condition_of_run(self) -> str:
        quote, parameter_prefix = self._dialect.quote, self._dialect.parameter_prefix
        return f"{quote('table_name')} = {parameter_prefix}table_name AND {quote('number')} = {parameter_prefix}number"

    def _list_parameters_of_run(self, run_number: int) -> ParameterValues:
        return {"table_name": self._name.table, "number": run_number}

    def _format_update_without_change(self, table: str, column: str, condition_sql: str) -> str:
        quoted_column = self._dialect.quote(column)
        return f"UPDATE {table} SET {quoted_column} = {quoted_column} WHERE {condition_sql}"

    def build_delete_of_all_rows(self) -> Statement:
        """Return the statement that deletes every row of the table."""
        return Statement(f"DELETE FROM {self.target}")

    def build_rehearsal_statements(self) -> list[Statement]:
        """Return each kind of statement that `publish` needs, but without rows. Executing these statements before the
        list is read shows missing rights, missing columns and wrong types."""
        target, changed_column = (
            self.target,
            {WriteMode.UPSERT: DELETED_AT, WriteMode.HISTORY: VALID_TO}.get(self._mode),
        )
        names_sql, sample_sql = self._dialect.format_names(list(self._kind_by_column)), self._format_sample_sql()
        if self._mode is WriteMode.HISTORY:  # VALID_FROM is in the primary key, so each insert needs a value for it
            names_sql, sample_sql = (
                f"{self._dialect.quote(VALID_FROM)}, {names_sql}",
                f"CURRENT_TIMESTAMP, {sample_sql}",
            )
        insert_sql = f"INSERT INTO {target} ({names_sql}) SELECT {sample_sql} WHERE {_NO_ROW_CONDITION_SQL}"
        statement_texts = [insert_sql]
        if changed_column is not None:
            statement_texts.append(self._format_update_without_change(target, changed_column, _NO_ROW_CONDITION_SQL))
        elif self._mode is WriteMode.REPLACE:
            statement_texts.insert(0, f"DELETE FROM {target} WHERE {_NO_ROW_CONDITION_SQL}")
        statement_texts.append(self._format_update_without_change(self.runs, "job", _NO_ROW_CONDITION_SQL))
        return [Statement(statement_text) for statement_text in statement_texts]

    def _format_sample_sql(self) -> str:
        """Return the SELECT list and the FROM clause of a query whose columns have the types of the export's
        columns."""
        quote = self._dialect.quote
        if self._mode.merges_by_id:
            column_sqls = [
                quote(column) if column in self._kind_by_stage_column else "NULL" for column in self._kind_by_column
            ]
            return f"{', '.join(column_sqls)} FROM {self.stage_table}"
        if self._dialect.can_cast_null:
            column_sqls = [
                f"CAST(NULL AS {self._dialect.type_by_kind[kind]})" for kind in self._kind_by_column.values()
            ]
            return f"{', '.join(column_sqls)} FROM {self.target}"
        return f"{self._dialect.format_names(list(self._kind_by_column))} FROM {self.target}"

    def build_merge_steps(self, run: ExportRun, exported_at: object) -> list[MergeStep]:
        """Return the steps that merge the staged rows into the table, in their order. `exported_at` is a value for the
        database.

        A subscriber has left the list if the stage does not have the subscriber, `run.proves_absence` is true, and the
        row of the subscriber matches the run's filters. The steps close this row: they set `deleted_at` or `valid_to`.
        """
        merge = _Merge(self._dialect, self.target, self.stage_table, self._kind_by_column, run, exported_at)
        return merge.build_upsert_steps() if self._mode is WriteMode.UPSERT else merge.build_history_steps()


class _Merge:
    """Statements of the modes `upsert` and `history`. `t` is the alias of the target, `s` the alias of the stage."""

    def __init__(
        self,
        dialect: Dialect,
        target: str,
        stage_table: str,
        kind_by_column: Mapping[str, ColumnKind],
        run: ExportRun,
        exported_at: object,
    ) -> None:
        self._dialect, self._target = dialect, target
        self._stage_table = stage_table
        self._changed_rows = dialect.temporary_prefix + dialect.quote(_CHANGED_ROWS_NAME)
        self._kind_by_column, self._run = kind_by_column, run
        self._exported_at_parameter = f"{dialect.parameter_prefix}exported_at"
        self._run_columns = {RUN_ID: f"{dialect.parameter_prefix}run_id", EXPORTED_AT: self._exported_at_parameter}
        self._run_values: ParameterValues = {"run_id": run.run_id, "exported_at": exported_at}
        self._sql_by_column = {
            name: f"s.{dialect.quote(name)}" for name in kind_by_column if name not in COLUMNS_OF_RUN
        } | self._run_columns
        self._same_id_sql = f"t.{dialect.quote(ID)} = s.{dialect.quote(ID)}"

    def build_upsert_steps(self) -> list[MergeStep]:
        deleted_at_sql = f"t.{self._dialect.quote(DELETED_AT)}"
        new_sql_by_column = {name: column_sql for name, column_sql in self._sql_by_column.items() if name != ID} | {
            DELETED_AT: "NULL"
        }
        change_condition_sql = f"{self._format_change_condition()} OR {deleted_at_sql} IS NOT NULL"
        deletion_sql_by_column = {DELETED_AT: self._exported_at_parameter, **self._run_columns}
        if self._dialect.is_columnar:
            change_steps = self._build_delete_and_insert_steps(new_sql_by_column, change_condition_sql)
        else:
            change_steps = [("updated", self._build_row_update(new_sql_by_column, change_condition_sql))]
        return [
            *change_steps,
            ("inserted", self._build_row_insert(self._sql_by_column, "1 = 1")),
            *self._build_absence_steps(deletion_sql_by_column, f"{deleted_at_sql} IS NULL"),
        ]

    def build_history_steps(self) -> list[MergeStep]:
        current_condition_sql = f"t.{self._dialect.quote(IS_CURRENT)} = true"
        version_end_sql_by_column = {VALID_TO: self._exported_at_parameter, IS_CURRENT: "false", **self._run_columns}
        version_sql_by_column = {**self._sql_by_column, VALID_FROM: self._exported_at_parameter, IS_CURRENT: "true"}
        changed_version_sql = f"{current_condition_sql} AND ({self._format_change_condition()})"
        return [
            ("closed", self._build_row_update(version_end_sql_by_column, changed_version_sql)),
            *self._build_absence_steps(version_end_sql_by_column, current_condition_sql),
            ("inserted", self._build_row_insert(version_sql_by_column, current_condition_sql)),
        ]

    def _format_change_condition(self) -> str:
        quote = self._dialect.quote
        conditions = [
            self._dialect.format_difference_condition(f"s.{quote(name)}", f"t.{quote(name)}", kind)
            for name, kind in self._kind_by_column.items()
            if name not in (ID, *COLUMNS_OF_RUN)
        ]
        return " OR ".join(conditions) or _NO_ROW_CONDITION_SQL

    def _build_row_update(self, sql_by_column: Mapping[str, str], condition_sql: str) -> Statement:
        """Return the statement that updates the rows of the target that are also in the stage and fulfil the condition.
        The condition may use columns of the target and of the stage."""
        where_sql = f"WHERE {self._same_id_sql} AND ({condition_sql})"
        if self._dialect.has_comma_join_in_update:
            assignments_sql = self._format_assignments(sql_by_column, "t.")
            update_sql = f"UPDATE {self._target} t, {self._stage_table} s SET {assignments_sql} {where_sql}"
        else:
            assignments_sql = self._format_assignments(sql_by_column)
            update_sql = f"UPDATE {self._target} AS t SET {assignments_sql} FROM {self._stage_table} s {where_sql}"
        return Statement(update_sql, self._run_values)

    def _build_delete_and_insert_steps(self, sql_by_column: Mapping[str, str], condition_sql: str) -> list[MergeStep]:
        """Return the steps that have the effect of `_build_row_update` without an UPDATE: a step copies the changed
        rows, a step deletes them from the table, and a step inserts the copies. The copies keep the values of columns
        that the user has added."""
        changes_sql = ", ".join(f"{value} AS {self._dialect.quote(name)}" for name, value in sql_by_column.items())
        rows_sql = f"FROM {self._target} t JOIN {self._stage_table} s ON {self._same_id_sql} WHERE {condition_sql}"
        create_sql = f"CREATE TEMPORARY TABLE {self._changed_rows} AS SELECT t.* REPLACE ({changes_sql}) {rows_sql}"
        id_sql = self._dialect.quote(ID)
        delete_sql = f"DELETE FROM {self._target} WHERE {id_sql} IN (SELECT {id_sql} FROM {self._changed_rows})"
        return [
            (None, Statement(create_sql, self._run_values)),
            (None, Statement(delete_sql)),
            ("updated", Statement(f"INSERT INTO {self._target} SELECT * FROM {self._changed_rows}")),
        ]

    def _build_row_insert(self, sql_by_column: Mapping[str, str], condition_sql: str) -> Statement:
        """Return the statement that inserts staged rows. A staged row is not inserted if a row of the target has the
        same id and fulfils the condition."""
        exists_sql = f"EXISTS (SELECT 1 FROM {self._target} t WHERE {self._same_id_sql} AND {condition_sql})"
        rows_sql = f"SELECT {', '.join(sql_by_column.values())} FROM {self._stage_table} s WHERE NOT {exists_sql}"
        columns_sql = self._dialect.format_names(list(sql_by_column))
        return Statement(f"INSERT INTO {self._target} ({columns_sql}) {rows_sql}", self._run_values)

    def _build_absence_steps(self, sql_by_column: Mapping[str, str], condition_sql: str) -> list[MergeStep]:
        """Return the step that closes (`deleted_at`, `valid_to`) the rows of subscribers who have left the list. Only
        rows that fulfil the condition are closed. Return no step if the run cannot prove that a subscriber has left the
        list."""
        if not self._run.proves_absence:
            return []
        absence_condition_sqls = [condition_sql]
        for name in self._run.filters:
            column_sql, parameter = f"t.{self._dialect.quote(name)}", f"{self._dialect.parameter_prefix}asked_{name}"
            difference_sql = self._dialect.format_difference_condition(
                column_sql, parameter, self._kind_by_column[name]
            )
            absence_condition_sqls.append(f"NOT ({difference_sql})")
        absence_condition_sqls.append(f"NOT EXISTS (SELECT 1 FROM {self._stage_table} s WHERE {self._same_id_sql})")
        assignments_sql, where_sql = self._format_assignments(sql_by_column), " AND ".join(absence_condition_sqls)
        update_sql = f"UPDATE {self._target} AS t SET {assignments_sql} WHERE {where_sql}"
        filter_values = {f"asked_{name}": value for name, value in self._run.filters.items()}
        return [("closed", Statement(update_sql, {**self._run_values, **filter_values}))]

    def _format_assignments(self, sql_by_column: Mapping[str, str], prefix: str = "") -> str:
        return ", ".join(f"{prefix}{self._dialect.quote(name)} = {value}" for name, value in sql_by_column.items())
