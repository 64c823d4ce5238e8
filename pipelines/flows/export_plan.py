"""The plan of an export, from the command line or a job; a worker makes the same one again by its `ExportRecipe`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from connector.errors import ConfigurationError
from connector.service.wire import ListQuery
from connector.settings import SettingOptions, Settings
from connector.stores import is_url
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
    """Everything that an export needs to know; where several workers are to read, each makes it again by `recipe`."""

    job: str
    query: ListQuery
    destination: Destination
    settings: Settings
    tolerance: Tolerance = Tolerance()
    max_rate: float = inf  # list requests/s
    recipe: ExportRecipe | None = None


@dataclass(frozen=True, slots=True)
class ExportRecipe:
    """What a worker makes the plan by, with nothing secret in it: the job's file, or what the command line said. The
    token, and the base URL, which is to be `base_url`, are of the worker's own environment. What the job's file says of
    `query` and `options` is here, too: the worker's file must say the same."""

    base_url: str
    job: Path | None = None
    to: str = ""
    query: ListQuery = field(default_factory=ListQuery)
    options: TableOptions = field(default_factory=lambda: TableOptions())


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
    partition_by: str | None = None

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
    in_parts: bool = False,
) -> ExportPlan:
    """Return the export to a destination given on the command line, by several workers if `in_parts`. Raises
    ConfigurationError."""
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
        partition_by=options.partition_by,
        in_parts=in_parts,
    )
    if (options.table or options.schema) and not destination.is_database:
        raise ConfigurationError(f"{destination} is a file: --table and --schema are for databases")
    recipe = None
    if in_parts:
        _refuse_password(destination)
        recipe = ExportRecipe(settings.base_url, None, to if is_url(to) else os.path.abspath(to), query, options)  # noqa: PTH100 - a worker may have another folder
    return ExportPlan(destination.path.name, query, destination, settings, tolerance, recipe=recipe)


def plan_export_job(
    job: Job,
    settings: Settings,
    *,
    is_incomplete_allowed: bool = False,
    is_total_count_ignored: bool = False,
    max_shrink: float | None = None,
    is_cut_off_accepted: bool = False,
    is_adopting: bool = False,
    workers_read: Path | None = None,
) -> ExportPlan:
    """Return the export of a job; what is given here has priority. With `workers_read` it is by several workers, which
    read the job's file at this path. Raises ConfigurationError."""
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
        partition_by=export.partition_by,
        in_parts=workers_read is not None,
    )
    tolerance = Tolerance(
        is_incomplete_allowed or export.allow_incomplete,
        is_total_count_ignored or export.ignore_total_count,
        export.max_shrink if max_shrink is None else max_shrink,
        is_cut_off_accepted or export.accept_cut_off_possible,
    )
    query, max_rate = build_query(export.filters), export.max_rate or inf
    recipe = None
    if workers_read is not None:
        options = TableOptions(
            export.table,
            export.schema_,
            export.mode,
            export.guard_formulas,
            destination.columns,
            export.group_readable,
            export.format,
            export.partition_by,
        )
        recipe = ExportRecipe(settings.base_url, workers_read.resolve(), query=query, options=options)
    return ExportPlan(job.name, query, destination, settings, tolerance, max_rate, recipe)


def _refuse_password(destination: Destination) -> None:
    url = destination.url
    if url is not None and (url.password or "password" in url.query):
        raise ConfigurationError(
            f"{destination}: with --engine a URL that has a password belongs in a job file, which each worker reads "
            "itself; or give the password by PGPASSFILE"
        )


def repeat_plan(recipe: ExportRecipe, environ: Mapping[str, str]) -> ExportPlan:
    """Return the plan that a recipe is of, as a worker needs it. Raises ConfigurationError."""
    from pipelines.jobs.reader import load_job
    from pipelines.jobs.settings import read_settings

    job = None if recipe.job is None else load_job(recipe.job, environ)
    settings = read_settings(environ, job, SettingOptions(), is_writing=False)
    if settings.base_url != recipe.base_url:
        raise ConfigurationError(
            f"a worker has the base URL {settings.base_url}, and the command {recipe.base_url}: set CONNECTOR_BASE_URL "
            "alike, and the token with it"
        )
    if job is not None:
        plan = plan_export_job(job, settings, workers_read=recipe.job)
        if plan.recipe is None or (plan.recipe.query, plan.recipe.options) != (recipe.query, recipe.options):
            raise ConfigurationError(
                f"a worker's file {recipe.job} is not the command's: bring the same one to all machines, and run it "
                "again"
            )
        return plan
    return plan_export(recipe.to, recipe.query, settings, recipe.options, Tolerance(), in_parts=True)
