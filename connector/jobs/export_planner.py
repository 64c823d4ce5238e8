"""Plans an export from a job."""

from math import inf

from connector.errors import ConfigurationError
from connector.export import ExportPlan
from connector.jobs.models import Filters, Job
from connector.service.wire import ListQuery
from connector.settings import Settings
from connector.warehouse.destination import parse_destination


def plan_export_job(
    job: Job,
    settings: Settings,
    *,
    allow_incomplete: bool = False,
    ignore_total_count: bool = False,
    allow_truncated: bool = False,
    max_shrink: float | None = None,
    overwrite: bool = False,
) -> ExportPlan:
    """Return the plan of a job's export. The arguments override the keys of the job. Raises ConfigurationError."""
    export = job.export
    if export is None:
        raise ConfigurationError(job.explain_command())
    destination = parse_destination(
        export.to,
        table=export.table,
        schema=export.schema_,
        mode=export.mode,
        guard_formulas=export.guard_formulas,
        columns=export.columns,
        overwrite=export.overwrite or overwrite,
        group_readable=export.group_readable,
        file_format=export.format,
        csv_dialect=export.csv_dialect,
        delimiter=export.delimiter,
        run_columns=export.run_columns,
        partition_by=export.partition_by,
    )
    return ExportPlan(
        job.name,
        build_query(export.filters),
        destination,
        settings,
        allow_incomplete or export.allow_incomplete,
        ignore_total_count or export.ignore_total_count,
        allow_truncated or export.allow_truncated,
        export.max_shrink if max_shrink is None else max_shrink,
        export.max_rate or inf,
        job.path,
    )


def build_query(filters: Filters) -> ListQuery:
    """Return the query of the list operation (service-api.md 4.3). The gender `unspecified` is sent as an empty
    text."""
    return ListQuery(**filters.model_dump() | ({"gender": ""} if filters.gender == "unspecified" else {}))
