"""Builds jobs from arguments: the options of a command, or the arguments of a function of the library.

The arguments have the names of the fields of `ImportOptions`. The messages of a command show an argument as an
option (`--base-id`). The messages of the library show the name of the argument (`base_id`).
"""

import shlex
from collections.abc import Callable, Collection, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from connector.errors import ConfigurationError, SourceError
from connector.jobs.models import Job, Load, Receipts
from connector.jobs.reader import KeyPath, validate_values
from connector.jobs.source_models import FileSource, JobSource
from connector.runs.rejects import is_rejects_file
from connector.sources.files import open_file
from connector.sources.inputs import STANDARD_INPUT
from connector.stores import is_pattern, is_url
from connector.texts import escape_to_one_line
from connector.units import format_duration

FILE_ARGUMENTS = ("format", "encoding", "delimiter", "sheet")
_LOAD_ARGUMENTS = (
    "on_unknown", "look", "allow_truncated", "ignore_total_count", "quiet_period_s", "max_concurrency", "max_rate"
)  # fmt: skip
"""The arguments that replace a key of a job's load section."""

_JOB_ARGUMENTS = ("base_id", "base_name", "active", "mapping", "ignore", "identity", "zip")
"""The arguments that have a key in a job file."""

_NO_BASE = {"name": "no base"}
"""A placeholder for the base of a job that is only validated, because a validation does not use the base."""

Model = TypeVar("Model", bound=BaseModel)

ArgumentFormatter = Callable[[str], str]


def format_option(argument: str) -> str:
    """Return the option of an argument, such as `--base-id`."""
    option = {"mapping": "map", "quiet_period_s": "quiet_period"}.get(argument, argument)
    return "--" + option.replace("_", "-")


def build_import_job(
    source_path: str | PathLike[str] | None,
    job_name: str,
    arguments: Mapping[str, Any],
    *,
    format_argument: ArgumentFormatter,
    needs_base: bool = True,
) -> Job:
    """Return the job that imports a file, or rows in memory if `source_path` is None. The headers of the columns
    decide the fields.

    An argument that is None is not used. Raises ConfigurationError. The message names the argument.
    """
    value_by_argument = {argument: value for argument, value in arguments.items() if value is not None}
    base_values = {
        key: value_by_argument[f"base_{key}"] for key in ("id", "name") if f"base_{key}" in value_by_argument
    }
    if len(base_values) > 1 or (needs_base and not base_values):
        problem_text = "Two bases given" if base_values else "No base given"
        raise ConfigurationError(
            f"{problem_text}. Use either {format_argument('base_id')} or {format_argument('base_name')}"
        )
    field_values: dict[str, Any] = {
        field: column or None for field, column in value_by_argument.get("mapping", {}).items()
    }
    if "active" in value_by_argument:
        field_values["is_active"] = {"value": value_by_argument["active"]}
    subscriber_values = {key: value_by_argument[key] for key in ("identity", "zip") if key in value_by_argument}
    job_values: dict[str, Any] = {
        "job": job_name,
        "subscriber": {
            **subscriber_values,
            "base": base_values or _NO_BASE,
            "fields": field_values,
            "by_headers": True,
        },
        "ignore": list(value_by_argument.get("ignore", ())),
        "load": _select_load_keys(value_by_argument),
    }
    if source_path is not None:
        job_values["source"] = {"file": {"path": _convert_path(source_path), **_select_file_keys(value_by_argument)}}
    return validate_arguments(Job, job_values, format_argument)


def build_rows_job(
    source_path: str | PathLike[str] | None,
    job_name: str,
    arguments: Mapping[str, Any],
    *,
    job: Job | None,
    format_argument: ArgumentFormatter,
    needs_base: bool = True,
) -> Job:
    """Return the job that loads the file at `source_path`, or rows in memory if `source_path` is None. With `job`,
    return this job with the file or the rows as its source. Without `job`, the arguments describe the job. Raises
    ConfigurationError and SourceError."""
    if job is None:
        rows_job = build_import_job(
            source_path, job_name, arguments, format_argument=format_argument, needs_base=needs_base
        )
    else:
        refuse_job_overrides(arguments, format_argument=format_argument)
        rows_job = override_load(job, arguments, format_argument=format_argument)
        source = None
        if source_path is not None:
            file = build_file_source(source_path, arguments, format_argument=format_argument)
            # Without arguments about the file, the options of the job's own file are used, but not for a rejects file.
            job_file = job.source.file if job.source is not None else None
            if job_file is not None and file.model_fields_set == {"path"} and not _is_rejects_file(source_path):
                file = job_file.model_copy(update={"path": file.path})
            source = JobSource(file=file)
        rows_job = rows_job.model_copy(update={"source": source})
    return override_receipts(rows_job, arguments.get("receipts"), format_argument=format_argument)


def format_options(job: Job) -> str:
    """Return the options with which `connector import` loads a rejects file as the job loaded the original file.
    `build_import_job` has built the job. Options about the original file, such as its encoding, are left out."""
    subscriber = job.subscriber
    if subscriber is None:
        raise ValueError("an import needs a base")
    base = subscriber.base
    option_texts = ["--base-name", base.name or ""] if base.id is None else ["--base-id", str(base.id)]
    for field, rule in (subscriber.fields_ or {}).items():
        if rule is not None and rule.value is not None:
            option_texts.append("--active" if rule.value == "true" else "--inactive")
        else:
            option_texts += ["--map", f"{field}={'' if rule is None else rule.column}"]
    for column in job.ignore:
        option_texts += ["--ignore", column]
    value_by_argument: dict[str, Any] = {
        name: getattr(subscriber, name) for name in ("identity", "zip") if name in subscriber.model_fields_set
    }
    default_load = Load()
    for argument in _LOAD_ARGUMENTS:
        if (value := getattr(job.load, argument)) != getattr(default_load, argument):
            value_by_argument[argument] = format_duration(value) if argument == "quiet_period_s" else value
    for argument, value in value_by_argument.items():
        option_texts.append(format_option(argument))
        if value is not True:
            option_texts.append(str(value).removesuffix(".0"))
    if job.receipts is not None and "@" not in job.receipts.to:  # a URL may have a password, which no report shows
        destination = job.receipts.to
        option_texts += ["--receipts", destination if is_url(destination) else str(Path(destination).absolute())]
    return shlex.join(option_texts)


def override_load(job: Job, arguments: Mapping[str, Any], *, format_argument: ArgumentFormatter) -> Job:
    """Return the job. The arguments replace the keys of its load section. Raises ConfigurationError."""
    changed_values = _select_load_keys({argument: value for argument, value in arguments.items() if value is not None})
    new_load = validate_arguments(Load, {**job.load.model_dump(by_alias=True), **changed_values}, format_argument)
    return job.model_copy(update={"load": new_load})


def override_receipts(job: Job, destination: str | PathLike[str] | None, *, format_argument: ArgumentFormatter) -> Job:
    """Return the job with this destination of receipts. If `destination` is None, the destination of the job does not
    change. Raises ConfigurationError."""
    if destination is None:
        return job
    receipts_values = {} if job.receipts is None else job.receipts.model_dump(by_alias=True)
    destination_text = fspath(destination) if isinstance(destination, PathLike) else destination
    receipts = validate_arguments(
        Receipts, {**receipts_values, "to": destination_text}, lambda _: format_argument("receipts")
    )
    return job.model_copy(update={"receipts": receipts})


def build_file_source(
    path: str | PathLike[str], arguments: Mapping[str, Any], *, format_argument: ArgumentFormatter
) -> FileSource:
    """Return a file as a source. The arguments decide how the file is read. Raises ConfigurationError."""
    return validate_arguments(
        FileSource, {"path": _convert_path(path), **_select_file_keys(arguments)}, format_argument
    )


def refuse_job_overrides(
    arguments: Mapping[str, Any],
    *,
    allowed_names: Collection[str] = FILE_ARGUMENTS,
    format_argument: ArgumentFormatter = format_option,
) -> None:
    """Raise ConfigurationError if an argument would replace a key of the job, such as its base. The arguments in
    `allowed_names` may replace a key."""
    refused_names = [
        name for name in (*_JOB_ARGUMENTS, *FILE_ARGUMENTS) if arguments.get(name) and name not in allowed_names
    ]
    if arguments.get("active") is False:
        refused_names.append("active")
    if refused_names:
        options_text = ", ".join(map(format_argument, dict.fromkeys(refused_names)))
        raise ConfigurationError(f"The job has its own base, mapping and rules. Leave out {options_text}")


def choose_import_name(path: str | PathLike[str]) -> str:
    """Return the name of an import without a job: the name of its file, or the name of the folder of a pattern."""
    if fspath(path) == STANDARD_INPUT:
        return "stdin"
    file_path = Path(path)
    is_one_file = file_path.exists() or not is_pattern(file_path.name)
    return (
        escape_to_one_line(file_path.stem if is_one_file else file_path.parent.name or file_path.stem).strip() or "file"
    )


def _convert_path(path: str | PathLike[str]) -> str | Path:
    return path if isinstance(path, str) and is_url(path) else Path(path)


def _select_file_keys(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: arguments[key] for key in FILE_ARGUMENTS if arguments.get(key) is not None}


def _select_load_keys(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        Load.model_fields[argument].alias or argument: arguments[argument]
        for argument in _LOAD_ARGUMENTS
        if argument in arguments
    }


def _is_rejects_file(path: str | PathLike[str]) -> bool:
    """Return whether a local file is a rejects file of an earlier run. Return False for a pipe, because a pipe can be
    opened only once."""
    if is_url(path) or not Path(path).is_file():
        return False
    try:
        with open_file(path) as source:
            return is_rejects_file(source.columns)
    except SourceError:  # the connector did not write this file
        return False


def validate_arguments(model: type[Model], values: Mapping[str, Any], format_argument: ArgumentFormatter) -> Model:
    """Return the model. Raises ConfigurationError. The message has each fault with its argument."""
    validated_model, faults = validate_values(model, values, values, {}, None)
    if validated_model is None:
        fault_lines = (f"{format_argument(_find_argument_name(fault.key_path))}: {fault.message}" for fault in faults)
        raise ConfigurationError("\n".join(fault_lines))
    return validated_model


def _find_argument_name(key_path: KeyPath) -> str:
    key_names = [key for key in key_path if isinstance(key, str)]
    match key_names:
        case ["subscriber", "base", key, *_]:
            return f"base_{key}"
        case ["subscriber", "base"]:
            return "base_id"
        case ["subscriber", "fields", "is_active", "value"]:
            return "active"
        case ["subscriber", "fields", *_]:
            return "mapping"
        case [*_, "quiet_period"]:
            return "quiet_period_s"
        case [*_, key]:
            return key
        case _:
            return "job"
