"""A job file read whole: YAML, environment, model. Everything wrong with it is said at once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from connector.errors import ConfigurationError
from pipelines.jobs.document import JobFault, Keys, parse_document
from pipelines.jobs.emails import MessageFile
from pipelines.jobs.environment import fill_in
from pipelines.jobs.faults import describe_faults, explain_error
from pipelines.jobs.models import Job, Load
from pipelines.jobs.sources import FileSource

Model = TypeVar("Model", bound=BaseModel)

_LARGEST = 1 << 20  # bytes; a job of every key is 2 kB


def load_job(path: Path, environ: Mapping[str, str]) -> Job:
    """The job of the file at `path` (architecture 8), `${NAME}` taken from `environ`, paths made absolute.

    Raises ConfigurationError with every fault found, each with its key and line; no value of the environment and no
    password of a URL is part of the message.
    """
    return load_model(path, Job, environ, "job file")


def load_model(path: Path, model: type[Model], environ: Mapping[str, str], what: str) -> Model:
    """What the file at `path` says, as `model`; `what` such a file is called in errors. As `load_job` in all else."""
    written = parse_document(_read_text(path, what))
    filled = fill_in(written, environ) if written.values else written
    faults = list(filled.faults)
    value, invalid = _validate(model, filled.values, written.values, written.lines, path.absolute().parent)
    spoilt = {fault.keys for fault in faults}
    if written.values:  # else there is nothing to be wrong about but what has been said
        faults += [fault for fault in invalid if fault.keys not in spoilt]
    if faults or value is None:
        raise ConfigurationError(describe_faults(path, faults))
    return value


def _read_text(path: Path, what: str) -> str:
    try:
        content = path.read_bytes() if path.stat().st_size <= _LARGEST else None
        if content is None:
            raise ConfigurationError(f"{path}: the file is too large for a {what}; is it the right file?")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such {what}; check the path") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path}: this is a folder; name the {what} in it") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: the {what} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: a {what} is UTF-8 text; byte {error.start + 1} is not") from None


def _validate(
    model: type[Model],
    values: Mapping[str, Any],
    written: Mapping[str, Any],
    lines: Mapping[Keys, int],
    folder: Path,
) -> tuple[Model | None, list[JobFault]]:
    try:
        return model.model_validate(values, context={"folder": folder}), []
    except ValidationError as error:
        # Inputs, which may be secrets, stay out; `written` shows a ${NAME} by its name.
        details = error.errors(include_url=False, include_input=False)
        return None, [explain_error(detail, model, written, lines) for detail in details]


def override_load(load: Load, options: Mapping[str, Any]) -> Load:
    """`load` with the options of a command in place of its own: keys as in a job file (`quiet_period: "1s"`), None
    where an option was not given. Raises ConfigurationError naming the option."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Load.model_validate({**load.model_dump(by_alias=True), **given})
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        faults = [explain_error(detail, Load, given, {}) for detail in details]
        words = [f"--{str(fault.keys[-1]).replace('_', '-')}: {fault.message}" for fault in faults]
        raise ConfigurationError("\n".join(words)) from None


def check_format(given: Mapping[str, str | None]) -> FileSource:
    """What was said of a file (format, encoding, delimiter, sheet; None: nothing) as `source.file` takes it.

    Its path means nothing. Raises ConfigurationError naming the option.
    """
    try:
        return FileSource.model_validate({"path": "-"} | {key: said for key, said in given.items() if said is not None})
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        faults = [explain_error(detail, FileSource, given, {}) for detail in details]
        raise ConfigurationError("\n".join(f"--{fault.keys[-1]}: {fault.message}" for fault in faults)) from None


def check_message(keys: Mapping[str, Any], folder: Path, option_of: Mapping[str, str]) -> MessageFile:
    """What options say of an email, by the keys of a message file; paths are relative to `folder`.

    Raises ConfigurationError naming the option: `option_of` has those that are not called as their key is.
    """
    try:
        return MessageFile.model_validate(keys, context={"folder": folder})
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        faults = [explain_error(detail, MessageFile, {}, {}) for detail in details]
        names = [option_of.get(str(fault.keys[0]), str(fault.keys[0])) for fault in faults]
        words = [f"--{name}: {fault.message}" for name, fault in zip(names, faults, strict=True)]
        raise ConfigurationError("\n".join(words)) from None
