"""What a load needs to know, put together from a job or from a file and options; all that is wrong is said here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from connector.errors import ConfigurationError
from connector.extract import Source, open_csv
from connector.load import LoadPolicy
from connector.mapping import ColumnRule, FieldMapping, Guess, guess_mapping, override_mapping
from connector.validation import Rules
from pipelines.jobs import Job, JobSubscriber
from pipelines.jobs.conversion import build_mapping, build_policy, build_rules, check_mapping
from pipelines.jobs.opening import open_source
from pipelines.loading import LoadPlan
from pipelines.rejects import ADDED_COLUMNS
from pipelines.settings import Settings


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What `connector import` was told of its file."""

    base_id: int | None = None
    base_name: str | None = None
    mapped: Mapping[str, str] = field(default_factory=dict)
    is_active: bool | None = None


def plan_sync(job: Job, settings: Settings, *, limit: int | None, wait_s: float) -> LoadPlan:
    """The load of a job, its source opened. Raises ConfigurationError and SourceError."""
    if job.source is None or job.subscriber is None:
        raise ConfigurationError(f"the job {job.name} exports: run it by `connector export`")
    source = open_source(job.source)
    rules = build_rules(job.subscriber)
    policy = build_policy(job.load, rules)
    is_file = job.source.file is not None
    guess = _guess_for(job.subscriber, source)
    return _build_plan(
        "sync", job.name, source, guess, rules, policy, settings,
        base=(job.subscriber.base.id, job.subscriber.base.name), limit=limit, wait_s=wait_s, is_file=is_file,
    )  # fmt: skip


def plan_import(
    path: Path,
    options: FileOptions,
    rules: Rules,
    policy: LoadPolicy,
    settings: Settings,
    *,
    limit: int | None,
    wait_s: float,
) -> LoadPlan:
    """The load of a file by its headers. Raises ConfigurationError and SourceError."""
    base = (options.base_id, options.base_name)
    if (options.base_id is None) == (options.base_name is None):
        raise ConfigurationError("name the base that they go to: either --base-id N or --base-name NAME")
    source = open_csv(path)
    guess = override_mapping(guess_mapping(_own_columns(source)), options.mapped, source.columns)
    if options.is_active is not None:
        guess = _set_active(guess, is_active=options.is_active)
    return _build_plan(
        "import", path.stem, source, guess, rules, policy, settings,
        base=base, limit=limit, wait_s=wait_s, is_file=True,
    )  # fmt: skip


def plan_import_by_job(path: Path, job: Job, settings: Settings, *, limit: int | None, wait_s: float) -> LoadPlan:
    """The load of a file in place of a job's source, by its mapping. Raises ConfigurationError and SourceError."""
    if job.subscriber is None:
        raise ConfigurationError(f"the job {job.name} exports and has no mapping: use a job with a subscriber section")
    source = open_csv(path)
    rules = build_rules(job.subscriber)
    return _build_plan(
        "import", job.name, source, _guess_for(job.subscriber, source), rules, build_policy(job.load, rules), settings,
        base=(job.subscriber.base.id, job.subscriber.base.name), limit=limit, wait_s=wait_s, is_file=True,
    )  # fmt: skip


def _build_plan(
    command: str,
    job: str,
    source: Source,
    guess: Guess,
    rules: Rules,
    policy: LoadPolicy,
    settings: Settings,
    *,
    base: tuple[int | None, str | None],
    limit: int | None,
    wait_s: float,
    is_file: bool,
) -> LoadPlan:
    try:
        check_mapping(guess.mapping, rules, source.columns, where=source.name)
    except ConfigurationError:
        source.close()
        raise
    return LoadPlan(
        command=command,
        job=job,
        source=source,
        is_empty_refused=is_file,
        mapping=guess.mapping,
        unmapped_columns=guess.unmapped,
        rules=rules,
        base_id=base[0],
        base_name=base[1],
        policy=policy,
        settings=settings,
        limit=limit,
        wait_s=wait_s,
    )


def _own_columns(source: Source) -> tuple[str, ...]:
    """The source's columns but for those that a rejects file added."""
    return tuple(name for name in source.columns if name not in ADDED_COLUMNS)


def _guess_for(subscriber: JobSubscriber, source: Source) -> Guess:
    mapping = build_mapping(subscriber)
    if mapping is None:
        return guess_mapping(_own_columns(source))
    return Guess(mapping, tuple(name for name in _own_columns(source) if name not in mapping.columns))


def _set_active(guess: Guess, *, is_active: bool) -> Guess:
    """One constant for all, in place of whatever column said it."""
    before = guess.mapping.rules.get("is_active")
    rules = {**guess.mapping.rules, "is_active": ColumnRule(value="true" if is_active else "false")}
    freed = (before.column,) if before is not None and before.column else ()
    return Guess(FieldMapping(rules), (*guess.unmapped, *freed))
