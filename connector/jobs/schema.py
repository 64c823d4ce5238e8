"""The JSON Schema of a job file, and its keys as a list, both from the models."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from connector.fields import SENT
from connector.jobs.key_types import find_model
from connector.jobs.models import Job

_SHORT = ("FieldRule", "PhoneForm", "EmailText", "AttachedFile", "RecipientColumns")
"""Models that may be written as one text."""

_SHORT_FORM = {"type": ["string", "number", "boolean"]}
_FILLED_IN = {"type": "string", "pattern": r"\$\{"}
_PERSON: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["email"],
    "properties": {"email": {"type": "string"}, "name": {"type": ["string", "null"]}},
}
_SCALARS: dict[str, dict[str, Any]] = {
    # a scalar of a job file is the text that was written, whatever an editor takes it for
    "string": {"type": ["string", "number", "boolean", "null"]},
    "integer": {"type": ["integer", "string"], "pattern": r"^\s*[0-9]+\s*$|\$\{"},
    "number": {"type": ["number", "string"], "pattern": r"^\s*[0-9.]+\s*$|\$\{"},
    "boolean": {"type": ["boolean", "integer", "string"], "pattern": r"^(?:[Tt]rue|[Ff]alse|[Yy]es|[Nn]o|[01])$|\$\{"},
}


def build_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) as plain JSON values."""
    schema = Job.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    rule, subscriber = definitions["FieldRule"]["properties"], definitions["JobSubscriber"]["properties"]
    rule["format"] = {"anyOf": [{"type": "string"}, rule["format"]], "description": rule["format"]["description"]}
    subscriber["fields"] = {
        "description": subscriber["fields"]["description"],
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {field.name: {"$ref": "#/$defs/FieldRule", "description": field.rule} for field in SENT},
    }
    mail = definitions["Mail"]["properties"]
    for name in ("from", "to", "reply_to"):  # each as one text or by its keys, several also as a list
        if "$ref" not in mail[name]:
            person = {"anyOf": [{"type": "string"}, _PERSON]}
            shape = person if name == "from" else {"anyOf": [*person["anyOf"], {"type": "array", "items": person}]}
            mail[name] = {"description": mail[name]["description"], **shape}
    subscriber["required"]["items"] = {"enum": [field.name for field in SENT]}
    loosened: dict[str, Any] = _loosen(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **loosened, "title": "A job of connector"}


def _loosen(node: Any) -> Any:
    """The same with every scalar in all the ways it may be written: as text, by `${NAME}`, as the short form."""
    if isinstance(node, list):
        return [_loosen(each) for each in node]
    if not isinstance(node, dict):
        return node
    # A value of the job's is no schema, but a key of a job may be named `default`, too.
    loosened = {
        key: value if key in ("default", "enum") and not isinstance(value, dict) else _loosen(value)
        for key, value in node.items()
    }
    kept = {key: node[key] for key in ("description", "default") if key in node}
    if "enum" in node or "const" in node:
        return {"anyOf": [loosened, _FILLED_IN], **kept}
    if str(node.get("$ref", "")).rpartition("/")[2] in _SHORT:
        return {"anyOf": [_SHORT_FORM, {"$ref": node["$ref"]}], **kept}
    if isinstance(node.get("type"), str):
        loosened |= _SCALARS.get(node["type"], {})
    return loosened


@dataclass(frozen=True, slots=True)
class JobKey:
    """One key: dotted as in an error message (`<field>` stands for a field's name), and what it says."""

    key: str
    is_required: bool
    description: str


def list_keys(model: type[BaseModel] = Job, prefix: str = "") -> list[JobKey]:
    """Return all keys that a job may hold, in the order of the models; a group comes before the keys in it."""
    keys = []
    for name, info in model.model_fields.items():
        key = f"{prefix}{info.alias or name}"
        keys.append(JobKey(key, info.is_required(), info.description or ""))
        inner = find_model(info.annotation)
        if inner is not None:
            keys += list_keys(inner, f"{key}.<field>." if name == "fields_" else f"{key}.")
    return keys
