"""The rules for a Subscriber in a create request (service-api.md 2.1): types, allowed values, defaults and normal
forms.

The rules do not depend on stored subscribers. A message has the full name of the field that breaks a rule.
"""

import re
from datetime import date
from typing import Annotated, Any, Literal, cast
from uuid import NAMESPACE_OID, uuid5

import orjson
import pycountry
from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # before Python 3.12 pydantic accepts only this TypedDict

from connector.sandbox.switches import SandboxSettings

_COUNTRY_CODES = frozenset(country.alpha_2 for country in pycountry.countries)  # ISO 3166-1
_DATE_PATTERN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FORBIDDEN_DOMAIN_CHARACTERS = frozenset(' <>,;:"()')
_LARGEST_ID = 2**53 - 1  # some programs round a larger number in JSON


class RejectedError(Exception):
    """The error of a request that breaks a rule. If `status` is None, the answer has the status of the switch
    `error_status`."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def build_rejection(error: ValidationError) -> RejectedError:
    """Return the rejection for a validation error of pydantic. The message names the first field that breaks a rule."""
    first_error = error.errors(include_url=False, include_context=False)[0]
    if first_error["type"] == "json_invalid":
        return RejectedError(f"The body is not JSON: {first_error['msg']}", 400)
    field_path = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in first_error["loc"]
    ).removeprefix(".")
    message = first_error["msg"].removeprefix("Value error, ")
    return RejectedError(f"{field_path or 'The body'}: {message}")


def is_address(text: str) -> bool:
    """Return whether the text has the form of an email address: a local part, an @, and a domain."""
    local_part, _, domain = text.rpartition("@")
    return bool(local_part and domain) and text.isprintable() and _FORBIDDEN_DOMAIN_CHARACTERS.isdisjoint(domain)


# The fields of a subscriber


def _check_email(text: str) -> str:
    if text and not is_address(text.strip()):
        raise ValueError(f"this is not an email address: {text!r}")
    return text


def _check_country(text: str) -> str:
    if text and text not in _COUNTRY_CODES:
        raise ValueError(f"this is not a code of ISO 3166-1 alpha-2: {text!r}")
    return text


def _check_birthday(text: str) -> str:
    if text and not _DATE_PATTERN.fullmatch(text):
        raise ValueError(f"this is not a date YYYY-MM-DD: {text!r}")
    if text:
        date.fromisoformat(text)  # raises ValueError for 2026-02-30
    return text


_TextOrNull = Annotated[StrictStr | None, AfterValidator(lambda text: text or "")]


class _Base(TypedDict, total=False):
    Id: Annotated[StrictInt, Field(ge=0, le=_LARGEST_ID)] | None
    Name: StrictStr | None


class _Address(TypedDict, total=False):
    Country: Annotated[StrictStr, AfterValidator(_check_country)]
    City: StrictStr
    State: _TextOrNull
    Zip: Annotated[StrictInt, AfterValidator(str)]
    Line1: StrictStr
    Line2: StrictStr
    Line3: _TextOrNull


class _Subscriber(TypedDict, total=False):
    """The fields of a subscriber, in the order in which the service shows them."""

    Base: _Base
    IsActive: StrictBool
    Email: Annotated[StrictStr, AfterValidator(_check_email)]
    FirstName: StrictStr
    LastName: StrictStr
    Gender: Literal["", "male", "female"]
    Phone: StrictStr
    Tags: list[StrictStr]
    ClientUserId: StrictStr
    CustomField1: StrictStr
    CustomField2: StrictStr
    CustomField3: StrictStr
    Address: _Address
    Birthday: Annotated[StrictStr, AfterValidator(_check_birthday)]


class _CreateBody(TypedDict):
    Subscriber: _Subscriber


# A body becomes dicts and not objects: reading a create takes only 5 µs, and a missing field stays missing.
_CREATE_BODY_ADAPTER = TypeAdapter(_CreateBody)
_FIELD_NAMES = tuple(name for name in _Subscriber.__annotations__ if name != "Base")


def parse_create(body: bytes, settings: SandboxSettings) -> tuple[int | None, str | None, dict[str, Any]]:
    """Return the Id and the Name of the base that a create names (one of the two is None), and the normalised fields. A
    null State or Line3 becomes "", and Zip becomes a text. Raise RejectedError for the first rule that the create
    breaks."""
    try:
        root = _CREATE_BODY_ADAPTER.validate_json(body, extra=settings.extra_fields_policy)
    except ValidationError as error:
        raise build_rejection(error) from None
    subscriber_values = cast("dict[str, Any]", root["Subscriber"])
    base = subscriber_values.pop("Base", {})
    if not base.get("Id") and not base.get("Name"):  # null, 0 and "" count as missing
        raise RejectedError("Either Subscriber.Base.Id or Subscriber.Base.Name must be given")
    for name in settings.required:  # true and false both count as values
        outer_name, _, inner_name = name.partition(".")
        field_value = (
            subscriber_values.get(outer_name, {}).get(inner_name) if inner_name else subscriber_values.get(outer_name)
        )
        if field_value is None or field_value in ("", []):
            raise RejectedError(f"Subscriber.{name} is required")
    if base.get("Id"):  # if both have a value, the Id has precedence
        return base["Id"], None, subscriber_values
    return None, base["Name"], subscriber_values


def alter_values(subscriber_values: dict[str, Any], settings: SandboxSettings) -> None:
    """Change fields in place, like a service that stores other values than it gets (the switches `alter_...`)."""
    for name in settings.alter_fields:
        outer_name, _, inner_name = name.partition(".")
        parent, key = (
            (subscriber_values.get(outer_name, {}), inner_name) if inner_name else (subscriber_values, outer_name)
        )
        if key in parent:
            parent[key] = parent[key].upper()
    if settings.alter_identity and subscriber_values.get("Email"):
        local_part, _, domain = subscriber_values["Email"].rpartition("@")
        subscriber_values["Email"] = f"{local_part.partition('+')[0] or local_part}@{domain}"


def fill_defaults(subscriber_values: dict[str, Any], absent_field_style: str) -> dict[str, Any]:
    """Return all fields of a subscriber that the service shows. IsActive and Gender have defaults (service-api.md 2.1).
    Other absent fields are left out, null or empty. `absent_field_style` is the value of the switch `absent_fields`."""
    subscriber = {"IsActive": False, "Gender": ""} | subscriber_values
    if absent_field_style != "omit":
        is_absent_field_null = absent_field_style == "null"
        empty_fields = {name: None if is_absent_field_null else ([] if name == "Tags" else "") for name in _FIELD_NAMES}
        address = dict.fromkeys(_Address.__annotations__, None if is_absent_field_null else "") | subscriber_values.get(
            "Address", {}
        )
        subscriber = empty_fields | subscriber | {"Address": address}
    return {name: subscriber[name] for name in _FIELD_NAMES if name in subscriber}


def format_row(subscriber_json: bytes, settings: SandboxSettings) -> bytes:
    """Return the JSON of a subscriber as a row of the list. The row depends on the switches `base_in_rows`, `rows_omit`
    and `emails_in_rows`, and on the switches of `format_answer`."""
    is_masked = settings.emails_in_rows == "masked"
    if settings.base_in_rows == "full" and not settings.rows_omit and not is_masked:
        return format_answer(subscriber_json, settings)
    subscriber = {
        name: value for name, value in orjson.loads(subscriber_json).items() if name not in settings.rows_omit
    }
    if settings.base_in_rows != "full":
        base = subscriber.pop("Base", {})
        if settings.base_in_rows != "none":
            key = settings.base_in_rows.capitalize()
            subscriber["Base"] = {key: base.get(key)}
    if is_masked and (email := subscriber.get("Email")):
        local_part, _, domain = email.partition("@")
        subscriber["Email"] = f"{local_part[:1]}***@{domain}"
    return format_answer(orjson.dumps(subscriber), settings)


def format_answer(subscriber_json: bytes, settings: SandboxSettings) -> bytes:
    """Return the JSON of a subscriber in an answer. The JSON depends on the switches `activity`, `client_user_ids` and
    `uuids`. With `uuids`, the UUID is computed from the numeric Id, so a subscriber has the same UUID in all
    answers."""
    if settings.activity == "boolean" and settings.client_user_ids == "text" and not settings.uuids:
        return subscriber_json
    subscriber = orjson.loads(subscriber_json)
    if settings.activity != "boolean":
        is_active = subscriber.pop("IsActive", False)
        match settings.activity:
            case "number":
                subscriber["IsActive"] = int(is_active)
            case "text":
                subscriber["IsActive"] = str(is_active).lower()
            case "letter":
                subscriber["IsActive"] = "Y" if is_active else "N"
            case "omit_false" if is_active:
                subscriber["IsActive"] = True
            case "omit_some" if subscriber["Id"] % 3:
                subscriber["IsActive"] = is_active
    text = subscriber.get("ClientUserId")
    if settings.client_user_ids == "number" and isinstance(text, str) and text.isascii() and text.isdigit():
        subscriber["ClientUserId"] = int(text)
    if settings.uuids:
        subscriber["Id"] = str(uuid5(NAMESPACE_OID, str(subscriber["Id"])))
    return orjson.dumps(subscriber)
