"""What a load needs to know, put together from a job or from a file and options; all that is wrong is said here."""

from dataclasses import dataclass, replace
from pathlib import Path

from connector.errors import ConfigurationError, SourceError
from connector.fields import NAMES, BaseRef
from connector.imports.flow import LoadPlan
from connector.imports.plan import (
    RowOptions,
    check_load,
    check_rows,
    closed_on_error,
    map_by_headers,
    name_load,
    plan_rows,
    refuse_unknown_columns,
)
from connector.jobs.build import (
    build_guard,
    build_mapping,
    build_policy,
    build_rules,
    open_as,
    open_source,
    plan_increment,
    plan_suppression,
)
from connector.jobs.models import Job, JobSubscriber
from connector.jobs.source_models import FileSource
from connector.jobs.subscriber_models import build_base
from connector.load.session import LoadPolicy
from connector.row_files import is_rejects, own_columns, read_corrections
from connector.rows import Source
from connector.settings import Settings
from connector.shards import WHOLE, Shard
from connector.sources.files import open_file
from connector.sources.inputs import STANDARD_INPUT
from connector.stores import is_url
from connector.subscribers.headers import guess_mapping
from connector.subscribers.rules import FieldMapping, ValidationRules
from pipelines.flows.validate import ValidationPlan


@dataclass(frozen=True, slots=True)
class FileReading:
    """How a file is to be read (whatever the path of `file`), and how much of it."""

    file: FileSource = FileSource(path=Path(STANDARD_INPUT))  # noqa: RUF009 - a frozen value
    limit: int | None = None


def plan_sync(
    job: Job,
    settings: Settings,
    *,
    limit: int | None,
    wait_s: float,
    is_full: bool = False,
    since: str | None = None,
    shard: Shard = WHOLE,
) -> LoadPlan:
    """Open the source of a job, and return the load.

    From a source with a cursor, read what is new; with `is_full` read everything, and with `since` read from that value
    of the cursor on. A `shard` loads only its own rows, and has its part of the limits. Raises ConfigurationError and
    SourceError.
    """
    if job.source is None or job.subscriber is None:
        raise ConfigurationError(f"the job {job.name} exports: run it by `connector export`")
    increment = plan_increment(job, job.source, settings.account, is_full=is_full, since=since, shard=shard)
    source = open_source(job.source) if increment is None else increment.source
    is_file = job.source.file is not None
    plan = _plan_by_job("sync", job, job.subscriber, source, settings, limit, wait_s, is_empty_refused=is_file)
    plan = replace(plan, increment=increment, is_own_source=True, is_full=is_full)
    return plan if shard.is_whole else _limit_to_shard(plan, shard)


def _limit_to_shard(plan: LoadPlan, shard: Shard) -> LoadPlan:
    """Return the load of the shard, with the shard's part of the limits of pace and of `guard.max_creates`."""
    policy, guard = plan.policy, plan.guard
    policy = replace(
        policy,
        max_rate=policy.max_rate / shard.count,
        max_concurrency=max(1, shard.divide(policy.max_concurrency)),  # with 0 a shard would never send
    )
    if guard is not None and guard.max_creates is not None:
        guard = replace(guard, max_creates=shard.divide(guard.max_creates))
    return replace(plan, policy=policy, guard=guard, shard=shard)


def plan_import(
    path: Path | str,
    options: RowOptions,
    rules: ValidationRules,
    policy: LoadPolicy,
    settings: Settings,
    *,
    reading: FileReading,
    wait_s: float,
) -> LoadPlan:
    """Return the load of a file by its headers. Raises ConfigurationError and SourceError."""
    source, job = read_corrections(open_as(path, reading.file)), name_load(path)
    return plan_rows(source, options, rules, policy, settings, job=job, limit=reading.limit, wait_s=wait_s)


def plan_import_by_job(
    path: Path | str,
    job: Job,
    settings: Settings,
    *,
    reading: FileReading,
    wait_s: float,
) -> LoadPlan:
    """Return the load of a file in place of a job's source, by its mapping.

    Raises ConfigurationError and SourceError.
    """
    if job.subscriber is None:
        raise ConfigurationError(f"the job {job.name} exports and has no mapping: use a job with a subscriber section")
    source = _open_in_place(path, job, reading)
    return _plan_by_job("import", job, job.subscriber, source, settings, reading.limit, wait_s, is_empty_refused=True)


def plan_validation(
    path: Path | str, options: RowOptions, rules: ValidationRules, reading: FileReading
) -> ValidationPlan:
    """Return the validation of a file by its headers. Raises ConfigurationError and SourceError."""
    source = read_corrections(open_as(path, reading.file))
    with closed_on_error(source):
        mapping = map_by_headers(source, options)
        name = (options.base_name or "").strip() or None
        base = BaseRef(options.base_id, name) if options.base_id is not None or name is not None else None
        plan = ValidationPlan(
            name_load(path),
            source,
            mapping,
            rules,
            limit=reading.limit,
            base=base,
            is_empty_refused=True,
            ignored=options.ignored,
        )
        return _check_validation(plan)


def plan_validation_by_job(path: Path | str | None, job: Job, reading: FileReading) -> ValidationPlan:
    """Return the validation of a job's source, or of a file in its place. Raises ConfigurationError and SourceError."""
    if job.source is None or job.subscriber is None:
        raise ConfigurationError(f"the job {job.name} exports: there is nothing to validate")
    source = open_source(job.source) if path is None else _open_in_place(path, job, reading)
    with closed_on_error(source):
        rules, mapping = build_rules(job.subscriber), _choose_mapping(job.subscriber, source)
        is_file = path is not None or job.source.file is not None
        base = build_base(job.subscriber.base)
        plan = ValidationPlan(
            job.name,
            source,
            mapping,
            rules,
            plan_suppression(job),
            limit=reading.limit,
            base=base,
            is_empty_refused=is_file,
            ignored=job.ignore,
        )
        return _check_validation(plan)


def _plan_by_job(
    command: str,
    job: Job,
    subscriber: JobSubscriber,
    source: Source,
    settings: Settings,
    limit: int | None,
    wait_s: float,
    *,
    is_empty_refused: bool,
) -> LoadPlan:
    with closed_on_error(source):
        rules = build_rules(subscriber)
        plan = LoadPlan(
            command=command,
            job=job.name,
            source=source,
            is_empty_refused=is_empty_refused,
            mapping=_choose_mapping(subscriber, source),
            rules=rules,
            base=build_base(subscriber.base),
            policy=build_policy(job.load, rules, job.suppress),
            settings=settings,
            by_job=job.name,
            suppression=plan_suppression(job),
            limit=limit,
            wait_s=wait_s,
            guard=build_guard(job.guard),
            ignored=job.ignore,
        )
        return check_load(plan)


def _choose_mapping(subscriber: JobSubscriber, source: Source) -> FieldMapping:
    """The job's own, unless it has none or the source names the fields themselves, as the rejects of a retry do."""
    own = own_columns(source.columns)
    mapping = None if is_rejects(source.columns) and own == NAMES else build_mapping(subscriber)
    return mapping or guess_mapping(own)


def _check_validation(plan: ValidationPlan) -> ValidationPlan:
    refuse_unknown_columns(plan.source, plan.ignored)
    rules = check_rows(plan.source, plan.mapping, plan.rules, plan.columns, plan.base_column)
    return replace(plan, rules=rules)


def _open_in_place(path: Path | str, job: Job, reading: FileReading) -> Source:
    """The file as its options say, else as the job's own file is written, unless it is one of our rejects files.

    What comes through a pipe can be opened but once: as its options or the job say.
    """
    given = job.source.file if job.source is not None else None
    if given is None or _says_anything(reading.file):
        return read_corrections(open_as(path, reading.file))
    if not (is_url(path) or Path(path).is_file()):
        return read_corrections(open_as(path, given))
    try:
        source = open_file(path)
    except SourceError:  # not as we would write it; as the job says, then, and what is wrong with that is said
        return open_as(path, given)
    if is_rejects(source.columns):
        return read_corrections(source)
    source.close()
    return open_as(path, given)


def _says_anything(file: FileSource) -> bool:
    """Return whether a person said how the file is written."""
    return bool(file.model_fields_set - {"path"})
