"""The rules of a Subscriber in a create request (service-api.md 2.1): types, allowed values, defaults, normalisation.

The module knows nothing of what is stored already. A message names the field that breaks a rule by its full name.
"""

import re
from collections.abc import Collection
from datetime import date
from typing import Annotated, Any, Literal, cast
from uuid import NAMESPACE_OID, uuid5

import orjson
from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # before Python 3.12 pydantic accepts only this TypedDict

from connector.sandbox.switches import SandboxSettings

_COUNTRIES = """
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ CA CC CD
CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF
GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN
KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA
NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI
SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI
VN VU WF WS YE YT ZA ZM ZW
"""
COUNTRY_CODES = frozenset(_COUNTRIES.split())  # ISO 3166-1 alpha-2; the connector uses another table
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NOT_IN_DOMAINS = frozenset(' <>,;:"()')
_LARGEST_ID = 2**53 - 1  # beyond it a JSON number is not the same number everywhere


class RejectedError(Exception):
    """The request is answered with an error; `status` None means the status that the switches choose."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def reject(error: ValidationError) -> RejectedError:
    """Return the rejection for a validation error of pydantic. The message names the first field that breaks a rule."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return RejectedError(f"The body is not JSON: {first['msg']}", 400)
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).removeprefix(".")
    message = first["msg"].removeprefix("Value error, ")
    return RejectedError(f"{name or 'The body'}: {message}")


def is_address(text: str) -> bool:
    """Whether `text` has the outward form of an email address: something, an @, and a domain."""
    local, _, domain = text.rpartition("@")
    return bool(local and domain) and text.isprintable() and _NOT_IN_DOMAINS.isdisjoint(domain)


# the fields of a subscriber


def _check_email(text: str) -> str:
    if text and not is_address(text.strip()):
        raise ValueError(f"this is not an email address: {text!r}")
    return text


def _check_country(text: str) -> str:
    if text and text not in COUNTRY_CODES:
        raise ValueError(f"this is not a code of ISO 3166-1 alpha-2: {text!r}")
    return text


def _check_birthday(text: str) -> str:
    if text and not _DATE.fullmatch(text):
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
    """The fields, in the order in which the service shows them."""

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


_CREATE_BODY = TypeAdapter(_CreateBody)  # dicts, not objects: a create costs 5 us, and what was not given stays absent
_FIELDS = tuple(name for name in _Subscriber.__annotations__ if name != "Base")


def parse_create(body: bytes, settings: SandboxSettings) -> tuple[int | None, str | None, dict[str, Any]]:
    """Return the base that a create names, (Id, Name) of which one is None, and the fields, normalised (null State and
    Line3 to "", Zip to a string). Raise RejectedError for the first rule that the create breaks."""
    try:
        root = _CREATE_BODY.validate_json(body, extra=settings.extra_fields)
    except ValidationError as error:
        raise reject(error) from None
    values = cast("dict[str, Any]", root["Subscriber"])
    base = values.pop("Base", {})
    if not base.get("Id") and not base.get("Name"):  # null, 0 and "" are empty
        raise RejectedError("Either Subscriber.Base.Id or Subscriber.Base.Name must be given")
    for name in settings.required:  # true and false are both values
        first, _, second = name.partition(".")
        value = values.get(first, {}).get(second) if second else values.get(first)
        if value is None or value in ("", []):
            raise RejectedError(f"Subscriber.{name} is required")
    if base.get("Id"):  # the Id goes first when both are non-empty
        return base["Id"], None, values
    return None, base["Name"], values


def alter(values: dict[str, Any], settings: SandboxSettings) -> None:
    """Change fields in place as a service does that stores other values than it was sent (`alter_...` switches)."""
    for name in settings.alter_fields:
        first, _, second = name.partition(".")
        holder, key = (values.get(first, {}), second) if second else (values, first)
        if key in holder:
            holder[key] = holder[key].upper()
    if settings.alter_identity and values.get("Email"):
        local, _, domain = values["Email"].rpartition("@")
        values["Email"] = f"{local.partition('+')[0] or local}@{domain}"


def fill_defaults(values: dict[str, Any], absent: str) -> dict[str, Any]:
    """Return all that the service shows of a subscriber. IsActive and Gender have defaults (service-api.md 2.1); the
    switch `absent_fields` says whether other absent fields are left out, null or empty."""
    filled = {"IsActive": False, "Gender": ""} | values
    if absent != "omit":
        is_null = absent == "null"
        blank = {name: None if is_null else ([] if name == "Tags" else "") for name in _FIELDS}
        address = dict.fromkeys(_Address.__annotations__, None if is_null else "") | values.get("Address", {})
        filled = blank | filled | {"Address": address}
    return {name: filled[name] for name in _FIELDS if name in filled}


def cut_base(wire: bytes, shown: str) -> bytes:
    """Return the JSON of a subscriber with the Id of the base alone (`shown` is id), with the Name of the base alone
    (name), or without a base (none)."""
    subscriber = orjson.loads(wire)
    base = subscriber.pop("Base", {})
    key = {"id": "Id", "name": "Name"}.get(shown)
    return orjson.dumps(subscriber | ({} if key is None else {"Base": {key: base.get(key)}}))


def cut_identity(wire: bytes, omitted: Collection[str], *, is_email_masked: bool) -> bytes:
    """Return the JSON of a subscriber without the `omitted` fields, and with its email masked if that is asked for."""
    subscriber = {name: value for name, value in orjson.loads(wire).items() if name not in omitted}
    if is_email_masked and (email := subscriber.get("Email")):
        local, _, domain = email.partition("@")
        subscriber["Email"] = f"{local[:1]}***@{domain}"
    return orjson.dumps(subscriber)


def write_id_as_number(wire: bytes) -> bytes:
    """Return the JSON of a subscriber with a ClientUserId of digits as a number."""
    subscriber = orjson.loads(wire)
    text = subscriber.get("ClientUserId")
    if isinstance(text, str) and text.isascii() and text.isdigit():
        subscriber["ClientUserId"] = int(text)
    return orjson.dumps(subscriber)


def write_activity(wire: bytes, shown: str) -> bytes:
    """Return the JSON of a subscriber with IsActive as the switch `activity` has it."""
    subscriber = orjson.loads(wire)
    is_active = subscriber.pop("IsActive", False)
    match shown:
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
    return orjson.dumps(subscriber)


def quote_ids(wire: bytes) -> bytes:
    """Return the JSON of a subscriber with its Id and the Id of its base as texts."""
    subscriber = orjson.loads(wire)
    for owner in (subscriber, subscriber.get("Base", {})):
        if "Id" in owner:
            owner["Id"] = str(owner["Id"])
    return orjson.dumps(subscriber)


def write_uuid(wire: bytes) -> bytes:
    """Return the JSON of a subscriber with a UUID as its Id, always the same for one number."""
    subscriber = orjson.loads(wire)
    return orjson.dumps(subscriber | {"Id": str(uuid5(NAMESPACE_OID, str(subscriber["Id"])))})
