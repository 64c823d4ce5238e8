"""What a load needs to know, put together from a job or from a file and options; all that is wrong is said here."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from connector.errors import ConfigurationError, SourceError
from connector.fields import NAMES, BaseRef
from connector.load import LoadPolicy
from connector.row_files import is_rejects, own_columns, read_corrections
from connector.rows import Source
from connector.sources import STANDARD_INPUT, open_file, refuse_lacking
from connector.subscribers import BaseColumn, ColumnRule, FieldMapping, ValidationRules, guess_mapping, override_mapping
from pipelines.flows.imports import LoadPlan
from pipelines.flows.increments import plan_increment
from pipelines.flows.suppression import plan_suppression
from pipelines.flows.validate import ValidationPlan
from pipelines.jobs import (
    FileSource,
    Job,
    JobSubscriber,
    Settings,
    build_base,
    build_mapping,
    build_policy,
    build_rules,
    check_mapping,
    open_as,
    open_source,
)

Planned = TypeVar("Planned", LoadPlan, ValidationPlan)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options of `connector import` for its file and its base."""

    base_id: int | None = None
    base_name: str | None = None
    mapped: Mapping[str, str] = field(default_factory=dict)
    is_active: bool | None = None


@dataclass(frozen=True, slots=True)
class FileReading:
    """How a file is to be read (whatever the path of `file`), and how much of it."""

    file: FileSource = FileSource(path=Path(STANDARD_INPUT))  # noqa: RUF009 - a frozen value
    limit: int | None = None


def plan_sync(
    job: Job, settings: Settings, *, limit: int | None, wait_s: float, is_full: bool = False, since: str | None = None
) -> LoadPlan:
    """Return the load of a job, its source opened; of an incremental one what is new, all of it, or what is new `since`
    a value of its cursor. Raises ConfigurationError and SourceError."""
    if job.source is None or job.subscriber is None:
        raise ConfigurationError(f"the job {job.name} exports: run it by `connector export`")
    increment = plan_increment(job, job.source, settings.account, is_full=is_full, since=since)
    source = open_source(job.source) if increment is None else increment.source
    is_file = job.source.file is not None
    plan = _plan_by_job("sync", job, job.subscriber, source, settings, limit, wait_s, is_empty_refused=is_file)
    return replace(plan, increment=increment, is_own_source=True, is_full=is_full)


def plan_import(
    path: Path,
    options: FileOptions,
    rules: ValidationRules,
    policy: LoadPolicy,
    settings: Settings,
    *,
    reading: FileReading,
    wait_s: float,
) -> LoadPlan:
    """Return the load of a file by its headers. Raises ConfigurationError and SourceError."""
    base_name = _check_base(options)
    source = read_corrections(open_as(path, reading.file))
    with _closed_on_error(source):
        mapping = _map_by_headers(source, options)
        plan = LoadPlan(
            command="import",
            job="stdin" if str(path) == STANDARD_INPUT else path.stem,
            source=source,
            is_empty_refused=True,
            mapping=mapping,
            rules=rules,
            base=BaseRef(options.base_id, base_name),
            policy=policy,
            settings=settings,
            limit=reading.limit,
            wait_s=wait_s,
        )
        return _checked(plan)


def plan_import_by_job(path: Path, job: Job, settings: Settings, *, reading: FileReading, wait_s: float) -> LoadPlan:
    """Return the load of a file in place of a job's source, by its mapping. Raises ConfigurationError and
    SourceError."""
    if job.subscriber is None:
        raise ConfigurationError(f"the job {job.name} exports and has no mapping: use a job with a subscriber section")
    source = _open_in_place(path, job, reading)
    return _plan_by_job("import", job, job.subscriber, source, settings, reading.limit, wait_s, is_empty_refused=True)


def plan_validation(path: Path, options: FileOptions, rules: ValidationRules, reading: FileReading) -> ValidationPlan:
    """Return the validation of a file by its headers. Raises ConfigurationError and SourceError."""
    source = read_corrections(open_as(path, reading.file))
    with _closed_on_error(source):
        mapping = _map_by_headers(source, options)
        return _checked(ValidationPlan(path.stem, source, mapping, rules, limit=reading.limit, is_empty_refused=True))


def plan_validation_by_job(path: Path | None, job: Job, reading: FileReading) -> ValidationPlan:
    """Return the validation of a job's source, or of a file in its place. Raises ConfigurationError and SourceError."""
    if job.source is None or job.subscriber is None:
        raise ConfigurationError(f"the job {job.name} exports: there is nothing to validate")
    source = open_source(job.source) if path is None else _open_in_place(path, job, reading)
    with _closed_on_error(source):
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
            base_column=base if isinstance(base, BaseColumn) else None,
            is_empty_refused=is_file,
        )
        return _checked(plan)


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
    with _closed_on_error(source):
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
            guard=job.guard,
        )
        return _checked(plan)


def _map_by_headers(source: Source, options: FileOptions) -> FieldMapping:
    """What the headers seem to mean, and what the options say above that."""
    mapping = override_mapping(guess_mapping(own_columns(source.columns)), options.mapped, source.columns)
    return mapping if options.is_active is None else _set_active(mapping, is_active=options.is_active)


def _choose_mapping(subscriber: JobSubscriber, source: Source) -> FieldMapping:
    """The job's own, unless it has none or the source names the fields themselves, as the rejects of a retry do."""
    own = own_columns(source.columns)
    mapping = None if is_rejects(source.columns) and own == NAMES else build_mapping(subscriber)
    return mapping or guess_mapping(own)


def _checked(plan: Planned) -> Planned:
    """The plan, if its mapping can serve each file of its source."""
    rule = plan.mapping.rules.get("is_active")
    if rule is not None and rule.default is None:  # an empty cell says nothing either
        plan = replace(plan, rules=replace(plan.rules, required=plan.rules.required | {"is_active"}))
    check_mapping(plan.mapping, plan.rules, plan.source.columns, where=plan.source.name, base=plan.base_column)
    refuse_lacking(plan.source, plan.columns)
    return plan


@contextmanager
def _closed_on_error(source: Source) -> Iterator[None]:
    """Let go of the source when what is done here raises."""
    try:
        yield
    except BaseException:
        source.close()
        raise


def _check_base(options: FileOptions) -> str | None:
    """The base's name, trimmed; a base is named by exactly one of id and name."""
    name = options.base_name.strip() if options.base_name is not None else None
    if (options.base_id is None) == (name is None):
        raise ConfigurationError("name the base that they go to: either --base-id N or --base-name NAME")
    if name is not None and (not name or not name.isprintable()):
        raise ConfigurationError("--base-name must be a name in printable characters")
    return name


def _open_in_place(path: Path, job: Job, reading: FileReading) -> Source:
    """The file as its options say, else as the job's own file is written, unless it is one of our rejects files.

    What comes through a pipe can be opened but once: as its options or the job say.
    """
    given = job.source.file if job.source is not None else None
    if given is None or _says_anything(reading.file):
        return read_corrections(open_as(path, reading.file))
    if not path.is_file():
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


def _set_active(mapping: FieldMapping, *, is_active: bool) -> FieldMapping:
    """One constant for all, in place of whatever column said it."""
    return FieldMapping({**mapping.rules, "is_active": ColumnRule(value="true" if is_active else "false")})
