"""What `_connector_runs` says of each export, and what is asked of it. Pure: rows and statements."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from connector.export.writers.layout import Layout, TableName
from connector.export.writers.run import Changes, Run


@dataclass(frozen=True, slots=True)
class LastRun:
    """An earlier export to the same table."""

    mode: str
    verdict: str
    filters: str
    rows: int


def write_filters(asked: Mapping[str, Any]) -> str:
    """The filters that the service was asked for, as JSON that is the same for the same ones; `{}` for none."""
    return json.dumps(dict(asked), sort_keys=True, ensure_ascii=False)


def build_record(layout: Layout, run: Run, changes: Changes) -> sa.Insert:
    """The line of this run."""
    certificate, write_time = run.certificate, layout.dialect.write_time
    values = {
        "run_id": run.run_id,
        "job": run.job,
        "table_name": layout.target.name,
        "tags_table": layout.tags.name if layout.tags is not None else None,
        "mode": str(layout.mode),
        "verdict": str(certificate.verdict),
        "reason": str(certificate.reason),
        "list_order": str(certificate.order),
        "sweeps": certificate.sweeps,
        "pages": certificate.pages,
        "distinct_ids": certificate.distinct,
        "total_first": certificate.total_first,
        "total_last": certificate.total_last,
        "appeared": certificate.appeared,
        "vanished": certificate.vanished,
        "filters": write_filters(certificate.filters.get("asked", {})),
        "rows_read": certificate.distinct,
        "rows_written": run.rows,
        "rows_inserted": changes.inserted,
        "rows_updated": changes.updated,
        "rows_closed": changes.closed,
        "started_at": write_time(run.exported_at),
        "finished_at": write_time(run.finished_at),
    }
    return sa.insert(layout.runs).values(values)


def build_later(layout: Layout, at: datetime) -> sa.Select[Any]:
    """How many exports to this table began at `at` or later, and are in it already."""
    runs = layout.runs
    started_at = sa.bindparam(None, layout.dialect.write_time(at), runs.c["started_at"].type)
    return sa.select(sa.func.count()).select_from(runs).where(_is_of(layout), runs.c["started_at"] >= started_at)


def build_last(layout: Layout) -> sa.Select[Any]:
    """The last two hundred runs of this table, the last first: mode, verdict, filters, rows."""
    runs = layout.runs
    columns = [runs.c[name] for name in ("mode", "verdict", "filters", "rows_written")]
    return sa.select(*columns).where(_is_of(layout)).order_by(runs.c["started_at"].desc()).limit(200)


def build_roles(layout: Layout) -> sa.Select[Any]:
    """Each table that was exported to, and the table of its tags at the last run, or null."""
    runs = layout.runs
    last = sa.select(runs.c["table_name"], sa.func.max(runs.c["started_at"]).label("at")).group_by(runs.c["table_name"])
    of_table = last.subquery("last_runs")
    is_last = sa.and_(runs.c["table_name"] == of_table.c["table_name"], runs.c["started_at"] == of_table.c["at"])
    return sa.select(runs.c["table_name"], runs.c["tags_table"]).join(of_table, is_last).distinct()


def build_found(layout: Layout, run_id: str) -> sa.Select[Any]:
    """How many lines this run has: one, if it was committed."""
    runs = layout.runs
    return sa.select(sa.func.count()).select_from(runs).where(runs.c["run_id"] == run_id, _is_of(layout))


def name_of(table: sa.Table) -> TableName:
    """The table's name as it was given."""
    return TableName(table.name, table.schema)


def _is_of(layout: Layout) -> sa.ColumnElement[bool]:
    return layout.dialect.is_table(layout.runs.c["table_name"], layout.target.name)
