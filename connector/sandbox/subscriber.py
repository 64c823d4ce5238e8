"""The rules of a Subscriber in a create request (service-api.md 2.1): types, allowed values, defaults, normalisation.

It knows nothing of what is stored already. The checks name the field that breaks a rule by its full name; emails use
them too.
"""

import re
from collections.abc import Callable, Container, Mapping
from datetime import date
from typing import Any

import orjson

_COUNTRIES = """
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ CA CC CD
CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF
GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN
KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA
NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI
SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI
VN VU WF WS YE YT ZA ZM ZW
"""

COUNTRY_CODES = frozenset(_COUNTRIES.split())  # ISO 3166-1 alpha-2; shares no table with what is tested here
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LARGEST_ID = 2**53 - 1  # beyond it a JSON number is not the same number everywhere


# checks


class RejectedError(Exception):
    """The request is answered with an error; `status` None means the status that the switches choose."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def check_object(value: object, name: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object."""
    if type(value) is not dict:
        raise RejectedError(f"{name} must be an object")
    return value


def check_array(value: object, name: str) -> list[Any]:
    """Return `value` if it is a JSON array."""
    if type(value) is not list:
        raise RejectedError(f"{name} must be an array")
    return value


def check_text(value: object, name: str) -> str:
    """Return `value` if it is a JSON string."""
    if type(value) is not str:
        raise RejectedError(f"{name} must be a string")
    return value


def check_known(given: Mapping[str, Any], known: Container[str], name: str) -> None:
    """Raise RejectedError unless each key of `given` is one of `known`."""
    unknown = [key for key in given if key not in known]
    if unknown:
        raise RejectedError(f"{name}.{min(unknown)} is not a known field" if name else f"{min(unknown)} is not known")


def is_address(text: str) -> bool:
    """Whether `text` has the outward form of an email address: something, an @, and a domain."""
    local, _, domain = text.rpartition("@")
    return bool(local and domain) and text.isprintable() and not any(each in domain for each in ' <>,;:"()')


def parse_json_object(body: bytes) -> dict[str, Any]:
    """Return a request's body; raises RejectedError unless it is a JSON object in UTF-8."""
    try:
        root = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RejectedError(f"The body is not JSON: {error.msg}", 400) from None
    return check_object(root, "The body")


# the fields of a subscriber


_Check = Callable[[object, str], Any]


def _check_flag(value: object, name: str) -> bool:
    if type(value) is not bool:
        raise RejectedError(f"{name} must be true or false")
    return value


def _check_email(value: object, name: str) -> str:
    text = check_text(value, name)
    if text and not is_address(text.strip()):
        raise RejectedError(f"{name} is not an email address: {text!r}")
    return text


def _check_gender(value: object, name: str) -> str:
    if value not in ("", "male", "female"):
        raise RejectedError(f'{name} must be "male", "female" or ""')
    return str(value)


def _check_tags(value: object, name: str) -> list[str]:
    tags = check_array(value, name)
    for tag in tags:
        if type(tag) is not str:
            raise RejectedError(f"{name} must be an array of strings")
    return tags


def _check_country(value: object, name: str) -> str:
    text = check_text(value, name)
    if text and text not in COUNTRY_CODES:
        raise RejectedError(f"{name} is not a code of ISO 3166-1 alpha-2: {text!r}")
    return text


def _check_text_or_null(value: object, name: str) -> str:
    return "" if value is None else check_text(value, name)


def _check_zip(value: object, name: str) -> str:
    if type(value) is float and value.is_integer() and abs(value) <= _LARGEST_ID:
        value = int(value)
    if type(value) is not int:  # bool is not a number here; a float that is left cannot be kept exactly
        raise RejectedError(f"{name} must be a whole number")
    return str(value)


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False  # as 2026-02-30 is


def _check_birthday(value: object, name: str) -> str:
    text = check_text(value, name)
    if not text:
        return text
    if not _is_date(text):
        raise RejectedError(f"{name} is not a date YYYY-MM-DD: {text!r}")
    return text


_ADDRESS_CHECKS: dict[str, _Check] = {
    "Country": _check_country,
    "City": check_text,
    "State": _check_text_or_null,
    "Zip": _check_zip,
    "Line1": check_text,
    "Line2": check_text,
    "Line3": _check_text_or_null,
}


def _check_address(value: object, name: str) -> dict[str, Any]:
    given = check_object(value, name)
    return {each: check(given[each], f"{name}.{each}") for each, check in _ADDRESS_CHECKS.items() if each in given}


_CHECKS: dict[str, _Check] = {
    "IsActive": _check_flag,
    "Email": _check_email,
    "FirstName": check_text,
    "LastName": check_text,
    "Gender": _check_gender,
    "Phone": check_text,
    "Tags": _check_tags,
    "ClientUserId": check_text,
    "CustomField1": check_text,
    "CustomField2": check_text,
    "CustomField3": check_text,
    "Address": _check_address,
    "Birthday": _check_birthday,
}
_NAMED_CHECKS = tuple((name, f"Subscriber.{name}", check) for name, check in _CHECKS.items())
_NAMES = frozenset(_CHECKS) | {"Base"}


def parse_base(given: dict[str, Any]) -> tuple[int | None, str | None]:
    """Return the base a create names, (Id, Name), of which one is None: the Id goes first when both are non-empty."""
    base = check_object(given.get("Base") or {}, "Subscriber.Base")
    base_id, name = base.get("Id"), base.get("Name")
    if base_id:  # null and 0 are empty
        if type(base_id) is not int or not 0 < base_id <= _LARGEST_ID:
            raise RejectedError("Subscriber.Base.Id must be a positive whole number")
        return base_id, None
    if name:
        return None, check_text(name, "Subscriber.Base.Name")
    raise RejectedError("Either Subscriber.Base.Id or Subscriber.Base.Name must be given")


def normalise_subscriber(given: dict[str, Any], *, is_strict: bool) -> dict[str, Any]:
    """Return the fields that were given, checked and normalised (null State and Line3 to "", Zip to a string), in the
    order of service-api.md 2.1, without Id and Base; raises RejectedError naming the field. `is_strict` rejects
    others."""
    if is_strict:
        check_known(given, _NAMES, "Subscriber")
        check_known(given.get("Base") or {}, ("Id", "Name"), "Subscriber.Base")
        if type(address := given.get("Address")) is dict:
            check_known(address, _ADDRESS_CHECKS, "Subscriber.Address")
    return {name: check(given[name], full) for name, full, check in _NAMED_CHECKS if name in given}


def check_required(values: dict[str, Any], required: tuple[str, ...]) -> None:
    """Raise RejectedError for the first required field without a value; true and false are both values."""
    for name in required:
        first, _, second = name.partition(".")
        value = values.get(first, {}).get(second) if second else values.get(first)
        if value is None or value in ("", []):
            raise RejectedError(f"Subscriber.{name} is required")


def write_in_capitals(values: dict[str, Any], names: tuple[str, ...]) -> None:
    """Write the named texts in capitals, in place: a service that does not keep what it was sent."""
    for name in names:
        first, _, second = name.partition(".")
        holder, key = (values.get(first, {}), second) if second else (values, first)
        if key in holder:
            holder[key] = holder[key].upper()


def drop_tag(email: str) -> str:
    """Return the address without the `+tag` of its local part: a service that does not keep what it was sent."""
    local, at, domain = email.rpartition("@")
    return (local.partition("+")[0] or local) + at + domain


def fill_defaults(values: dict[str, Any], absent: str) -> dict[str, Any]:
    """Return all that the service shows of a subscriber: IsActive and Gender have defaults of their own (service-api.md
    2.1), the other fields that were not given are left out, null or empty as `absent` says."""
    filled = {"IsActive": values.get("IsActive", False), "Gender": values.get("Gender", "")} | values
    if absent != "omit":
        is_null = absent == "null"
        blank = {name: None if is_null else ([] if name == "Tags" else "") for name in _CHECKS}
        address = dict.fromkeys(_ADDRESS_CHECKS, None if is_null else "") | values.get("Address", {})
        filled = blank | filled | {"Address": address}
    return {name: filled[name] for name in _CHECKS if name in filled}


def quote_ids(wire: bytes) -> bytes:
    """Return a subscriber, JSON, with its Id and that of its base as texts."""
    subscriber = orjson.loads(wire)
    subscriber["Id"], subscriber["Base"]["Id"] = str(subscriber["Id"]), str(subscriber["Base"]["Id"])
    return orjson.dumps(subscriber)
