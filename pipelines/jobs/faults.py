"""What is wrong with a job, in words: the key, its line, what it must be and what it may have meant.

Values are shown only as the file wrote them, short, and never where a password or a token could stand.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from pipelines.jobs.document import JobFault, Keys, find_line

_SECRET = {"url", "to", "base_url", "authorization"}
_KEPT_OUT = "; the token is not written in a job: set CONNECTOR_TOKEN or CONNECTOR_TOKEN_FILE"
_SHOWN = 40  # characters of a value: enough to find it, and an error stays one line


def describe_faults(path: Path, faults: Sequence[JobFault]) -> str:
    """One message with all faults, each with line and dotted key, in the order of the file."""
    ordered = sorted(faults, key=lambda fault: fault.line or 0)
    lines = [_describe(fault) for fault in ordered]
    if len(lines) == 1:
        return f"{path}: {lines[0]}"
    return f"{path}: {len(lines)} faults\n" + "\n".join(f"  {line}" for line in lines)


def _describe(fault: JobFault) -> str:
    where = f"line {fault.line}: " if fault.line else ""
    key = show_keys(fault.keys)
    return f"{where}{key}: {fault.message}" if key else f"{where}{fault.message}"


def show_keys(keys: Keys) -> str:
    """`subscriber.fields.email`, `subscriber.required[0]`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return text.removeprefix(".")


def explain_error(
    error: ErrorDetails, model: type[BaseModel], written: Mapping[str, Any], lines: Mapping[Keys, int]
) -> JobFault:
    """A fault from one of pydantic's errors: `model` is what was validated, `written` the values before `${NAME}`."""
    keys: Keys = tuple(key for key in error["loc"] if key != "[key]")
    return JobFault(keys, find_line(lines, keys), _explain(error, keys, model, written))


def _explain(error: ErrorDetails, keys: Keys, model: type[BaseModel], written: Mapping[str, Any]) -> str:
    """Our words for the errors that a job can bring about; any other keeps pydantic's."""
    context = error.get("ctx", {})
    shown = _show_value(keys, written)
    match error["type"]:
        case "value_error":
            return str(context["error"])
        case "extra_forbidden":
            return _explain_unknown(keys, model)
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
            return f"must hold keys{_list_keys(keys, model)}{shown}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return f"{error['msg'].replace('Input should', 'must')}{shown}"
        case _:
            return error["msg"]


def _explain_unknown(keys: Keys, model: type[BaseModel]) -> str:
    allowed = find_allowed(model, keys[:-1])
    meant = get_close_matches(str(keys[-1]), allowed, n=1)
    hint = f"; did you mean {meant[0]}?" if meant else "."
    token = _KEPT_OUT if "token" in str(keys[-1]).casefold() else ""
    return f"there is no such key{token}{hint} Allowed here: {', '.join(allowed)}"


def _list_keys(keys: Keys, model: type[BaseModel]) -> str:
    allowed = find_allowed(model, keys)
    return f" ({', '.join(allowed)})" if allowed else ""


def find_allowed(model: type[BaseModel], keys: Keys) -> list[str]:
    """The keys that a job allows under `keys`, as they are written in a job file; none where it holds no keys."""
    found: type[BaseModel] | None = model
    for key in keys:
        if found is None:
            return []
        named = {info.alias or name: info.annotation for name, info in found.model_fields.items()}
        # A key that is no field of a model is one of a mapping's (`fields: {email: …}`), whose model came with it.
        found = find_model(named[str(key)]) if key in named else found
    return [info.alias or name for name, info in found.model_fields.items()] if found else []


def find_model(annotation: Any) -> type[BaseModel] | None:
    """The model within `Model | None`, `Annotated[Model, …]` or `dict[str, Model]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := find_model(part))), None)


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
