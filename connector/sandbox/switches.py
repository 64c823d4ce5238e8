"""The switches: one table of all behaviour that service-api.md does not define (architecture 2), and of the faults
(section 9).

`SandboxSettings` is the table. The messages, the page and the reference follow from its fields.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

FieldName = Literal[
    "IsActive", "Email", "FirstName", "LastName", "Gender", "Phone", "Tags", "ClientUserId", "CustomField1",
    "CustomField2", "CustomField3", "Birthday", "Address.Country", "Address.City", "Address.State", "Address.Zip",
    "Address.Line1", "Address.Line2", "Address.Line3",
]  # fmt: skip
"""The names of a subscriber's fields in service-api.md, without `Subscriber.`."""
TextFieldName = Literal[
    "Email", "FirstName", "LastName", "Phone", "ClientUserId", "CustomField1", "CustomField2", "CustomField3",
    "Address.City", "Address.State", "Address.Line1", "Address.Line2", "Address.Line3",
]  # fmt: skip
Operation = Literal["create", "list", "send"]
StrayRefusalStatus = Literal["200", "400", "402", "403", "404"]
ExecutedStatus = Literal["200", "400", "401", "403", "404", "405", "408", "409", "410", "422"]


# Types of the values of switches. A value is a JSON value, or a text from `--set`.


def _split_at_commas(value: object) -> object:
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def _split_pairs(value: object) -> object:
    """Return the comma-separated pairs `key=value` of a text."""
    if not isinstance(value, str):
        return value
    pairs = [item.partition("=") for item in value.split(",") if item.strip()]
    return {pair_key.strip(): pair_value.strip() for pair_key, _, pair_value in pairs}


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("the text must be on one line")
    return text


_Value = TypeVar("_Value")
_CommaSeparated = Annotated[tuple[_Value, ...], BeforeValidator(_split_at_commas)]
_Name = Annotated[str, Field(min_length=1)]
_Pairs = Annotated[dict[_Name, _Name], BeforeValidator(_split_pairs)]
_Text = Annotated[str, AfterValidator(_check_printable)]
_Amount = Annotated[float, Field(ge=0)]
_Count = Annotated[int, Field(ge=0)]
_Probability = Annotated[float, Field(ge=0, le=1)]
_Churn = Annotated[float, Field(ge=0, le=1000)]


# The table of switches


class SandboxSettings(BaseModel):
    """The values of all switches. `parse_settings` and `change_settings` create settings and check the values."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @property
    def extra_fields_policy(self) -> Literal["forbid", "ignore"]:
        """The way in which pydantic treats a field or parameter that service-api.md does not name."""
        return "forbid" if self.unknown_fields == "reject" else "ignore"

    # Switches for creates
    duplicates: Literal["accept", "reject_409", "reject_400", "reject_200", "upsert"] = "accept"
    """Effect of a create if its base already has the same subscriber."""
    identity: Literal["email", "client_user_id"] = "email"
    """The field that identifies a subscriber within a base. With `email`, capitals and spaces around the email make no
    difference. A subscriber without an email is identified by the ClientUserId."""
    merge_by: _CommaSeparated[Literal["Email", "Phone", "ClientUserId"]] = ()
    """If a create has the value of an existing subscriber in one of these fields, the create overwrites this
    subscriber. The answer has the Id of this subscriber."""
    merge_within: Literal["base", "account"] = "base"
    """The bases in which `merge_by` searches. `base`: only the base of the create. `account`: all bases, and the
    subscriber that is found moves to the base of the create."""
    provisional_ids: bool = False
    """The Id in the answer to a create is provisional: the list shows the subscriber with another Id."""
    required: _CommaSeparated[FieldName] = ()
    """Fields that must have a value in a create, in addition to the base."""
    unknown_fields: Literal["reject", "ignore"] = "reject"
    """Treatment of a field or query parameter that service-api.md does not name."""
    absent_fields: Literal["omit", "null", "empty"] = "omit"
    """How answers show a field that was never sent."""
    alter_fields: _CommaSeparated[TextFieldName] = ()
    """Text fields that the service stores in capitals."""
    alter_identity: bool = False
    """Remove the `+tag` from the local part of each email. The list and the answers show the shorter email."""
    base_names: Literal["exact", "folded", "nfd", "collapsed", "escaped", "cut", "accent_blind"] = "exact"
    """How a base is found by its name. `exact` creates a new base for an unknown spelling. `folded` ignores capitals
    and outer blanks. `accent_blind` ignores capitals, outer blanks and accents. With `folded` and `accent_blind`, the
    answers show the first spelling of the name. The other values store a changed name: `nfd` with accents as separate
    characters, `collapsed` with single blanks, `escaped` with HTML entities, and `cut` with only the first 20
    characters."""
    base_alias: _Pairs = {}
    """A create in the base on the left (a name, or an Id in digits) is stored in the base on the right. The answer
    shows the base on the right.
    """
    created_status: Annotated[int, Field(ge=200, le=299)] = 200
    """The HTTP status of a create that succeeded."""
    id_step: Annotated[int, Field(ge=1, le=1000)] = 1
    """The difference between the Ids of two subscribers that are created one after the other."""
    # Switches for errors and access
    error_shape: Literal["plain", "nested", "html", "empty"] = "plain"
    """The body of an error: a flat JSON object, a nested JSON object, a web page, or nothing."""
    error_status: Annotated[int, Field(ge=200, le=499)] = 400
    """The HTTP status of a request whose content breaks a rule. With 200, only the body shows the error."""
    authorization: Annotated[str, Field(pattern=r"\{token\}"), AfterValidator(_check_printable)] = "{token}"
    """The required Authorization header. `{token}` stands for the token."""
    redirect_to: _Text = ""
    """Answer every API request with 307, and with a Location that begins with this address."""
    max_body_bytes: Annotated[int, Field(ge=1, le=2**31)] = 33_554_432
    """A request with a larger body is answered with 413."""
    # Switches for the list
    filters: Literal["exact", "partial", "icase", "ignored"] = "exact"
    """What a text filter finds: the same text (`exact`), the same text if capitals make no difference (`icase`), or
    each text that contains the value (`partial`, in any capitals). With `ignored`, all filters are ignored."""
    blind_filters: _CommaSeparated[Literal["capitals", "plus", "non_ascii"]] = ()
    """Kinds of characters. A text filter whose value has a character of one of these kinds finds no subscriber."""
    filters_return: Literal["all", "first"] = "all"
    """The subscribers that a text filter or the filter Id returns: all matching subscribers, or only the first."""
    combine: Literal["all", "any", "last"] = "all"
    """Which filters of a request must match: all, any, or only the last filter."""
    order: Literal["id", "id_desc", "email", "shuffled"] = "id"
    """The order of the list. With `shuffled`, each request gets another order."""
    list_lag_ms: _Amount = 0.0
    """Milliseconds until the list shows a new subscriber."""
    replica_lags_ms: _CommaSeparated[_Amount] = ()
    """A list request is read from a replica at random. Each number stands for one replica: the milliseconds until the
    replica shows a new subscriber."""
    min_limit: Annotated[int, Field(ge=0, le=1000)] = 1
    """A smaller limit is raised to this number, but not above `max_limit`."""
    max_limit: Annotated[int, Field(ge=1, le=1000)] = 1000
    """A larger limit is reduced to this number."""
    past_end: Literal["empty", "repeat", "null", "400", "404"] = "empty"
    """The answer to a page past the end: an empty page, the last page again, or an error with this status (never at
    offset 0). With `null`, every page without rows has `Subscribers: null`."""
    result_window: _Count = 0
    """The maximum number of subscribers that the list counts and shows for one query. 0 means no maximum."""
    hidden_bases: _CommaSeparated[str] = ()
    """Ids of bases whose subscribers the list shows only to a request with a BaseId."""
    hide: _CommaSeparated[
        Literal["inactive", "male", "female", "unspecified", "unconfirmed", "no_email", "old_ids"]
    ] = ()
    """Groups of subscribers that the list leaves out. A filter by IsActive=0 still shows the group `inactive`. A filter
    by Gender still shows the group of that gender. A filter by Id still shows `old_ids` and `no_email`. A filter by
    ClientUserId still shows `no_email`. The group `unconfirmed` has all subscribers that were stored by a create. No
    filter shows this group."""
    old_ids_below: _Count = 100_101
    """`hide=old_ids` leaves out the subscribers whose Id is below this number."""
    lost_shard: _Probability = 0.0
    """Probability that an answer of the list leaves out the subscribers of one random shard (see `shards`). TotalCount
    does not count these subscribers either."""
    shards: Annotated[int, Field(ge=2, le=1000)] = 5
    """The number of shards of the list. The shard of a subscriber is the remainder of its Id after division by this
    number."""
    base_in_rows: Literal["full", "id", "name", "none"] = "full"
    """How a row of the list shows its base: with Id and Name, with only the Id, with only the Name, or not at all."""
    rows_omit: _CommaSeparated[Literal["Email", "ClientUserId"]] = ()
    """Fields that the rows of the list leave out."""
    emails_in_rows: Literal["full", "masked"] = "full"
    """How a row of the list shows an email: unchanged, or masked as the first letter, asterisks and the domain."""
    client_user_ids: Literal["text", "number"] = "text"
    """How answers show a ClientUserId of digits: as a text, or as a JSON number."""
    activity: Literal["boolean", "number", "text", "letter", "omit_false", "omit_some", "omit"] = "boolean"
    """How answers show IsActive. `boolean`: true or false; `number`: 1 or 0; `text`: "true" or "false"; `letter`: Y or
    N; `omit_false`: true is shown, false is not; `omit_some`: every third Id has no IsActive; `omit`: never."""
    list_omits: _CommaSeparated[Literal["TotalCount", "Offset", "Limit"]] = ()
    """Keys that each page of the list leaves out: TotalCount, Offset or Limit."""
    uuids: bool = False
    """The Id of a subscriber is a UUID. The filter Id allows only numbers, so no value of the filter matches a UUID."""
    max_total: _Count = 0
    """The maximum of TotalCount. 0 means no maximum."""
    total_off: Annotated[int, Field(ge=-(10**9), le=10**9)] = 0
    """This number is added to TotalCount, so that TotalCount is wrong."""
    churn_insert: _Churn = 0.0
    """Number of subscribers that appear after each page of the list. A fraction is a probability."""
    churn_delete: _Churn = 0.0
    """Number of subscribers that vanish after each page of the list. A fraction is a probability."""
    churn_where: Literal["head", "middle", "end"] = "middle"
    """The place in the list at which subscribers appear and vanish."""
    cached: _Amount = 0.0
    """For this number of seconds, list requests with the same URL get the same answer. 0 means no cache. A request with
    `Cache-Control: no-cache` gets a new answer."""
    cache_ignores: bool = False
    """The cache ignores Cache-Control."""
    list_error: _Probability = 0.0
    """Answer a list request with a server error."""
    # Switches for the pace
    latency_ms: _Amount = 0.0
    """Milliseconds that each API request takes."""
    jitter_ms: _Amount = 0.0
    """The maximum of an additional random latency of each API request, in milliseconds."""
    capacity: _Count = 0
    """Maximum number of requests that are served at the same time. Other requests wait in line. 0 means no maximum."""
    rate: _Amount = 0.0
    """Maximum number of requests per second. Other requests are refused. 0 means no limit."""
    burst: _Count = 0
    """The number of requests that a full bucket admits at the same time. 0 means as many as `rate` allows in one
    second."""
    limiter: Literal["bucket", "fixed_window", "sliding_window"] = "bucket"
    """How the rate limit counts: tokens in a bucket, requests in fixed periods, or requests in a sliding period."""
    window_ms: Annotated[float, Field(ge=1)] = 1000.0
    """The period in which the limiters `fixed_window` and `sliding_window` count requests, in milliseconds."""
    limit_status: Annotated[int, Field(ge=200, le=599)] = 429
    """The HTTP status of a refused request. With 200, only the body shows the refusal."""
    retry_after: Literal["seconds", "date", "unix", "none"] = "seconds"
    """The form of the Retry-After header of a refusal."""
    retry_after_s: Annotated[int, Field(ge=0, le=86400)] = 0
    """The Retry-After of the rate limit is the time until the limit admits a request, but at least this number of
    seconds."""
    # Switches that refuse all creates for some time
    blocked_from: _Count = 0
    """The number of the create at which the refusals begin. Creates are counted from the start of the sandbox or from
    the last change of this switch. 0 means that no create is refused."""
    blocked_ms: _Amount = 0.0
    """Milliseconds for which all creates are refused, from the create with the number `blocked_from` on. 0 means no
    end."""
    blocked_creates: _Count = 0
    """After this many refused creates, `blocked_from` refuses no more creates. 0 means no limit."""
    blocked_status: Annotated[int, Field(ge=200, le=499)] = 200
    """The HTTP status of a create that `blocked_from` refuses. With 200, only the body shows the refusal."""
    blocked_words: str = "The service is under maintenance"
    """The message of a create that `blocked_from` refuses. The message may contain any characters."""
    quota: _Count = 0
    """Maximum number of subscribers of the account. A create beyond this number is refused. 0 means no quota."""
    quota_status: Annotated[int, Field(ge=200, le=499)] = 402
    """The HTTP status of a create beyond the quota. With 200, only the body shows the refusal."""
    # Switches for faults
    fault_operations: _CommaSeparated[Operation] = ("create", "send")
    """The operations that can have the faults of the following switches."""
    refuse: _Probability = 0.0
    """Refuse the request as if the rate were exceeded."""
    refuse_retry_after_s: Annotated[int, Field(ge=0, le=86400)] = 1
    """The Retry-After, in seconds, of a refusal by the switch `refuse`."""
    drop_before: _Probability = 0.0
    """Cut the connection before the request is executed."""
    late_ms: _Amount = 0.0
    """If `drop_before` cuts the connection of a request, execute the request this many milliseconds after the cut.
    With 0, the request is never executed."""
    error_before: _Probability = 0.0
    """Answer with a server error, and do not execute the request."""
    drop_after: _Probability = 0.0
    """Execute the request, then cut the connection without an answer."""
    error_after: _Probability = 0.0
    """Execute the request, then answer with a server error."""
    cut_answer: _Probability = 0.0
    """Execute the request, then cut the connection in the middle of the answer."""
    hang_after: _Probability = 0.0
    """Execute the request, then keep the connection open and never answer."""
    garbage_after: _Probability = 0.0
    """Execute the request, then answer with a body that is not a success."""
    created_422: _Probability = 0.0
    """Execute the request, then answer 422 as if the request were rejected."""
    created_429: _Probability = 0.0
    """Execute the request, then answer 429 as if the request were refused."""
    executed_status: _Probability = 0.0
    """Execute the request, then answer with one of `executed_statuses` as if the request were refused."""
    executed_statuses: Annotated[_CommaSeparated[ExecutedStatus], Field(min_length=1)] = ("401", "403", "404", "405")
    """The HTTP statuses that `executed_status` draws from."""
    stray_refusal: _Probability = 0.0
    """Answer with one of `stray_statuses` and do not execute the request, as if the request were refused."""
    stray_statuses: Annotated[_CommaSeparated[StrayRefusalStatus], Field(min_length=1)] = ("403", "404")
    """The HTTP statuses that `stray_refusal` draws from."""
    repeat: _Probability = 0.0
    """Execute a create twice, as if a proxy repeated the POST, and answer with the second subscriber."""
    discard: _Probability = 0.0
    """Answer a create with success and an Id, and store nothing."""
    wrong_answer: _Probability = 0.0
    """Execute a create, then answer with another subscriber's email."""
    server_error: Annotated[int, Field(ge=500, le=599)] = 500
    """The HTTP status of a server error."""
    cut_by: Literal["close", "reset"] = "close"
    """How a connection is cut: `close` closes the connection normally, and `reset` sends a TCP reset."""
    seed: _Count = 1
    """The seed of the random generator. A change of the seed starts the generator again."""
    # Switches for emails
    verified_domains: _CommaSeparated[str] = ("example.com", "example.org")
    """Sender domains that are verified. `*` means any domain."""
    protected_headers: _CommaSeparated[str] = (
        "Bcc", "Cc", "Content-Transfer-Encoding", "Content-Type", "Date", "DKIM-Signature", "From", "Message-ID",
        "MIME-Version", "Received", "Reply-To", "Return-Path", "Sender", "Subject", "To",
    )  # fmt: skip
    """Headers that an email must not add or replace. Case does not matter."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A line of the reference: the name, the default as a text for `--set`, the allowed values, and the effect."""

    name: str
    default: str
    allowed_values: str
    help: str


@cache
def list_switches() -> tuple[Switch, ...]:
    """Return all switches in the order of the table."""
    schemas = SandboxSettings.model_json_schema()["properties"]
    return tuple(
        Switch(
            name,
            format_value(field.default),
            _describe_values(schemas[name]),
            str(field.description).replace("\n", " "),
        )
        for name, field in SandboxSettings.model_fields.items()
    )


def _describe_values(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"enum": words}:
            return " | ".join(words)
        case {"type": "boolean"}:
            return "true | false"
        case {"type": "array", "items": {"type": "number"}}:
            return "comma-separated numbers, 0 or larger"
        case {"type": "array", "items": {"enum": words}}:
            return f"comma-separated words out of: {', '.join(words)}"
        case {"type": "array"}:
            return "comma-separated words"
        case {"type": "object"}:
            return "comma-separated pairs left=right"
        case {"pattern": _}:
            return "a text with {token} in it"
        case {"type": "string"}:
            return "a text"
        case _:
            number_kind = "a whole number" if schema["type"] == "integer" else "a number"
            minimum, maximum = schema["minimum"], schema.get("maximum")
            if number_kind == "a number" and (minimum, maximum) == (0, 1):
                return "a probability, 0 to 1"
            return (
                f"{number_kind} from {minimum:g}"
                if maximum is None
                else f"{number_kind}, {minimum:.10g} to {maximum:.10g}"
            )


def format_value(value: object) -> str:
    """Return the value of a switch as a text for `--set`."""
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, tuple):
        return ",".join(map(format_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def parse_settings(settings: Sequence[str]) -> SandboxSettings:
    """Return the settings of `name=value` texts. A later text overrides an earlier text. Raise the errors of
    `change_settings`."""
    value_by_name = {}
    for setting in settings:
        name, equals_sign, value = setting.partition("=")
        if not equals_sign:
            raise ValueError(f"{setting!r} is not a setting. Write a setting as name=value")
        value_by_name[name.strip()] = value.strip()
    return change_settings(SandboxSettings(), value_by_name)


def change_settings(settings: SandboxSettings, new_values: Mapping[str, object]) -> SandboxSettings:
    """Return `settings` with the `new_values` of switches, which are texts or JSON values.

    Raise ValueError with the name of the wrong switch and its allowed values.
    """
    switch_names = SandboxSettings.model_fields
    for name in new_values.keys() - switch_names.keys():
        similar_names = get_close_matches(name, switch_names, n=1)
        hint = f"did you mean {similar_names[0]!r}?" if similar_names else f"there are: {', '.join(switch_names)}"
        raise ValueError(f"there is no switch {name!r}; {hint}")
    try:
        return SandboxSettings.model_validate({**settings.model_dump(), **new_values})
    except ValidationError as error:
        wrong_name = str(error.errors()[0]["loc"][0])
        allowed_values = next(switch.allowed_values for switch in list_switches() if switch.name == wrong_name)
        raise ValueError(
            f"switch {wrong_name!r} cannot be {new_values[wrong_name]!r}: it takes {allowed_values}"
        ) from None
