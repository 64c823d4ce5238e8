# ruff: noqa: S608 - names are quoted, and values are parameters
"""The SQL of an export to a table: one text for all databases, with the differences in their Dialect. Pure.

Each statement names the stage once, since MySQL reads a temporary table only once in a statement. Texts are compared by
bytes. The stage lacks the run's own columns: their values are parameters. A merge does not touch an unchanged row;
`_run_id` and `_exported_at` of a row are those of its last change.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from connector.warehouse.database import ColumnKind, Dialect, Statement, TableName, Values
from connector.warehouse.runs import (
    DELETED_AT,
    EXPORTED_AT,
    FINISHED_COLUMNS,
    ID,
    IS_CURRENT,
    OF_RUN,
    RUN_ID,
    RUNS,
    VALID_FROM,
    VALID_TO,
    ExportRun,
    Mode,
)

_STAGE, _CHANGED = "_connector_stage", "_connector_changed"

_NO_ROW = "1 = 0"


_KEYS: Mapping[Mode, tuple[str, ...]] = {
    Mode.REPLACE: (ID,),
    Mode.UPSERT: (ID,),
    Mode.APPEND: (RUN_ID, ID),
    Mode.HISTORY: (ID, VALID_FROM),
}
"""The primary key of a table."""


class Column(NamedTuple):
    """A column that the connector adds: the kind of its values, and its meaning for the reference."""

    kind: ColumnKind
    meaning: str


MODE_COLUMNS: Mapping[Mode, Mapping[str, Column]] = {
    Mode.REPLACE: {},
    Mode.APPEND: {},
    Mode.UPSERT: {
        DELETED_AT: Column(
            ColumnKind.TIME,
            "Time of the export that no longer found the subscriber on the list. NULL while the subscriber is listed.",
        ),
    },
    Mode.HISTORY: {
        VALID_FROM: Column(ColumnKind.TIME, "Time of the export that first read this version of the subscriber."),
        VALID_TO: Column(
            ColumnKind.TIME,
            "Time of the export that read a newer version or no longer found the subscriber. NULL if current.",
        ),
        IS_CURRENT: Column(ColumnKind.FLAG, "Whether the version is the last one and the subscriber is listed."),
    },
}
"""The columns of a table beyond those of an export. `_exported_at` is the time of an export."""

RUN_COLUMNS: Mapping[str, Column] = {
    "table_name": Column(ColumnKind.NAME, "Table that the export writes."),
    "number": Column(ColumnKind.WHOLE, "Number of the export among those of its table, from 1."),
    "run_id": Column(ColumnKind.TEXT, "Id of the run, as in the report and in `_run_id`."),
    "job": Column(ColumnKind.TEXT, "Name of the job, or of the destination if the export has no job file."),
    "mode": Column(ColumnKind.TEXT, "`replace`, `upsert`, `append` or `history`."),
    "filters": Column(ColumnKind.TEXT, "Filters of the list as a JSON object. `{}` if the whole list was read."),
    "started_at": Column(ColumnKind.TIME, "Start of the export. The rows are as old as this time."),
    "finished_at": Column(ColumnKind.TIME, "End of the export. NULL: the export wrote nothing."),
    "verdict": Column(ColumnKind.TEXT, "`complete` or `incomplete`: the certificate's verdict on the list."),
    "reason": Column(ColumnKind.TEXT, "Reason of the verdict, as in the report's `certificate`."),
    "list_order": Column(ColumnKind.TEXT, "Order of the list: `id`, `id_desc`, `other` or `unstable`."),
    "sweeps": Column(ColumnKind.WHOLE, "Number of complete readings of the list."),
    "pages": Column(ColumnKind.WHOLE, "Number of pages that were used."),
    "distinct_ids": Column(ColumnKind.WHOLE, "Number of different ids in the last reading."),
    "total_first": Column(ColumnKind.WHOLE, "TotalCount of the first answer. NULL without a TotalCount."),
    "total_last": Column(ColumnKind.WHOLE, "TotalCount of the last answer. NULL without a TotalCount."),
    "appeared": Column(ColumnKind.WHOLE, "Smallest number of subscribers that the list gained during the reading."),
    "vanished": Column(ColumnKind.WHOLE, "Smallest number of subscribers that the list lost during the reading."),
    "rows_read": Column(ColumnKind.WHOLE, "Number of subscribers that the last reading found."),
    "rows_written": Column(ColumnKind.WHOLE, "Number of subscribers in the export, changed or not."),
    "rows_inserted": Column(ColumnKind.WHOLE, "Number of rows that the table gained."),
    "rows_updated": Column(ColumnKind.WHOLE, "Number of rows that got new values."),
    "rows_closed": Column(
        ColumnKind.WHOLE, "Number of rows that were replaced, got a `deleted_at`, or got a `valid_to`."
    ),
}
"""The columns of `_connector_runs`, which has one row for each export to a table."""

_RUN_KEY = ("table_name", "number")

_KINDS: Mapping[pa.DataType, ColumnKind] = {
    pa.string(): ColumnKind.TEXT,
    pa.int64(): ColumnKind.WHOLE,
    pa.bool_(): ColumnKind.FLAG,
    pa.date32(): ColumnKind.DATE,
    pa.timestamp("us", "UTC"): ColumnKind.TIME,
    pa.list_(pa.string()): ColumnKind.TAGS,
}


def read_kinds(schema: pa.Schema) -> dict[str, ColumnKind]:
    """Return the kinds of an export's columns."""
    return {field.name: ColumnKind.NAME if field.name == RUN_ID else _KINDS[field.type] for field in schema}


MergeStep = tuple[Literal["inserted", "updated", "closed"] | None, Statement]
"""A statement of a merge, after the name under which its rows are counted (None: not counted)."""


class TableStatements:
    """The statements of exports to the table `name` in a mode; `schema` has the columns of an export."""

    def __init__(self, dialect: Dialect, name: TableName, schema: pa.Schema, mode: Mode) -> None:
        self._dialect, self._name, self._mode = dialect, name, mode
        self._kinds = kinds = read_kinds(schema)
        self.columns = [*kinds, *MODE_COLUMNS[mode]]
        self._staged = {column: kind for column, kind in kinds.items() if column not in OF_RUN}
        self.target = dialect.write_name(name)
        self.runs = dialect.write_name(TableName(RUNS, name.schema))
        self.stage = dialect.temporary + dialect.quote(_STAGE)
        self._changed = dialect.temporary + dialect.quote(_CHANGED)

    @property
    def deletes_rows(self) -> bool:
        """Whether `publish` deletes rows of the table, in order to replace or to update them."""
        return self._mode is Mode.REPLACE or (self._mode is Mode.UPSERT and self._dialect.is_columnar)

    def create_schema(self, schema: str) -> Statement:
        """Return the statement that creates the schema."""
        catalog = "" if self._dialect.catalog is None else f"{self._dialect.quote(self._dialect.catalog)}."
        return Statement(f"CREATE SCHEMA {catalog}{self._dialect.quote(schema)}")

    def create_target(self) -> Statement:
        """Return the statement that creates the table."""
        columns = self._kinds | {name: column.kind for name, column in MODE_COLUMNS[self._mode].items()}
        return self._create("TABLE", self.target, columns, _KEYS[self._mode], self._dialect.table_options)

    def create_runs(self) -> Statement:
        """Return the statement that creates `_connector_runs`."""
        kinds = {name: column.kind for name, column in RUN_COLUMNS.items()}
        return self._create("TABLE", self.runs, kinds, _RUN_KEY, self._dialect.table_options)

    def create_stage(self) -> Statement:
        """Return the statement that creates the stage, which is dropped with the transaction or the connection."""
        key = () if self._dialect.is_columnar else (ID,)
        options = self._dialect.stage_options or self._dialect.table_options
        return self._create("TEMPORARY TABLE", self.stage, self._staged, key, options)

    def _create(
        self, what: str, name: str, kinds: Mapping[str, ColumnKind], key: Sequence[str], options: str
    ) -> Statement:
        quote, types = self._dialect.quote, self._dialect.types
        parts = [
            f"{quote(column)} {types[kind]}{' NOT NULL' if column in key else ''}" for column, kind in kinds.items()
        ]
        if key:
            parts.append(f"PRIMARY KEY ({self._dialect.write_list(key)})")
        return Statement(f"CREATE {what} {name} ({', '.join(parts)}) {options}".rstrip())

    def select_first_row(self) -> Statement:
        """Return the query that gives a row if the table has rows."""
        return Statement(self._dialect.first_row.format(self.target))

    def select_last_number(self) -> Statement:
        """Return the query for the highest number of a run of this table, or 0."""
        return self._select_of_table(f"coalesce(max({self._dialect.quote('number')}), 0)")

    def select_lowest_number(self) -> Statement:
        """Return the query for the lowest number of a run of this table, or null."""
        return self._select_of_table(f"min({self._dialect.quote('number')})")

    def select_finished(self) -> Statement:
        """Return the query for the finished runs of this table, the latest first."""
        quote = self._dialect.quote
        found = self._select_of_table(self._dialect.write_list(FINISHED_COLUMNS))
        more = f"AND {quote('finished_at')} IS NOT NULL ORDER BY {quote('number')} DESC"
        return Statement(f"{found.text} {more}", found.values)

    def select_finish(self, number: int) -> Statement:
        """Return the query that gives a row if the run of this number has finished."""
        condition = f"{self._is_line()} AND {self._dialect.quote('finished_at')} IS NOT NULL"
        return Statement(f"SELECT 1 FROM {self.runs} WHERE {condition}", self._values_of_line(number))

    def _select_of_table(self, selected: str) -> Statement:
        condition = f"{self._dialect.quote('table_name')} = {self._dialect.mark}table_name"
        return Statement(f"SELECT {selected} FROM {self.runs} WHERE {condition}", {"table_name": self._name.table})

    def insert_line(self, values: Values) -> Statement:
        """Return the statement that adds a line to `_connector_runs`."""
        marks = ", ".join(f"{self._dialect.mark}{name}" for name in values)
        return Statement(f"INSERT INTO {self.runs} ({self._dialect.write_list(list(values))}) VALUES ({marks})", values)

    def update_line(self, number: int, values: Values) -> Statement:
        """Return the statement that sets these values in the line of the run."""
        assigned = ", ".join(f"{self._dialect.quote(name)} = {self._dialect.mark}{name}" for name in values)
        values = {**values, **self._values_of_line(number)}
        return Statement(f"UPDATE {self.runs} SET {assigned} WHERE {self._is_line()}", values)

    def lock_line(self, number: int) -> Statement:
        """Return the statement that locks the line of the run and changes nothing."""
        return Statement(self._update_nothing(self.runs, "job", self._is_line()), self._values_of_line(number))

    def _is_line(self) -> str:
        quote, mark = self._dialect.quote, self._dialect.mark
        return f"{quote('table_name')} = {mark}table_name AND {quote('number')} = {mark}number"

    def _values_of_line(self, number: int) -> Values:
        return {"table_name": self._name.table, "number": number}

    def _update_nothing(self, table: str, column: str, condition: str) -> str:
        quoted = self._dialect.quote(column)
        return f"UPDATE {table} SET {quoted} = {quoted} WHERE {condition}"

    def delete_all(self) -> Statement:
        """Return the statement that deletes every row of the table."""
        return Statement(f"DELETE FROM {self.target}")

    def rehearse(self) -> list[Statement]:
        """Return the kinds of statements of `publish`, without rows: missing rights and columns and mismatched types
        show before the list is read."""
        target, changed = self.target, {Mode.UPSERT: DELETED_AT, Mode.HISTORY: VALID_TO}.get(self._mode)
        names, sample = self._dialect.write_list(list(self._kinds)), self._write_sample()
        if self._mode is Mode.HISTORY:  # a column of the key
            names, sample = f"{self._dialect.quote(VALID_FROM)}, {names}", f"CURRENT_TIMESTAMP, {sample}"
        insert = f"INSERT INTO {target} ({names}) SELECT {sample} WHERE {_NO_ROW}"
        of_runs = self._update_nothing(self.runs, "job", _NO_ROW)
        if changed is not None:
            texts = [insert, self._update_nothing(target, changed, _NO_ROW), of_runs]
        elif self._mode is Mode.APPEND:
            texts = [insert, of_runs]
        else:
            texts = [f"DELETE FROM {target} WHERE {_NO_ROW}", insert, of_runs]
        return [Statement(text) for text in texts]

    def _write_sample(self) -> str:
        """Return expressions of the types of the export's columns, with the table that they come from."""
        quote = self._dialect.quote
        if self._mode.is_by_id:
            values = [quote(column) if column in self._staged else "NULL" for column in self._kinds]
            return f"{', '.join(values)} FROM {self.stage}"
        if self._dialect.casts_null:
            values = [f"CAST(NULL AS {self._dialect.types[kind]})" for kind in self._kinds.values()]
            return f"{', '.join(values)} FROM {self.target}"
        return f"{self._dialect.write_list(list(self._kinds))} FROM {self.target}"

    def merge(self, run: ExportRun, exported_at: object) -> list[MergeStep]:
        """Return the steps that merge the staged rows into the table, in order; `exported_at` is a value of the
        database. A row that the stage lacks counts as gone if the run is whole and the run's filters list the row."""
        merge = _Merge(self._dialect, self.target, self.stage, self._changed, self._kinds, run, exported_at)
        return merge.upsert() if self._mode is Mode.UPSERT else merge.keep_history()


class _Merge:
    """The statements of `upsert` and `history`, with `t` as the alias of the target and `s` of the stage."""

    def __init__(
        self,
        dialect: Dialect,
        target: str,
        stage: str,
        changed: str,
        kinds: Mapping[str, ColumnKind],
        run: ExportRun,
        exported_at: object,
    ) -> None:
        self._dialect, self._target, self._stage, self._changed = dialect, target, stage, changed
        self._kinds, self._run = kinds, run
        self._at = f"{dialect.mark}exported_at"
        self._stamps = {RUN_ID: f"{dialect.mark}run_id", EXPORTED_AT: self._at}
        self._stamp_values: Values = {"run_id": run.run_id, "exported_at": exported_at}
        self._values = {name: f"s.{dialect.quote(name)}" for name in kinds if name not in OF_RUN} | self._stamps
        self._is_same = f"t.{dialect.quote(ID)} = s.{dialect.quote(ID)}"

    def upsert(self) -> list[MergeStep]:
        deleted_at = f"t.{self._dialect.quote(DELETED_AT)}"
        new = {name: value for name, value in self._values.items() if name != ID} | {DELETED_AT: "NULL"}
        is_changed = f"{self._write_is_changed()} OR {deleted_at} IS NOT NULL"
        gone = {DELETED_AT: self._at, **self._stamps}
        return [
            *(self._delete_and_insert(new, is_changed) if self._dialect.is_columnar else self._update(new, is_changed)),
            ("inserted", self._insert(self._values, "1 = 1")),
            *self._close(gone, f"{deleted_at} IS NULL"),
        ]

    def keep_history(self) -> list[MergeStep]:
        is_current = f"t.{self._dialect.quote(IS_CURRENT)} = true"
        ended = {VALID_TO: self._at, IS_CURRENT: "false", **self._stamps}
        version = {**self._values, VALID_FROM: self._at, IS_CURRENT: "true"}
        ending = self._update(ended, f"{is_current} AND ({self._write_is_changed()})", counted="closed")
        return [*ending, *self._close(ended, is_current), ("inserted", self._insert(version, is_current))]

    def _write_is_changed(self) -> str:
        quote, compared = self._dialect.quote, (name for name in self._kinds if name not in (ID, *OF_RUN))
        pairs = ((f"s.{quote(name)}", f"t.{quote(name)}", self._kinds[name]) for name in compared)
        return " OR ".join(self._dialect.write_differs(*pair) for pair in pairs) or _NO_ROW

    def _update(
        self, values: Mapping[str, str], condition: str, *, counted: Literal["updated", "closed"] = "updated"
    ) -> list[MergeStep]:
        """Update the rows of the target that are staged and meet the condition, which may name both tables."""
        where = f"WHERE {self._is_same} AND ({condition})"
        if self._dialect.joins_by_comma:
            text = f"UPDATE {self._target} t, {self._stage} s SET {self._assign(values, 't.')} {where}"
        else:
            text = f"UPDATE {self._target} AS t SET {self._assign(values)} FROM {self._stage} s {where}"
        return [(counted, Statement(text, self._stamp_values))]

    def _delete_and_insert(self, values: Mapping[str, str], condition: str) -> list[MergeStep]:
        """Update the same rows by deleting and inserting them. Columns of the user keep their values."""
        changes = ", ".join(f"{value} AS {self._dialect.quote(name)}" for name, value in values.items())
        rows = f"FROM {self._target} t JOIN {self._stage} s ON {self._is_same} WHERE {condition}"
        select = f"CREATE TEMPORARY TABLE {self._changed} AS SELECT t.* REPLACE ({changes}) {rows}"
        identity = self._dialect.quote(ID)
        delete = f"DELETE FROM {self._target} WHERE {identity} IN (SELECT {identity} FROM {self._changed})"
        return [
            (None, Statement(select, self._stamp_values)),
            (None, Statement(delete)),
            ("updated", Statement(f"INSERT INTO {self._target} SELECT * FROM {self._changed}")),
        ]

    def _insert(self, values: Mapping[str, str], condition: str) -> Statement:
        """Insert the staged rows for which the target has no row that meets the condition."""
        is_there = f"EXISTS (SELECT 1 FROM {self._target} t WHERE {self._is_same} AND {condition})"
        rows = f"SELECT {', '.join(values.values())} FROM {self._stage} s WHERE NOT {is_there}"
        columns = self._dialect.write_list(list(values))
        return Statement(f"INSERT INTO {self._target} ({columns}) {rows}", self._stamp_values)

    def _close(self, values: Mapping[str, str], condition: str) -> list[MergeStep]:
        """Update the rows of the target that meet the condition and have gone from the list, if the run is whole."""
        if not self._run.is_whole:
            return []
        conditions = [condition]
        for name in self._run.asked:
            differs = (f"t.{self._dialect.quote(name)}", f"{self._dialect.mark}asked_{name}", self._kinds[name])
            conditions.append(f"NOT ({self._dialect.write_differs(*differs)})")
        conditions.append(f"NOT EXISTS (SELECT 1 FROM {self._stage} s WHERE {self._is_same})")
        text = f"UPDATE {self._target} AS t SET {self._assign(values)} WHERE {' AND '.join(conditions)}"
        of_filters = {f"asked_{name}": value for name, value in self._run.asked.items()}
        return [("closed", Statement(text, {**self._stamp_values, **of_filters}))]

    def _assign(self, values: Mapping[str, str], prefix: str = "") -> str:
        return ", ".join(f"{prefix}{self._dialect.quote(name)} = {value}" for name, value in values.items())
