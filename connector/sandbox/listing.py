"""The list (service-api.md 4.3): the query and its bounds, the filters, the order, the page, and what churn does to it.

Undocumented choices: an offset below 0 becomes 0, a limit below `min_limit` becomes that.
"""

from dataclasses import dataclass
from random import Random
from typing import Any, Literal
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from connector.sandbox.store import SortedKeys, SubscriberStore
from connector.sandbox.subscriber import RejectedError, quote_ids, reject
from connector.sandbox.switches import SandboxSettings

_KEPT_RESULTS = 8  # filtered lists remembered while nothing changes: paging one costs one scan, not one a page
_SEARCHED = 1000  # how many neighbours of the middle churn searches for a free id before the end has to do
_TEXT_FILTERS = ("ClientUserId", "Email", "FirstName", "LastName")


# queries


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: a parameter's name and the value to be matched (int for Id and BaseId, bool for IsActive)."""

    name: str
    value: int | bool | str


@dataclass(frozen=True, slots=True)
class Query:
    """A list request after its bounds were applied; `filters` are those that count."""

    offset: int
    limit: int
    filters: tuple[Filter, ...]

    @property
    def base_id(self) -> int | None:
        """The base, when it is the only filter."""
        if len(self.filters) == 1 and self.filters[0].name == "BaseId":
            return int(self.filters[0].value)
        return None


class _Parameters(BaseModel):
    """The query parameters, parsed from their texts."""

    offset: int = 0
    limit: int = 50
    Id: int | None = None
    BaseId: int | None = None
    ClientUserId: str | None = None
    Email: str | None = None
    IsActive: Literal["0", "1"] | None = None
    FirstName: str | None = None
    LastName: str | None = None
    Gender: Literal["", "male", "female"] | None = None


def parse_query(text: str, settings: SandboxSettings) -> Query:
    """Return the query of a list request; raises RejectedError naming the parameter that breaks a rule."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=64)
    except ValueError:
        raise RejectedError("The query cannot be read", 400) from None
    given = dict(pairs)
    if len(given) < len(pairs):
        raise RejectedError("A parameter is given twice")
    try:
        parameters = _Parameters.model_validate(given, extra=settings.extra_fields)
    except ValidationError as error:
        raise reject(error) from None
    offset = max(0, parameters.offset)
    values = parameters.model_dump(exclude={"offset", "limit"}, exclude_unset=True)
    if "IsActive" in values:
        values["IsActive"] = values["IsActive"] == "1"
    filters = tuple(Filter(name, values[name]) for name in given if name in values)
    if settings.filters == "ignored":
        filters = ()
    if settings.combine == "last":
        filters = filters[-1:]
    return Query(
        offset,
        min(max(parameters.limit, settings.min_limit), settings.max_limit),
        filters,
    )


# filters


def _matches_text(mode: str, held: str, wanted: str) -> bool:
    if mode == "partial":
        return wanted.lower() in held.lower()
    return held.lower() == wanted.lower() if mode == "icase" else held == wanted


def _matches(each: Filter, mode: str, subscriber: dict[str, Any]) -> bool:
    """Whether a subscriber passes a filter; `mode` (exact, partial, icase) concerns the texts alone."""
    if each.name == "Id":
        return bool(subscriber["Id"] == each.value)
    if each.name == "BaseId":
        return bool(subscriber["Base"]["Id"] == each.value)
    if each.name in _TEXT_FILTERS:
        return _matches_text(mode, subscriber.get(each.name) or "", str(each.value))
    return bool(subscriber[each.name] == each.value)


def _is_blind(each: Filter, classes: tuple[str, ...]) -> bool:
    """Whether a text filter's value has characters of one of the classes, so that it finds nothing."""
    if each.name not in _TEXT_FILTERS:
        return False
    text = str(each.value)
    found = {"capitals": text != text.lower(), "plus": "+" in text, "non_ascii": not text.isascii()}
    return any(found[name] for name in classes)


def _filter(store: SubscriberStore, settings: SandboxSettings, filters: tuple[Filter, ...]) -> list[int]:
    """Return the ids of all visible subscribers that match."""
    if any(_is_blind(each, settings.blind_filters) for each in filters):
        return []
    ids = _narrow(store, settings, filters)
    join = any if settings.combine == "any" else all

    def passes(subscriber: dict[str, Any]) -> bool:
        return join(_matches(each, settings.filters, subscriber) for each in filters)

    return [each for each in ids if passes(store.read_subscriber(each))]


def _narrow(store: SubscriberStore, settings: SandboxSettings, filters: tuple[Filter, ...]) -> list[int]:
    """Return the few that an index leaves as possible, or all; only visible ones."""
    candidates: list[int] | None = None
    if settings.combine != "any" or len(filters) == 1:
        is_whole = settings.filters in ("exact", "icase")
        for each in filters:
            if each.name == "Id":
                candidates = [int(each.value)]
            elif each.name == "Email" and is_whole and str(each.value).strip():
                candidates = store.find_email(str(each.value))
            elif each.name == "Email" and settings.filters == "partial" and str(each.value).strip():
                candidates = store.find_email_part(str(each.value))
            elif each.name == "ClientUserId" and is_whole and str(each.value).strip():
                candidates = store.find_client_user_id(str(each.value))
    if candidates is not None:
        return [each for each in candidates if store.is_visible(each)]
    keys = store.sort(by_email=False, base_id=None)
    return keys.read_ids(0, len(keys))


# pages


class SubscriberList:
    """Answers list requests over one store; remembers the last filtered results until something changes."""

    def __init__(self, store: SubscriberStore) -> None:
        self._store = store
        self._results: dict[tuple[object, ...], SortedKeys] = {}
        self._groups: dict[str, dict[object, list[int]]] = {}
        self._grouped_at: int | None = None  # the store's version

    def read_page(self, query: Query, settings: SandboxSettings, now: float, random: Random) -> bytes:
        """Return the body of the page that the query names, as the switches would have it at the moment `now`.

        Raises RejectedError past the end, if the switches say so.
        """
        self._store.show(now)
        keys = self._select(query, settings)
        left_out = self._draw_late(settings, now, random) | self._find_hidden(query, settings)
        if left_out:
            keys = keys.leave_out(left_out)
        total = min(len(keys), settings.result_window) if settings.result_window else len(keys)
        start = query.offset
        if settings.past_end == "repeat" and start >= total > 0 and query.limit:
            start = (total - 1) // query.limit * query.limit
        if settings.past_end in ("400", "404") and start >= total and start:
            raise RejectedError("There is no such page", int(settings.past_end))
        wires = self._store.read_wires(_cut_page(keys, start, min(start + query.limit, total), settings.order, random))
        shown_total = max(0, total + settings.total_off)
        if settings.max_total:
            shown_total = min(shown_total, settings.max_total)
        return _write_page(query, shown_total, wires, settings)

    def _select(self, query: Query, settings: SandboxSettings) -> SortedKeys:
        """Return all subscribers that match. The result of filters is cached until the store changes."""
        store, by_email = self._store, settings.order == "email"
        if not query.filters or query.base_id is not None:
            return store.sort(by_email=by_email, base_id=query.base_id)
        key = (query.filters, settings.filters, settings.blind_filters, settings.combine, by_email, store.version)
        if key not in self._results:
            if len(query.filters) == 1 and query.filters[0].name in ("IsActive", "Gender"):
                found = self._group(query.filters[0].name).get(query.filters[0].value, [])
            else:
                found = _filter(store, settings, query.filters)
            while len(self._results) >= _KEPT_RESULTS:
                del self._results[next(iter(self._results))]
            self._results[key] = SortedKeys([store.sort_key(each) for each in found] if by_email else list(found))
        return self._results[key]

    def _group(self, name: str) -> dict[object, list[int]]:
        """Return the ids of all visible subscribers by IsActive or Gender. The result is cached until the store
        changes."""
        if self._grouped_at != self._store.version:
            self._grouped_at, self._groups = self._store.version, {}
        if name not in self._groups:
            keys = self._store.sort(by_email=False, base_id=None)
            read = self._store.is_active if name == "IsActive" else self._store.gender
            groups: dict[object, list[int]] = {}
            for each in keys.read_ids(0, len(keys)):
                groups.setdefault(read(each), []).append(each)
            self._groups[name] = groups
        return self._groups[name]

    def _find_hidden(self, query: Query, settings: SandboxSettings) -> set[int]:
        """Return the subscribers of hidden bases, unless the query has a BaseId."""
        if any(each.name == "BaseId" for each in query.filters):
            return set()
        bases = [self._store.sort(by_email=False, base_id=int(each)) for each in settings.hidden_bases]
        return {subscriber_id for keys in bases for subscriber_id in keys.read_ids(0, len(keys))}

    def _draw_late(self, settings: SandboxSettings, now: float, random: Random) -> set[int]:
        """Return those that are on the list, but not yet on the replica that this request is read from."""
        lags_ms = settings.replica_lags_ms
        if not lags_ms:
            return set()
        return self._store.find_late(now, random.choice(lags_ms) / 1000, max(lags_ms) / 1000)


def _cut_page(keys: SortedKeys, start: int, stop: int, order: str, random: Random) -> list[int]:
    """Return the ids from index `start` to before `stop` of the list in this order."""
    total = len(keys)
    if order == "shuffled":  # a page of a random order is a random sample
        return [keys.read_id(index) for index in random.sample(range(total), max(0, stop - start))]
    if order == "id_desc":
        return keys.read_ids(max(0, total - stop), max(0, total - start))[::-1]
    return keys.read_ids(start, stop)


def _write_page(query: Query, total: int, wires: list[bytes], settings: SandboxSettings) -> bytes:
    if "ids" in settings.numbers_as_text:
        wires = [quote_ids(wire) for wire in wires]
    shape = b'"%d"' if "counts" in settings.numbers_as_text else b"%d"
    begin = b'{"success":true,"SubscribersList":{"TotalCount":%s,"Offset":%s,"Limit":%s,"Subscribers":'
    begin %= tuple(shape % number for number in (total, query.offset, query.limit))
    if settings.past_end == "null" and not wires:
        return begin + b"null}}"
    return b"".join((begin, b"[", b",".join(wires), b"]}}"))  # copied once: a page is half a megabyte


# churn: after a page is read, subscribers vanish from that list and appear in it, at its head, middle or end


class Churn:
    """Chooses who vanishes and who appears in the list of one base, or of all (`base_id` None)."""

    def __init__(self, store: SubscriberStore, settings: SandboxSettings, random: Random, base_id: int | None) -> None:
        self._store = store
        self._settings = settings
        self._random = random
        self._base_id = base_id
        self._keys = store.sort(by_email=settings.order == "email", base_id=base_id)

    def choose_leaving(self) -> int | None:
        """Return the id of a subscriber that vanishes, None from an empty list."""
        return self._read_id(self._draw_index()) if len(self._keys) else None

    def choose_arriving(self, sequence: int) -> tuple[int, int, str]:
        """Return (id, base id, email) of a new subscriber: in id order its id, in email order its email puts it where
        it belongs. `sequence` makes the email one of its own."""
        base_id = self._base_id
        if base_id is None:
            base_id = self._store.base_of(self._read_id(self._draw_index())) if len(self._keys) else 1
        subscriber_id = self._choose_id()
        return subscriber_id, base_id, self._choose_email(subscriber_id, sequence)

    def _read_id(self, index: int) -> int:
        return self._keys.read_id(len(self._keys) - 1 - index if self._settings.order == "id_desc" else index)

    def _draw_index(self) -> int:
        count = len(self._keys)
        if self._settings.order == "shuffled":
            return self._random.randrange(count)
        return {"head": 0, "middle": count // 2, "end": count - 1}[self._settings.churn_where]

    def _choose_id(self) -> int:
        """Return, in id order, an unused id at the wanted end or in the nearest gap above the middle; else the next."""
        keys, store, settings = self._keys, self._store, self._settings
        if not len(keys) or settings.order not in ("id", "id_desc"):
            return store.take_id(settings.id_step)
        free: int | None = None
        if settings.churn_where == "middle":
            middle = keys.read_ids(len(keys) // 2, len(keys) // 2 + _SEARCHED)
            free = next((each + 1 for each in middle[:-1] if each + 1 not in store), None)
        elif settings.churn_where == ("head" if settings.order == "id" else "end"):
            free = keys.read_id(0) - 1
            while free > 0 and free in store:  # a neighbour in another base
                free -= 1
        return free if free is not None and free > 0 else store.take_id(settings.id_step)

    def _choose_email(self, subscriber_id: int, sequence: int) -> str:
        """Return an unused email; in email order it sorts first, last, or just behind the one in the middle."""
        tag = f"churn-{sequence}"
        if self._settings.order != "email" or not len(self._keys):
            return f"{tag}.{subscriber_id}@example.net"
        if self._settings.churn_where == "head":
            return f"!{10**12 - sequence + 1}.{tag}@example.net"
        if self._settings.churn_where == "end":
            return f"\U0010ffff{10**12 + sequence - 1}.{tag}@example.net"
        neighbour = self._store.sort_key(self._read_id(len(self._keys) // 2))[0]
        return f"{neighbour.partition('@')[0]}.{tag}@example.net"
