"""Builds the JSON Schema of a job file and the list of its keys from the models."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from connector.fields import SENT_FIELDS
from connector.jobs.key_types import find_model
from connector.jobs.models import Job
from connector.mail.message import Recipient
from connector.units import format_duration, parse_duration, parse_share, parse_size

_MODELS_WITH_SHORT_FORM = ("FieldRule", "PhoneForm", "EmailText", "AttachedFile", "RecipientColumns")
"""Models that have a short form, which is one text."""

_SHORT_FORM_SCHEMA = {"type": ["string", "number", "boolean"]}
_VARIABLE_SCHEMA = {"type": "string", "pattern": r"\$\{"}
_PERSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["email"],
    "properties": {"email": {"type": "string"}, "name": {"type": ["string", "null"]}},
}
_SCHEMA_BY_SCALAR_TYPE: dict[str, dict[str, Any]] = {
    # The reader reads each scalar as a text. So an editor must accept every type that YAML may see in the text.
    "string": {"type": ["string", "number", "boolean", "null"]},
    "integer": {"type": ["integer", "string"], "pattern": r"^\s*[0-9]+\s*$|\$\{"},
    "number": {"type": ["number", "string"], "pattern": r"^\s*[0-9.]+\s*$|\$\{"},
    "boolean": {"type": ["boolean", "integer", "string"], "pattern": r"^(?:[Tt]rue|[Ff]alse|[Yy]es|[Nn]o|[01])$|\$\{"},
}


def build_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12) as plain JSON values."""
    schema = Job.model_json_schema(by_alias=True)
    definition_by_name = schema["$defs"]
    rule_properties, subscriber_properties = (
        definition_by_name["FieldRule"]["properties"],
        definition_by_name["JobSubscriber"]["properties"],
    )
    rule_properties["format"] = {
        "anyOf": [{"type": "string"}, rule_properties["format"]],
        "description": rule_properties["format"]["description"],
    }
    subscriber_properties["fields"] = {
        "description": subscriber_properties["fields"]["description"],
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {
            field.name: {"$ref": "#/$defs/FieldRule", "description": field.valid_values_text} for field in SENT_FIELDS
        },
    }
    mail_properties = definition_by_name["Mail"]["properties"]
    for name in ("from", "to", "reply_to"):
        # A person is a text or a group of keys; `to` and `reply_to` also allow a list.
        if "$ref" not in mail_properties[name]:
            person_schema = {"anyOf": [{"type": "string"}, _PERSON_SCHEMA]}
            key_schema = (
                person_schema
                if name == "from"
                else {"anyOf": [*person_schema["anyOf"], {"type": "array", "items": person_schema}]}
            )
            mail_properties[name] = {"description": mail_properties[name]["description"], **key_schema}
    subscriber_properties["required"]["items"] = {"enum": [field.name for field in SENT_FIELDS]}
    permissive_schema: dict[str, Any] = _accept_texts(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **permissive_schema,
        "title": "A job of connector",
    }


def _accept_texts(node: Any) -> Any:
    """Return a copy of a part of the schema. The copy also accepts scalars as texts, `${NAME}`, and short forms."""
    if isinstance(node, list):
        return [_accept_texts(item) for item in node]
    if not isinstance(node, dict):
        return node
    # `default` and `enum` hold values and not schemas. But a key of a job may also have the name `default`.
    permissive_node = {
        key: value if key in ("default", "enum") and not isinstance(value, dict) else _accept_texts(value)
        for key, value in node.items()
    }
    annotations = {key: node[key] for key in ("description", "default") if key in node}
    if "enum" in node or "const" in node:
        return {"anyOf": [permissive_node, _VARIABLE_SCHEMA], **annotations}
    if str(node.get("$ref", "")).rpartition("/")[2] in _MODELS_WITH_SHORT_FORM:
        return {"anyOf": [_SHORT_FORM_SCHEMA, {"$ref": node["$ref"]}], **annotations}
    if isinstance(node.get("type"), str):
        permissive_node |= _SCHEMA_BY_SCALAR_TYPE.get(node["type"], {})
    return permissive_node


@dataclass(frozen=True, slots=True)
class JobKey:
    """One key of a job file. `key` is the dotted name (`<field>` stands for the name of a field). `type` includes the
    allowed values. `default` is "" if there is no default."""

    key: str
    is_required: bool
    type: str
    default: str
    description: str


def list_keys(model: type[BaseModel] = Job, prefix: str = "") -> list[JobKey]:
    """Return all keys of a job in the order of the models. A group comes before its keys."""
    job_keys = []
    for name, field_info in model.model_fields.items():
        key = f"{prefix}{field_info.alias or name}"
        description = field_info.description or ""
        job_keys.append(
            JobKey(key, field_info.is_required(), _describe_type(field_info), _format_default(field_info), description)
        )
        group = find_model(field_info.annotation)
        if group is not None:
            job_keys += list_keys(group, f"{key}.<field>." if name == "fields_" else f"{key}.")
    return job_keys


_TYPE_NAME_BY_PARSER = {parse_duration: "duration", parse_share: "share", parse_size: "size"}
"""The name of each type whose values have a unit. The key is the function that parses the values."""

_NAME_BY_TYPE: dict[object, str] = {
    bool: "`true` or `false`", int: "whole number", float: "number", str: "text", Path: "path",
    datetime: "time with zone", Recipient: "email address",
}  # fmt: skip


def _describe_type(field_info: FieldInfo) -> str:
    """Return the type of a key as a text, with the allowed values or the limits."""
    inner_type, metadata = _unwrap_annotation(field_info.annotation, list(field_info.metadata))
    type_names_with_unit = [
        _TYPE_NAME_BY_PARSER[annotation.func]
        for annotation in metadata
        if isinstance(annotation, BeforeValidator) and annotation.func in _TYPE_NAME_BY_PARSER
    ]
    origin = get_origin(inner_type)
    if type_names_with_unit:
        type_name = type_names_with_unit[0]
    elif origin is Literal:
        type_name = ", ".join(f"`{value}`" for value in get_args(inner_type))
    elif inner_type in _NAME_BY_TYPE:
        type_name = _NAME_BY_TYPE[inner_type]
    elif origin is UnionType or origin is Union:
        type_name = "path or URL"
    elif origin in (tuple, list):
        type_name = "list"
    elif origin is dict or (isinstance(inner_type, type) and issubclass(inner_type, BaseModel)):
        type_name = "keys"
    else:
        raise TypeError(f"a key of a job has a type that the reference cannot name: {inner_type}")
    limits_text = _describe_limits(metadata) if inner_type in (int, float) and not type_names_with_unit else ""
    # If the default is null, null means the same as a missing key, and is not shown.
    null_text = ", or `null`" if NoneType in get_args(field_info.annotation) and field_info.default is not None else ""
    return f"{type_name}{limits_text}{null_text}"


def _unwrap_annotation(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:
    """Return the type inside `Annotated[…]` and `… | None`, and the metadata of all these layers."""
    while True:
        arguments = get_args(annotation)
        if get_origin(annotation) is Annotated:
            annotation, metadata = arguments[0], [*metadata, *arguments[1:]]
        elif (
            NoneType in arguments
            and len(other_types := [argument for argument in arguments if argument is not NoneType]) == 1
        ):
            annotation = other_types[0]
        else:
            return annotation, metadata


def _describe_limits(metadata: Sequence[Any]) -> str:
    form_by_limit_name = {"ge": ", {:,} or more", "gt": ", more than {:,}", "le": ", at most {:,}"}
    return "".join(
        form.format(limit)
        for limit_name, form in form_by_limit_name.items()
        for annotation in metadata
        if (limit := getattr(annotation, limit_name, None)) is not None
    )


def _format_default(field_info: FieldInfo) -> str:
    """Return the default of a key in the form of a job file, or "" if there is no default."""
    default_value = None if field_info.is_required() or field_info.default_factory is not None else field_info.default
    if default_value is None or default_value == ():
        return ""
    parsers = {
        item.func
        for item in _unwrap_annotation(field_info.annotation, list(field_info.metadata))[1]
        if isinstance(item, BeforeValidator)
    }
    if parse_duration in parsers:
        return format_duration(default_value) if default_value else "0s"
    if parse_share in parsers:
        return f"{100 * default_value:g}%"
    if parse_size in parsers:
        return f"{default_value // 1_000_000}MB"
    return str(default_value).lower() if isinstance(default_value, bool) else str(default_value)
