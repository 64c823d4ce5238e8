"""The switches: everything that service-api.md leaves unsaid (architecture 2), and the faults (section 9), in one
table.

`SandboxSettings` is that table; `SWITCHES`, the messages and the reference derive from its fields.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

OPERATIONS = ("create", "list", "send")
EXECUTED_STATUSES = ("200", "400", "401", "403", "404", "405", "408", "409", "410", "422")
CHARACTER_CLASSES = ("capitals", "plus", "non_ascii")
_ADDRESS = ("Country", "City", "State", "Zip", "Line1", "Line2", "Line3")
FIELDS = (
    *("IsActive", "Email", "FirstName", "LastName", "Gender", "Phone", "Tags", "ClientUserId"),
    *("CustomField1", "CustomField2", "CustomField3", "Birthday", *(f"Address.{name}" for name in _ADDRESS)),
)
"""The fields of a subscriber, as service-api.md writes them without `Subscriber.`."""
_NO_TEXTS = ("IsActive", "Gender", "Tags", "Birthday", "Address.Country", "Address.Zip")
TEXT_FIELDS = tuple(name for name in FIELDS if name not in _NO_TEXTS)


# what the value of a switch may be


@dataclass(frozen=True, slots=True)
class _Kind:
    """The values that a switch takes, in words, and how one is read from a text (`--set`) or a JSON value (control)."""

    values: str
    read: Callable[[Any], object]

    def parse(self, given: object) -> object:
        """Return the value of the switch; raises ValueError saying what is taken instead."""
        try:
            return self.read(given)
        except (ValueError, TypeError, AttributeError, OverflowError):
            raise ValueError(f"it takes {self.values}") from None


def _choice(*words: str) -> _Kind:
    """One word of a few; a whole number stands for its digits."""

    def read(given: object) -> object:
        return words[words.index(str(given) if type(given) is int else given)]

    return _Kind(" | ".join(words), read)


def _number(low: float, high: float = math.inf, *, is_whole: bool = False) -> _Kind:
    """A number between two bounds, both included; whole ones are int, the others float."""

    def read(given: Any) -> object:
        value = math.nan if isinstance(given, bool) else float(given)
        if not math.isfinite(value) or not low <= value <= high or (is_whole and value % 1):
            raise ValueError
        return int(value) if is_whole else value

    noun = "a whole number" if is_whole else "a number"
    return _Kind(f"{noun} from {low:g}" if math.isinf(high) else f"{noun}, {low:g} to {high:g}", read)


def _flag() -> _Kind:
    """On or off."""

    def read(given: object) -> object:
        return given if isinstance(given, bool) else ("false", "true").index(given) == 1

    return _Kind("true | false", read)


def _text(must_contain: str = "") -> _Kind:
    """A text on one line."""

    def read(given: str) -> object:
        if must_contain not in given or not given.isprintable():
            raise ValueError
        return given

    return _Kind("a text" + (f" with {must_contain} in it" if must_contain else ""), read)


def _words(*allowed: str) -> _Kind:
    """Words, trimmed, as a tuple, from a text or a JSON array; without `allowed` any."""

    def read(given: Any) -> object:
        words = tuple(part.strip() for part in _split(given) if part.strip())
        if allowed and set(words) - set(allowed):
            raise ValueError
        return words

    return _Kind("words with commas between" + (f", of: {', '.join(allowed)}" if allowed else ""), read)


def _numbers(low: float) -> _Kind:
    """Numbers as a tuple of floats, from a text or a JSON array."""
    one = _number(low)
    return _Kind(
        f"numbers from {low:g} with commas between",
        lambda given: tuple(one.parse(part) for part in _split(given)),
    )


def _pairs() -> _Kind:
    """Pairs of texts, trimmed, from a text, a JSON object or an array of pairs."""

    def read(given: Any) -> object:
        parts = [part.split("=", 1) for part in _split(given)] if isinstance(given, str) else given
        pairs = tuple((left.strip(), right.strip()) for left, right in dict(parts).items())
        if not all(left and right for left, right in pairs):
            raise ValueError
        return pairs

    return _Kind("left=right, with commas between", read)


def _split(given: Any) -> list[Any]:
    """Return the parts of a text between commas, or of an array."""
    if isinstance(given, str):
        return [part for part in given.split(",") if part.strip()]
    if not isinstance(given, list | tuple):
        raise TypeError
    return list(given)


# the switches

_AMOUNT = _number(0)
_COUNT = _number(0, is_whole=True)
_PROBABILITY = _number(0, 1)
_CHURN = _number(0, 1000)


def _switch(default: object, kind: _Kind, sentence: str) -> Any:
    return field(default=default, metadata={"kind": kind, "help": sentence})


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """The position of every switch; made by `parse_settings` or `change_settings`, which check the values."""

    # what a create does
    duplicates: str = _switch(
        "accept",
        _choice("accept", "reject_409", "reject_400", "reject_200", "upsert"),
        "What a create does when its base already has a subscriber that is the same.",
    )
    identity: str = _switch(
        "email",
        _choice("email", "client_user_id"),
        "What makes two the same: the email (trimmed, case-blind; without one the ClientUserId), or the ClientUserId.",
    )
    required: tuple[str, ...] = _switch(
        (), _words(*FIELDS), "Fields that a create must give a value, besides the base."
    )
    unknown_fields: str = _switch(
        "reject",
        _choice("reject", "ignore"),
        "What becomes of a field or query parameter that service-api.md does not name.",
    )
    absent_fields: str = _switch(
        "omit", _choice("omit", "null", "empty"), "How a field that was never given shows in answers."
    )
    alter_fields: tuple[str, ...] = _switch(
        (), _words(*TEXT_FIELDS), "Text fields that the service stores in capitals, whatever was sent."
    )
    alter_identity: bool = _switch(
        False, _flag(), "Store and answer an email without the `+tag` of its local part, whatever was sent."
    )
    base_names: str = _switch(
        "exact",
        _choice("exact", "folded"),
        "How a base is found by its name: `exact` makes a new base for an unknown spelling; `folded` ignores capitals "
        "and surrounding blanks, and answers with the base's own spelling.",
    )
    base_alias: tuple[tuple[str, str], ...] = _switch(
        (),
        _pairs(),
        "A create in the base on the left (a name, or an Id in digits) is stored in and answered as the other.",
    )
    created_status: int = _switch(200, _number(200, 299, is_whole=True), "The HTTP status of a create that succeeded.")
    id_step: int = _switch(
        1, _number(1, 1000, is_whole=True), "The distance between one new Subscriber.Id and the next."
    )
    # errors and access
    error_shape: str = _switch(
        "plain",
        _choice("plain", "nested", "html", "empty"),
        "The body of an error: a flat JSON message, a nested one, a web page, or nothing.",
    )
    error_status: int = _switch(
        400,
        _number(200, 499, is_whole=True),
        "The HTTP status of a request whose content breaks a rule; 200: only the body says so.",
    )
    authorization: str = _switch(
        "{token}", _text("{token}"), "What the Authorization header must equal, `{token}` being the token."
    )
    redirect_to: str = _switch(
        "", _text(), "Answer every API request 307 with a Location that begins with this address."
    )
    max_body_bytes: int = _switch(
        33_554_432, _number(1, 2**31, is_whole=True), "A larger request body is answered 413."
    )
    keep_alive_ms: float = _switch(0.0, _AMOUNT, "Close a new connection once it was idle for so long; 0: never.")
    # the list
    filters: str = _switch(
        "exact",
        _choice("exact", "partial", "icase", "ignored"),
        "How the text filters match; `ignored` ignores every filter.",
    )
    blind_filters: tuple[str, ...] = _switch(
        (), _words(*CHARACTER_CLASSES), "Text filters find nothing for a value with such characters in it."
    )
    combine: str = _switch(
        "all",
        _choice("all", "any", "last"),
        "Which of several filters must match: all, any, or only the last one given.",
    )
    order: str = _switch(
        "id",
        _choice("id", "id_desc", "email", "shuffled"),
        "The order of the list; `shuffled` is another one at each request.",
    )
    list_lag_ms: float = _switch(0.0, _AMOUNT, "How long until a create shows in the list.")
    replica_lags_ms: tuple[float, ...] = _switch(
        (), _numbers(0), "Each list request is read from one of so many replicas, which shows a create so much later."
    )
    min_limit: int = _switch(1, _number(0, 1000, is_whole=True), "A smaller limit is raised to this.")
    max_limit: int = _switch(1000, _number(1, 1000, is_whole=True), "A larger limit is reduced to this.")
    max_offset: int = _switch(0, _COUNT, "A larger offset is reduced to this; 0: no bound.")
    align_offset: bool = _switch(False, _flag(), "Reduce the offset to a multiple of the limit, without echoing it.")
    past_end: str = _switch(
        "empty",
        _choice("empty", "repeat", "null", "400", "404"),
        "A page past the end: empty, the last page once more, or an error with this status (never at offset 0); `null` "
        "has `Subscribers: null` in every page without rows.",
    )
    result_window: int = _switch(
        0, _COUNT, "How many subscribers of a result the list counts and shows, as if there were no more; 0: all."
    )
    numbers_as_text: tuple[str, ...] = _switch(
        (), _words("counts", "ids"), "Numbers that answers have in quotes: counts are TotalCount, Offset and Limit."
    )
    max_total: int = _switch(0, _COUNT, "The cap of TotalCount; 0: none.")
    total_off: int = _switch(0, _number(-(10**9), 10**9, is_whole=True), "Added to TotalCount: a count that is wrong.")
    churn_insert: float = _switch(
        0.0, _CHURN, "Subscribers that appear after each list page; a fraction is a probability."
    )
    churn_delete: float = _switch(
        0.0, _CHURN, "Subscribers that vanish after each list page; a fraction is a probability."
    )
    churn_where: str = _switch("middle", _choice("head", "middle", "end"), "Where in the list the churn takes place.")
    list_error: float = _switch(0.0, _PROBABILITY, "Answer a list request with a server error.")
    # pace
    latency_ms: float = _switch(0.0, _AMOUNT, "How long each API request takes.")
    jitter_ms: float = _switch(0.0, _AMOUNT, "Up to so much more latency, at random.")
    capacity: int = _switch(0, _COUNT, "Requests served at once, the others wait in line; 0: no bound.")
    rate: float = _switch(0.0, _AMOUNT, "Requests per second that are let in, the others are refused; 0: no limit.")
    burst: int = _switch(
        0, _COUNT, "The depth of the bucket, in requests that it lets in at once; 0: one second's worth."
    )
    limiter: str = _switch("bucket", _choice("bucket", "fixed_window", "sliding_window"), "How the rate limit counts.")
    window_ms: float = _switch(1000.0, _number(1), "The length of a window of the window limiters.")
    max_in_flight: int = _switch(0, _COUNT, "Requests under way at once, the others are refused; 0: no limit.")
    limit_status: int = _switch(429, _number(400, 599, is_whole=True), "The HTTP status of a request that is refused.")
    retry_after: str = _switch(
        "seconds",
        _choice("seconds", "date", "none"),
        "How a refusal says in its Retry-After header how long to wait.",
    )
    retry_after_s: int = _switch(
        0, _number(0, 86400, is_whole=True), "The least Retry-After of a limit; 0: as long as the limit asks for."
    )
    # faults
    fault_operations: tuple[str, ...] = _switch(
        ("create", "send"), _words(*OPERATIONS), "The operations that the faults below befall."
    )
    refuse: float = _switch(0.0, _PROBABILITY, "Refuse as beyond the rate, without doing anything.")
    refuse_retry_after_s: int = _switch(1, _number(0, 86400, is_whole=True), "The Retry-After of a refusal by a fault.")
    drop_before: float = _switch(0.0, _PROBABILITY, "Cut the connection before storing.")
    late_ms: float = _switch(0.0, _AMOUNT, "With drop_before: execute so long after the cut all the same; 0: never.")
    error_before: float = _switch(0.0, _PROBABILITY, "Answer with a server error before storing.")
    drop_after: float = _switch(0.0, _PROBABILITY, "Store, then cut the connection.")
    error_after: float = _switch(0.0, _PROBABILITY, "Store, then answer with a server error.")
    cut_answer: float = _switch(0.0, _PROBABILITY, "Store, then cut the connection in the middle of the answer.")
    hang_after: float = _switch(0.0, _PROBABILITY, "Store, then keep the connection open and never answer.")
    garbage_after: float = _switch(0.0, _PROBABILITY, "Store, then answer what cannot be read as a success.")
    created_422: float = _switch(0.0, _PROBABILITY, "Store, then answer 422 as if it had been rejected.")
    created_429: float = _switch(0.0, _PROBABILITY, "Store, then answer 429 as if it had been refused.")
    executed_status: float = _switch(
        0.0, _PROBABILITY, "Store, then answer with one of executed_statuses as if it had been refused."
    )
    executed_statuses: tuple[str, ...] = _switch(
        ("401", "403", "404", "405"), _words(*EXECUTED_STATUSES), "The HTTP statuses that executed_status draws from."
    )
    wrong_answer: float = _switch(0.0, _PROBABILITY, "Store, then answer with another subscriber's email.")
    server_error: int = _switch(500, _number(500, 599, is_whole=True), "The HTTP status of a server error.")
    cut_by: str = _switch("close", _choice("close", "reset"), "A connection is cut by an orderly close or by a reset.")
    seed: int = _switch(
        1, _COUNT, "The seed of the one generator that all chances are drawn from; setting it begins again."
    )
    # emails
    verified_domains: tuple[str, ...] = _switch(
        ("example.com", "example.org"), _words(), "Sender domains whose ownership is confirmed; `*` confirms any."
    )
    protected_headers: tuple[str, ...] = _switch(
        (
            "Bcc", "Cc", "Content-Transfer-Encoding", "Content-Type", "Date", "DKIM-Signature", "From", "Message-ID",
            "MIME-Version", "Received", "Reply-To", "Return-Path", "Sender", "Subject", "To",
        ),
        _words(),
        "Headers that an email must not add or override, in any case.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Switch:
    """A line of the reference: the switch's name, its default as `--set` writes it, the values it takes, its effect."""

    name: str
    default: str
    values: str
    help: str


def write_value(value: object) -> str:
    """Return a switch's position as `--set` writes it."""
    if isinstance(value, tuple):
        return ",".join("=".join(map(str, each)) if isinstance(each, tuple) else _write_number(each) for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return _write_number(value)


def _write_number(value: object) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


_KINDS: dict[str, _Kind] = {each.name: each.metadata["kind"] for each in fields(SandboxSettings)}

SWITCHES: tuple[Switch, ...] = tuple(
    Switch(each.name, write_value(each.default), _KINDS[each.name].values, each.metadata["help"])
    for each in fields(SandboxSettings)
)


def parse_settings(settings: Sequence[str]) -> SandboxSettings:
    """Return the defaults with each `name=value` set over them, later ones over earlier ones.

    Raises ValueError naming the switch and the values it takes.
    """
    given = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"{setting!r} is no setting: write it as name=value")
        given[name.strip()] = value.strip()
    return change_settings(SandboxSettings(), given)


def change_settings(settings: SandboxSettings, given: Mapping[str, object]) -> SandboxSettings:
    """Return `settings` with the `given` switches set, texts or JSON values; raises ValueError and changes nothing."""
    changed: dict[str, Any] = {}
    for name, value in given.items():
        kind = _KINDS.get(name)
        if kind is None:
            close = get_close_matches(name, _KINDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(_KINDS)}"
            raise ValueError(f"there is no switch {name!r}; {hint}")
        try:
            changed[name] = kind.parse(value)
        except ValueError as error:
            raise ValueError(f"switch {name!r} cannot be {value!r}: {error}") from None
    made = replace(settings, **changed)
    if made.executed_status and not made.executed_statuses:
        raise ValueError("switch 'executed_statuses' cannot be empty while executed_status is above 0")
    if made.min_limit > made.max_limit:
        raise ValueError(f"switch 'min_limit' cannot be {made.min_limit}: it takes at most max_limit, {made.max_limit}")
    return made
