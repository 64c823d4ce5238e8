"""A YAML file and the environment read into a job, or all that is wrong with them in one message.

Scalars stay the text that was written (`no` is a country, `007` a code): a key's own model gives it a type. Values
are shown only as the file wrote them, short, and never where a password or a token could stand.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from connector.errors import ConfigurationError
from connector.jobs.key_types import find_model
from connector.jobs.mail_models import Notify
from connector.jobs.models import Job
from connector.jobs.removed import explain_removed_key

Keys = tuple[str | int, ...]
"""Where a value stands in a document: its keys from the outermost in, a list's items by number from 0."""

_NULL = "tag:yaml.org,2002:null"
_STANDARD = "tag:yaml.org,2002:"

_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<name>[^}]*)(?P<end>\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SECRET = {"url", "to", "base_url", "authorization"}
_KEPT_OUT = "; the token is not written in a job: set CONNECTOR_TOKEN or CONNECTOR_TOKEN_FILE"
_SHOWN = 40  # characters of a value: enough to find it, and an error stays one line

Model = TypeVar("Model", bound=BaseModel)

_LARGEST = 1 << 20  # bytes; a job of every key is 2 kB

_DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".xlsx", ".xls", ".parquet", ".jsonl", ".gz", ".zip", ".zst")


@dataclass(frozen=True, slots=True)
class JobFault:
    """One thing wrong with a job file: where (`line` from 1, None when unknown), and what, for a person."""

    keys: Keys
    line: int | None
    message: str


@dataclass(frozen=True, slots=True)
class Document:
    """`values`: dicts, lists, text and None; `lines`: the line of every key and item; `faults`: what cannot be used."""

    values: dict[str, Any] = field(default_factory=dict, repr=False)  # may hold a URL with its password
    lines: dict[Keys, int] = field(default_factory=dict, repr=False)
    faults: tuple[JobFault, ...] = ()


def find_line(lines: Mapping[Keys, int], keys: Keys) -> int | None:
    """Return the line of `keys` or, if they are not in the file, of the nearest keys around them."""
    return next((lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines), None)


def parse_document(text: str) -> Document:
    """Read one YAML document whose top is a group of keys; never raises, its faults are in the answer."""
    try:
        # An alias could stand for itself or multiply without end, and no job of forty lines needs one.
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) and event.start_mark is not None:
                line = event.start_mark.line + 1
                return Document(faults=(JobFault((), line, "aliases (*name) are not read: write it out"),))
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        return Document(faults=(_translate_error(error, text),))
    except RecursionError:
        return Document(faults=(JobFault((), None, "keys are nested too deeply"),))
    if root is None:
        return Document(faults=(JobFault((), None, "the file is empty"),))
    if not isinstance(root, yaml.MappingNode):
        return Document(faults=(JobFault((), 1, "the file must hold keys, such as `job: my-job`"),))
    lines: dict[Keys, int] = {}
    faults: list[JobFault] = []
    values = _read_mapping(root, (), lines, faults)
    return Document(values, lines, tuple(faults))


def _translate_error(error: yaml.YAMLError, text: str) -> JobFault:
    """The error's own words and line, without the excerpt of the file that PyYAML adds: it may hold a password."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return JobFault((), None, "this is no YAML: it holds a character that YAML does not allow")
    words = " ".join(part for part in (error.context, error.problem) if part)
    lines = text.splitlines()
    nearby = "".join(lines[max(mark.line - 1, 0) : mark.line + 1])
    hint = '; a ${NAME} inside { } or [ ] stands in quotes: "${NAME}"' if "${" in nearby else ""
    return JobFault((), mark.line + 1, f"this is no YAML: {words}{hint}")


def _read_node(node: yaml.Node, keys: Keys, lines: dict[Keys, int], faults: list[JobFault]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, keys, lines, faults)
    if not node.tag.startswith(_STANDARD):
        faults.append(JobFault(keys, node.start_mark.line + 1, f"the tag {node.tag} is not known"))
    if isinstance(node, yaml.SequenceNode):
        items = []
        for number, item in enumerate(node.value):
            lines[*keys, number] = item.start_mark.line + 1
            items.append(_read_node(item, (*keys, number), lines, faults))
        return items
    return None if node.tag == _NULL else node.value


def _read_mapping(node: yaml.MappingNode, keys: Keys, lines: dict[Keys, int], faults: list[JobFault]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in node.value:
        line, name = key.start_mark.line + 1, key.value if isinstance(key, yaml.ScalarNode) else None
        if name is None:
            faults.append(JobFault(keys, line, "a key must be one word or text"))
        elif name in values:
            faults.append(JobFault((*keys, name), line, f"stands twice: first in line {lines[*keys, name]}"))
        else:
            lines[*keys, name] = line
            values[name] = _read_node(value, (*keys, name), lines, faults)
    return values


def fill_in(document: Document, environ: Mapping[str, str]) -> Document:
    """Return the document with each `${NAME}` of its values replaced; a name that is not set is a fault of the answer.

    What is filled in is a value and nothing else: it cannot bring keys along, nor another `${NAME}`.
    """
    faults = list(document.faults)

    def fill(value: Any, keys: Keys) -> Any:
        if isinstance(value, dict):
            return {name: fill(item, (*keys, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [fill(item, (*keys, number)) for number, item in enumerate(value)]
        if isinstance(value, str):
            text, problems = _fill_text(value, environ)
            faults.extend(JobFault(keys, find_line(document.lines, keys), problem) for problem in problems)
            return text
        return value

    values = {name: fill(value, (name,)) for name, value in document.values.items()}
    return Document(values, document.lines, tuple(faults))


def _fill_text(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    problems: list[str] = []

    def replace(found: re.Match[str]) -> str:
        name = found["name"]
        if found["escaped"]:
            return found["escaped"]
        if not found["end"] or not _NAME.fullmatch(name):
            problems.append(
                "`${` begins the name of an environment variable, as in ${NAME}; for the text itself write $${"
            )
        elif name not in environ:
            problems.append(f"${{{name}}} is not set in the environment; set {name} and run again")
        else:
            return environ[name]
        return ""

    return _REFERENCE.sub(replace, text), problems


def _explain(error: ErrorDetails, keys: Keys, model: type[BaseModel], written: Mapping[str, Any]) -> str:
    """Return the words for one of pydantic's errors: `model` is what was validated, `written` the values before
    `${NAME}`. Rare errors keep pydantic's own words."""
    context = error.get("ctx", {})
    shown = _show_value(keys, written)
    match error["type"]:
        case "value_error":
            return str(context["error"])
        case "extra_forbidden":
            if (replacement := explain_removed_key(keys)) is not None:
                return f"this key was removed. {replacement}"
            allowed = find_allowed(model, keys[:-1])
            meant = get_close_matches(str(keys[-1]), allowed, n=1)
            hint = f"; did you mean {meant[0]}?" if meant else "."
            token = _KEPT_OUT if "token" in str(keys[-1]).casefold() else ""
            return f"there is no such key{token}{hint} Allowed here: {', '.join(allowed)}"
        case "missing":
            return "is missing"
        case "literal_error":
            return f"must be {context['expected'].replace(chr(39), '')}{shown}"
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return f"must be a whole number{shown}"
        case "bool_type" | "bool_parsing":
            return f"must be true or false{shown}"
        case "string_type" | "string_too_short":
            return f"must be text{shown}"
        case "tuple_type" | "list_type":
            return f"must be a list, such as [email]{shown}"
        case "model_type" | "dict_type" | "model_attributes_type":
            listed = f" ({', '.join(allowed)})" if (allowed := find_allowed(model, keys)) else ""
            return f"must hold keys{listed}{shown}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return f"{error['msg'].replace('Input should', 'must')}{shown}"
        case _:
            return error["msg"]


def find_allowed(model: type[BaseModel], keys: Keys) -> list[str]:
    """Return the keys that a job allows under `keys`, as they are written in a job file; none where it holds no
    keys."""
    found: type[BaseModel] | None = model
    for key in keys:
        if found is None:
            return []
        named = {info.alias or name: info.annotation for name, info in found.model_fields.items()}
        # A key that is no field of a model is one of a mapping's (`fields: {email: …}`), whose model came with it.
        found = find_model(named[str(key)]) if key in named else found
    return [info.alias or name for name, info in found.model_fields.items()] if found else []


def _show_value(keys: Keys, written: Mapping[str, Any]) -> str:
    value: Any = written
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return ""  # `field: column` stands for {column: column}: what is meant has been named already
    if value is None:
        return "; it is empty"
    if isinstance(value, dict | list):
        return f", not {'keys' if isinstance(value, dict) else 'a list'}"
    if keys and (keys[-1] in _SECRET or "://" in str(value)):
        return ""
    return f", not {value[:_SHOWN]!r}" if isinstance(value, str) else f", not {value}"


def load_job(path: Path, environ: Mapping[str, str]) -> Job:
    """Return the job of the file at `path` (architecture 8), `${NAME}` taken from `environ`, paths made absolute.

    Raises ConfigurationError with every fault found, each with its key and line; no value of the environment and no
    password of a URL is part of the message.
    """
    if path.suffix.lower() in _DATA_SUFFIXES:
        raise ConfigurationError(
            f"{path} holds rows and is no job file (.yaml); did you mean: connector import {path} --base-id N"
        )
    return load_model(path, Job, environ, "job file")


def read_job_head(path: Path, environ: Mapping[str, str]) -> tuple[str, Notify | None]:
    """Return the name of a job and its `notify` section, also of a job file that cannot be loaded: what cannot be read
    is the name of the file, and None."""
    try:
        values = fill_in(parse_document(read_text(path, "job file")), environ).values
    except ConfigurationError:
        return path.stem, None
    name, notify = values.get("job"), values.get("notify")
    found = validate_values(Notify, notify, notify, {}, None)[0] if isinstance(notify, dict) else None
    return name if isinstance(name, str) and name else path.stem, found


def load_model(path: Path, model: type[Model], environ: Mapping[str, str], what: str) -> Model:
    """Return what the file at `path` says, as `model`; `what` such a file is called in errors. As `load_job` in all
    else."""
    written = parse_document(read_text(path, what))
    filled = fill_in(written, environ) if written.values else written
    faults = list(filled.faults)
    value, invalid = validate_values(model, filled.values, written.values, written.lines, path.absolute().parent)
    spoilt = {fault.keys for fault in faults}
    if written.values:  # else there is nothing to be wrong about but what has been said
        faults += [fault for fault in invalid if fault.keys not in spoilt]
    if faults or value is None:
        shown = []
        for fault in sorted(faults, key=lambda fault: fault.line or 0):
            where = f"line {fault.line}: " if fault.line else ""
            key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.keys).removeprefix(".")
            shown.append(f"{where}{key}: {fault.message}" if key else f"{where}{fault.message}")
        if len(shown) > 1:
            raise ConfigurationError("\n  ".join([f"{path}: {len(shown)} faults", *shown]))
        raise ConfigurationError(f"{path}: {shown[0]}")
    return value


def read_text(path: Path, what: str, most: int = _LARGEST) -> str:
    """Return a file of UTF-8 text; `what` names the kind of file in errors.

    Raises ConfigurationError if the file cannot be read, or has more than `most` bytes.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such {what}; check the path") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path}: this is a folder; name the {what} in it") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: the {what} cannot be read: {error.strerror}") from None
    if len(content) > most:
        raise ConfigurationError(f"{path}: the file is too large for a {what}; is it the right file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: a {what} is UTF-8 text; byte {error.start + 1} is not") from None


def validate_values(
    model: type[Model],
    values: Mapping[str, Any],
    written: Mapping[str, Any],
    lines: Mapping[Keys, int],
    folder: Path | None,
) -> tuple[Model | None, list[JobFault]]:
    """Return the model and its faults; without a `folder` the values come from arguments and not from a file."""
    try:
        return model.model_validate(values, context={"folder": folder} if folder is not None else None), []
    except ValidationError as error:
        # Inputs, which may be secrets, stay out; `written` shows a ${NAME} by its name.
        details = error.errors(include_url=False, include_input=False)
        faults = []
        for detail in details:
            keys: Keys = tuple(key for key in detail["loc"] if key != "[key]")
            faults.append(JobFault(keys, find_line(lines, keys), _explain(detail, keys, model, written)))
        return None, faults
