"""The plan of an export, from the command line or a job."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from connector.errors import ConfigurationError
from connector.service.wire import ListQuery
from connector.settings import Settings
from connector.warehouse.destination import MAX_SHRINK, Destination, parse_destination

if TYPE_CHECKING:
    from pipelines.jobs.models import Job


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What an export puts up with: a list that is not certified, one against which TotalCount alone stands, one that is
    so much smaller (a share) than the last, and one that may be cut off."""

    is_incomplete_allowed: bool = False
    is_total_count_ignored: bool = False
    max_shrink: float = MAX_SHRINK
    is_cut_off_accepted: bool = False


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The list query, the destination and the settings of one export."""

    job: str
    query: ListQuery
    destination: Destination
    settings: Settings
    tolerance: Tolerance = Tolerance()
    max_rate: float = inf  # list requests/s


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How a destination is written to, as the command line has it; None where an option was not given."""

    table: str | None = None
    schema: str | None = None
    mode: str = "replace"
    guard_formulas: bool = False
    columns: tuple[str, ...] | None = None
    group_readable: bool = False
    file_format: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether any option was."""
        return self != TableOptions()


def plan_export(
    to: str,
    query: ListQuery,
    settings: Settings,
    options: TableOptions,
    tolerance: Tolerance,
    *,
    is_adopting: bool = False,
) -> ExportPlan:
    """Return the plan of an export to a destination from the command line. Raises ConfigurationError."""
    destination = parse_destination(
        to,
        table=options.table or "subscribers",
        schema=options.schema,
        mode=options.mode,
        guard_formulas=options.guard_formulas,
        columns=options.columns,
        overwrite=is_adopting,
        group_readable=options.group_readable,
        file_format=options.file_format,
    )
    if (options.table or options.schema) and not destination.is_database:
        raise ConfigurationError(f"{destination} is a file: --table and --schema are for databases")
    return ExportPlan(destination.path.name, query, destination, settings, tolerance)


def plan_export_job(
    job: Job,
    settings: Settings,
    *,
    is_incomplete_allowed: bool = False,
    is_total_count_ignored: bool = False,
    max_shrink: float | None = None,
    is_cut_off_accepted: bool = False,
    is_adopting: bool = False,
) -> ExportPlan:
    """Return the plan of a job's export. The arguments have priority over the job. Raises ConfigurationError."""
    from pipelines.jobs.build import build_query

    export = job.export
    if export is None:
        raise ConfigurationError(f"the job {job.name} loads: run it by `connector sync`")
    destination = parse_destination(
        export.to,
        table=export.table,
        schema=export.schema_,
        mode=export.mode,
        guard_formulas=export.guard_formulas,
        columns=export.columns,
        overwrite=export.overwrite or is_adopting,
        group_readable=export.group_readable,
        file_format=export.format,
    )
    tolerance = Tolerance(
        is_incomplete_allowed or export.allow_incomplete,
        is_total_count_ignored or export.ignore_total_count,
        export.max_shrink if max_shrink is None else max_shrink,
        is_cut_off_accepted or export.accept_cut_off_possible,
    )
    query, max_rate = build_query(export.filters), export.max_rate or inf
    return ExportPlan(job.name, query, destination, settings, tolerance, max_rate)
