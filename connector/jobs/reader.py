"""Reads a YAML file and the environment into a job, or reports all faults in one message.

Each scalar is read as a text, because `no` may be a country and `007` a code. The model of the key converts the text.
A message shows at most the first characters of a value, and never a value that could contain a password or a token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

import connector.settings
from connector.errors import ConfigurationError
from connector.jobs.key_types import find_model
from connector.jobs.mail_models import NotificationSettings
from connector.jobs.models import Job
from connector.settings import Settings

if TYPE_CHECKING:
    from connector.service.settings import Token

KeyPath = tuple[str | int, ...]
"""The path of a value in a document. The path starts with the outermost key. For an item of a list, the path has the
index of the item (from 0)."""

_NULL_TAG = "tag:yaml.org,2002:null"
_STANDARD_TAG_PREFIX = "tag:yaml.org,2002:"

_REFERENCE_PATTERN = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<name>[^}]*)(?P<end>\}?)")
_VARIABLE_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SECRET_KEYS = {"url", "to", "base_url", "authorization"}
_CREDENTIAL_HINT = "; do not write the token into a job: set CONNECTOR_TOKEN or CONNECTOR_TOKEN_FILE"
_MAX_SHOWN_LENGTH = 40  # enough to find the value in the file; the error stays on one line

Model = TypeVar("Model", bound=BaseModel)

_MAX_JOB_BYTES = 1 << 20  # a job with every key has 2 kB

_DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".xlsx", ".xls", ".parquet", ".jsonl", ".gz", ".zip", ".zst")


@dataclass(frozen=True, slots=True)
class JobFault:
    """One fault of a job file: the path of the value, the line (from 1, or None if unknown), and a message for a
    person."""

    key_path: KeyPath
    line: int | None
    message: str


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file. `values` are dicts, lists, texts and None. `line_by_key_path` has the line of every key and item.
    `faults` has all faults."""

    # The repr does not show the values, because a value may be a URL with a password.
    values: dict[str, Any] = field(default_factory=dict, repr=False)
    line_by_key_path: dict[KeyPath, int] = field(default_factory=dict, repr=False)
    faults: tuple[JobFault, ...] = ()


def find_line(line_by_key_path: Mapping[KeyPath, int], key_path: KeyPath) -> int | None:
    """Return the line of `key_path`. If the file does not have this path, return the line of the nearest group that
    would contain the path."""
    return next(
        (line_by_key_path[key_path[:end]] for end in range(len(key_path), 0, -1) if key_path[:end] in line_by_key_path),
        None,
    )


def parse_document(text: str) -> Document:
    """Parse one YAML document whose top level is a group of keys. Faults are returned and not raised."""
    try:
        # Aliases are refused, because an alias can contain itself or multiply the document.
        # A job does not need aliases.
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) and event.start_mark is not None:
                line = event.start_mark.line + 1
                return Document(faults=(JobFault((), line, "aliases (*name) are not allowed: write the value out"),))
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        return Document(faults=(_translate_error(error, text),))
    except RecursionError:
        return Document(faults=(JobFault((), None, "keys are nested too deeply"),))
    if root is None:
        return Document(faults=(JobFault((), None, "the file is empty"),))
    if not isinstance(root, yaml.MappingNode):
        return Document(faults=(JobFault((), 1, "the file must contain keys, such as `job: my-job`"),))
    line_by_key_path: dict[KeyPath, int] = {}
    faults: list[JobFault] = []
    values = _read_mapping(root, (), line_by_key_path, faults)
    return Document(values, line_by_key_path, tuple(faults))


def _translate_error(error: yaml.YAMLError, text: str) -> JobFault:
    """Return the message and the line of a YAML error. PyYAML's excerpt of the file is left out, because it may contain
    a password."""
    error_mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if not isinstance(error, yaml.MarkedYAMLError) or error_mark is None:
        return JobFault((), None, "this is not YAML: the file has a character that YAML does not allow")
    problem_text = " ".join(part for part in (error.context, error.problem) if part)
    lines = text.splitlines()
    nearby_text = "".join(lines[max(error_mark.line - 1, 0) : error_mark.line + 1])
    hint = '; put a ${NAME} inside { } or [ ] into quotes: "${NAME}"' if "${" in nearby_text else ""
    return JobFault((), error_mark.line + 1, f"this is not YAML: {problem_text}{hint}")


def _read_node(node: yaml.Node, key_path: KeyPath, line_by_key_path: dict[KeyPath, int], faults: list[JobFault]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, key_path, line_by_key_path, faults)
    if not node.tag.startswith(_STANDARD_TAG_PREFIX):
        faults.append(JobFault(key_path, node.start_mark.line + 1, f"the tag {node.tag} is not known"))
    if isinstance(node, yaml.SequenceNode):
        items = []
        for index, item in enumerate(node.value):
            line_by_key_path[*key_path, index] = item.start_mark.line + 1
            items.append(_read_node(item, (*key_path, index), line_by_key_path, faults))
        return items
    return None if node.tag == _NULL_TAG else node.value


def _read_mapping(
    node: yaml.MappingNode, key_path: KeyPath, line_by_key_path: dict[KeyPath, int], faults: list[JobFault]
) -> dict[str, Any]:
    value_by_key: dict[str, Any] = {}
    for key, value in node.value:
        line, name = key.start_mark.line + 1, key.value if isinstance(key, yaml.ScalarNode) else None
        if name is None:
            faults.append(JobFault(key_path, line, "a key must be a single text"))
        elif name in value_by_key:
            faults.append(
                JobFault((*key_path, name), line, f"is set twice: first in line {line_by_key_path[*key_path, name]}")
            )
        else:
            line_by_key_path[*key_path, name] = line
            value_by_key[name] = _read_node(value, (*key_path, name), line_by_key_path, faults)
    return value_by_key


def replace_references(document: Document, environ: Mapping[str, str]) -> Document:
    """Return the document with each `${NAME}` in a value replaced. A name that is not set is a fault.

    A replacement is only a text. YAML keys or another `${NAME}` in the replacement have no effect.
    """
    faults = list(document.faults)

    def replace_references_in_value(value: Any, key_path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {name: replace_references_in_value(item, (*key_path, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [replace_references_in_value(item, (*key_path, index)) for index, item in enumerate(value)]
        if isinstance(value, str):
            text, problem_messages = _replace_references_in_text(value, environ)
            faults.extend(
                JobFault(key_path, find_line(document.line_by_key_path, key_path), problem)
                for problem in problem_messages
            )
            return text
        return value

    values = {name: replace_references_in_value(value, (name,)) for name, value in document.values.items()}
    return Document(values, document.line_by_key_path, tuple(faults))


def _replace_references_in_text(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    problem_messages: list[str] = []

    def replace_reference(reference: re.Match[str]) -> str:
        name = reference["name"]
        if reference["escaped"]:
            return reference["escaped"]
        if not reference["end"] or not _VARIABLE_NAME_PATTERN.fullmatch(name):
            problem_messages.append(
                "`${` starts the name of an environment variable, as in ${NAME}; write $${ for the text ${"
            )
        elif name not in environ:
            problem_messages.append(f"${{{name}}} is not set in the environment; set {name} and run again")
        else:
            return environ[name]
        return ""

    return _REFERENCE_PATTERN.sub(replace_reference, text), problem_messages


def _explain_error(
    error: ErrorDetails, key_path: KeyPath, model: type[BaseModel], written_values: Mapping[str, Any]
) -> str:
    """Return the message for an error of pydantic. `model` is the validated model. `written_values` has the values
    before `${NAME}` was replaced. For a rare error, return pydantic's message."""
    context = error.get("ctx", {})
    shown_value = _format_value(key_path, written_values)
    match error["type"]:
        case "value_error":
            return str(context["error"])
        case "extra_forbidden":
            allowed_keys = find_allowed_keys(model, key_path[:-1])
            similar_names = get_close_matches(str(key_path[-1]), allowed_keys, n=1)
            hint = f"; did you mean {similar_names[0]}?" if similar_names else "."
            token_hint = _CREDENTIAL_HINT if "token" in str(key_path[-1]).casefold() else ""
            return f"there is no such key{token_hint}{hint} Allowed here: {', '.join(allowed_keys)}"
        case "missing":
            return "is missing"
        case "literal_error":
            return f"must be {context['expected'].replace(chr(39), '`')}{shown_value}"
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return f"must be a whole number{shown_value}"
        case "bool_type" | "bool_parsing":
            return f"must be true or false{shown_value}"
        case "string_too_short":
            return "must not be empty"
        case "string_type":
            return f"must be text{shown_value}"
        case "tuple_type" | "list_type":
            return f"must be a list in brackets, such as [a, b]{shown_value}"
        case "model_type" | "dict_type" | "model_attributes_type":
            keys_text = f" ({', '.join(allowed_keys)})" if (allowed_keys := find_allowed_keys(model, key_path)) else ""
            return f"must contain keys{keys_text}{shown_value}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return f"{error['msg'].replace('Input should', 'must')}{shown_value}"
        case _:
            return error["msg"]


def find_allowed_keys(model: type[BaseModel], key_path: KeyPath) -> list[str]:
    """Return the keys that a job file allows under `key_path`. Return no keys if `key_path` leads to a single value."""
    group_model: type[BaseModel] | None = model
    for key in key_path:
        if group_model is None:
            return []
        annotations = {
            field_info.alias or name: field_info.annotation for name, field_info in group_model.model_fields.items()
        }
        # A mapping, such as `fields: {email: …}`, allows any key, and `group_model` already describes the values.
        group_model = find_model(annotations[str(key)]) if key in annotations else group_model
    return [field_info.alias or name for name, field_info in group_model.model_fields.items()] if group_model else []


def _format_value(key_path: KeyPath, written_values: Mapping[str, Any]) -> str:
    written_value: Any = written_values
    for key in key_path:
        try:
            written_value = written_value[key]
        except (KeyError, IndexError, TypeError):
            return ""  # the file has a short form, such as `field: column`, and `key_path` is the path of the long form
    if written_value is None:
        return "; this key is empty"
    if isinstance(written_value, dict | list):
        return f", not {'keys' if isinstance(written_value, dict) else 'a list'}"
    if key_path and (key_path[-1] in _SECRET_KEYS or "://" in str(written_value)):
        return ""
    return (
        f", not {written_value[:_MAX_SHOWN_LENGTH]!r}" if isinstance(written_value, str) else f", not {written_value}"
    )


def load_job(path: Path, environ: Mapping[str, str]) -> Job:
    """Return the job of the file at `path` (architecture 8), with `${NAME}` from `environ` and absolute paths.

    Raises ConfigurationError. The message has every fault with its key and line. The message shows no value of the
    environment and no password of a URL.
    """
    if path.suffix.lower() in _DATA_SUFFIXES:
        raise ConfigurationError(
            f"{path} holds rows and is not a job file (.yaml); did you mean: connector import {path} --base-id N"
        )
    return load_model(path, Job, environ, "job file").set_path(path)


def read_job_alert_keys(path: Path, environ: Mapping[str, str]) -> tuple[str, NotificationSettings | None]:
    """Return the name and the `notify` section of a job, even if the job file cannot be loaded. If the name cannot be
    read, return the name of the file instead. If `notify` cannot be read, return None instead."""
    try:
        values = replace_references(parse_document(read_text(path, "job file")), environ).values
    except ConfigurationError:
        return path.stem, None
    job_name, notify = values.get("job"), values.get("notify")
    notification_settings = (
        validate_values(NotificationSettings, notify, notify, {}, None)[0] if isinstance(notify, dict) else None
    )
    return job_name if isinstance(job_name, str) and job_name else path.stem, notification_settings


def load_model(path: Path, model: type[Model], environ: Mapping[str, str], file_kind: str) -> Model:
    """Return the file at `path` as a `model`. `file_kind` names the kind of file in errors. Raises the errors of
    `load_job`."""
    document = parse_document(read_text(path, file_kind))
    resolved_document = replace_references(document, environ) if document.values else document
    faults = list(resolved_document.faults)
    validated_model, model_faults = validate_values(
        model, resolved_document.values, document.values, document.line_by_key_path, path.absolute().parent
    )
    faulty_key_paths = {fault.key_path for fault in faults}
    if document.values:  # if there are no values, the faults of parsing are enough
        faults += [fault for fault in model_faults if fault.key_path not in faulty_key_paths]
    if faults or validated_model is None:
        fault_messages = []
        for fault in sorted(faults, key=lambda fault: fault.line or 0):
            line_text = f"line {fault.line}: " if fault.line else ""
            key = "".join(
                f"[{key_part}]" if isinstance(key_part, int) else f".{key_part}" for key_part in fault.key_path
            ).removeprefix(".")
            fault_messages.append(f"{line_text}{key}: {fault.message}" if key else f"{line_text}{fault.message}")
        if len(fault_messages) > 1:
            raise ConfigurationError("\n  ".join([f"{path}: {len(fault_messages)} faults", *fault_messages]))
        raise ConfigurationError(f"{path}: {fault_messages[0]}")
    return validated_model


def read_text(path: Path, file_kind: str, max_bytes: int = _MAX_JOB_BYTES) -> str:
    """Return the text of a UTF-8 file. `file_kind` names the kind of file in errors.

    Raises ConfigurationError if the file cannot be read, or has more than `max_bytes` bytes.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such {file_kind}; check the path") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path}: this is a folder; name a {file_kind}") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: the {file_kind} cannot be read: {error.strerror}") from None
    if len(content) > max_bytes:
        raise ConfigurationError(f"{path}: the file is too large for a {file_kind}; name the right file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path}: this {file_kind} is not UTF-8 text (byte {error.start + 1}); save the file as UTF-8"
        ) from None


def validate_values(
    model: type[Model],
    values: Mapping[str, Any],
    written_values: Mapping[str, Any],
    line_by_key_path: Mapping[KeyPath, int],
    folder: Path | None,
) -> tuple[Model | None, list[JobFault]]:
    """Return the model (None if it has faults) and the faults. Relative paths start at `folder`, or at the current
    folder if `folder` is None."""
    try:
        return model.model_validate(values, context={"folder": folder} if folder is not None else None), []
    except ValidationError as error:
        # Errors must not show inputs, which may be secrets. `written_values` still has ${NAME} instead of the secret.
        faults = []
        for detail in error.errors(include_url=False, include_input=False):
            key_path: KeyPath = tuple(key for key in detail["loc"] if key != "[key]")
            message = _explain_error(detail, key_path, model, written_values)
            faults.append(JobFault(key_path, find_line(line_by_key_path, key_path), message))
        return None, faults


# The settings of a job


def read_settings(
    environ: Mapping[str, str],
    job: Job | None,
    *,
    token: Token | None = None,
    time_limit_s: float | None = None,
    writes_state: bool = True,
    service: Mapping[str, Any] = MappingProxyType({}),
) -> Settings:
    """Return the settings of a run, with or without a job. `time_limit_s` and `service` override the job. `service` has
    the keys of the job's `service` section.

    Raises the errors of `connector.settings.read_settings`.
    """
    setting_values: dict[str, Any] = {}
    if job is not None:
        setting_values = {
            **dict(job.service),
            "may_create_ledger": job.ledger == "may_be_new",
            "retention_s": job.retention_s,
        }
        time_limit_s = job.time_limit_s if time_limit_s is None else time_limit_s
    setting_values |= service
    return connector.settings.read_settings(
        environ, **setting_values, token=token, time_limit_s=time_limit_s, writes_state=writes_state
    )
