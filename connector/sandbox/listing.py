"""The list (service-api.md 4.3): queries, the subscribers that a query finds, pages, and churn.

The document does not define two cases: an offset below 0 is read as 0, and a limit below the value of the switch
`min_limit` is read as this value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, ValidationError

from connector.sandbox.store import SubscriberStore, fold_key
from connector.sandbox.subscriber import RejectedError, build_rejection, format_row
from connector.sandbox.switches import SandboxSettings

_MAX_STORED_QUERIES = 8  # maximum number of queries whose rows are kept in memory while nothing changes
# A subscriber that appears in the middle of the list gets a free id. Only this many ids above the middle are tried.
_MAX_SEARCHED_NEIGHBOURS = 1000
_TEXT_FILTERS = ("ClientUserId", "Email", "FirstName", "LastName")
_IDENTITY_FILTERS = (*_TEXT_FILTERS, "Id")
_PERSON_FILTERS = ("BaseId", "IsActive", "FirstName", "LastName", "Gender")
_GROUP_BY_GENDER = {"male": "male", "female": "female", "": "unspecified"}


# Queries of the list


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: the name of a parameter and the wanted value (int for Id and BaseId, bool for IsActive)."""

    name: str
    value: int | bool | str


@dataclass(frozen=True, slots=True)
class Query:
    """A list request. `offset` and `limit` are within their bounds. `filters` are the filters that the switches do not
    ignore."""

    offset: int
    limit: int
    filters: tuple[Filter, ...]

    @property
    def base_id(self) -> int | None:
        """The BaseId of the query, or None if the query also has another filter or no BaseId."""
        if len(self.filters) == 1 and self.filters[0].name == "BaseId":
            return int(self.filters[0].value)
        return None


class _Parameters(BaseModel):
    """The query parameters."""

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
    """Return the query of a list request. Raise RejectedError with the parameter that breaks a rule."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=64)
    except ValueError:
        raise RejectedError("The query cannot be read", 400) from None
    parameter_texts = dict(pairs)
    if len(parameter_texts) < len(pairs):
        raise RejectedError("A parameter is given twice")
    try:
        parameters = _Parameters.model_validate(parameter_texts, extra=settings.extra_fields_policy)
    except ValidationError as error:
        raise build_rejection(error) from None
    parameter_values = parameters.model_dump(exclude={"offset", "limit"}, exclude_unset=True)
    if "IsActive" in parameter_values:
        parameter_values["IsActive"] = parameter_values["IsActive"] == "1"
    filters = tuple(Filter(name, parameter_values[name]) for name in parameter_texts if name in parameter_values)
    if settings.filters == "ignored":
        filters = ()
    if settings.combine == "last":
        filters = filters[-1:]
    limit = min(max(parameters.limit, settings.min_limit), settings.max_limit)
    return Query(max(0, parameters.offset), limit, filters)


# The subscribers that a query finds


def find_subscriber_ids(store: SubscriberStore, query: Query, settings: SandboxSettings) -> list[int]:
    """Return the ids of all subscribers that a query finds under these switches. The caller must not change the result.

    With the switch `order` = email, the ids are in the order of the emails. Otherwise the ids ascend. `read_page` puts
    the ids in the orders `id_desc` and `shuffled`.
    """
    if settings.uuids and any(filter_.name == "Id" for filter_ in query.filters):
        ids = []
    elif not query.filters or query.base_id is not None:
        ids = store.list_visible_ids(query.base_id)
    elif any(_always_finds_nothing(filter_, settings) for filter_ in query.filters):
        ids = []
    else:
        combine = any if settings.combine == "any" else all

        def matches(subscriber: dict[str, Any]) -> bool:
            return combine(_matches_filter(filter_, settings, subscriber) for filter_ in query.filters)

        candidates = _find_candidates(store, query, settings)
        if candidates is None:
            reads_only_person_fields = all(filter_.name in _PERSON_FILTERS for filter_ in query.filters)
            ids = store.find_visible_ids(matches, reads_only_person_fields=reads_only_person_fields)
        else:
            ids = [
                candidate for candidate in candidates if store.is_visible(candidate) and matches(store.read(candidate))
            ]
    if settings.hidden_bases and all(filter_.name != "BaseId" for filter_ in query.filters):
        hidden_ids = {
            subscriber_id for base_id in settings.hidden_bases for subscriber_id in store.list_visible_ids(int(base_id))
        }
        ids = [subscriber_id for subscriber_id in ids if subscriber_id not in hidden_ids]
    if settings.hide:
        requested_values = {filter_.name: filter_.value for filter_ in query.filters}
        ids = [
            subscriber_id
            for subscriber_id in ids
            if not _is_hidden_subscriber(store, subscriber_id, requested_values, settings)
        ]
    if settings.filters_return == "first" and any(filter_.name in _IDENTITY_FILTERS for filter_ in query.filters):
        ids = ids[:1]
    if settings.order == "email":
        return sorted(
            ids, key=lambda subscriber_id: (fold_key(store.read(subscriber_id).get("Email") or ""), subscriber_id)
        )
    return ids


def _matches_filter(filter_: Filter, settings: SandboxSettings, subscriber: dict[str, Any]) -> bool:
    """Return whether a subscriber passes a filter. The switch `filters` has an effect only on text filters."""
    if filter_.name == "BaseId":
        return bool(subscriber["Base"]["Id"] == filter_.value)
    if filter_.name not in _TEXT_FILTERS:
        return bool(subscriber[filter_.name] == filter_.value)
    stored_text, requested_text = subscriber.get(filter_.name) or "", str(filter_.value)
    if settings.filters == "partial":
        return requested_text.lower() in stored_text.lower()
    return stored_text == requested_text or (
        settings.filters == "icase" and stored_text.lower() == requested_text.lower()
    )


def _is_hidden_subscriber(
    store: SubscriberStore,
    subscriber_id: int,
    requested_values: Mapping[str, int | bool | str],
    settings: SandboxSettings,
) -> bool:
    """Return whether the list leaves a subscriber out (switch `hide`). `requested_values` are the values of the
    request's filters by name."""
    subscriber = store.read(subscriber_id)
    gender = subscriber.get("Gender") or ""
    hidden_flag_by_group = {
        "inactive": subscriber.get("IsActive") is not True and requested_values.get("IsActive") is not False,
        _GROUP_BY_GENDER[gender]: requested_values.get("Gender") != gender,
        "unconfirmed": subscriber_id in store.created_ids,
        "no_email": not subscriber.get("Email") and not requested_values.keys() & {"Id", "ClientUserId"},
        "old_ids": subscriber_id < settings.old_ids_below and "Id" not in requested_values,
    }
    return any(hidden_flag_by_group.get(name, False) for name in settings.hide)


def _always_finds_nothing(filter_: Filter, settings: SandboxSettings) -> bool:
    """Return whether a text filter finds nothing because of its characters (switch `blind_filters`)."""
    text = str(filter_.value) if filter_.name in _TEXT_FILTERS else ""
    character_flag_by_trait = {"capitals": text != text.lower(), "plus": "+" in text, "non_ascii": not text.isascii()}
    return any(character_flag_by_trait[name] for name in settings.blind_filters)


def _find_candidates(store: SubscriberStore, query: Query, settings: SandboxSettings) -> list[int] | None:
    """Return the ids that an index finds for one of the filters, or None if the whole list must be read."""
    if settings.combine == "any" and len(query.filters) > 1:
        return None
    for filter_ in query.filters:
        if filter_.name == "Id":
            return [int(filter_.value)]
        text = str(filter_.value)
        if filter_.name in ("Email", "ClientUserId") and text.strip():
            if settings.filters != "partial":
                return store.find_ids_by_key(filter_.name, text)
            if filter_.name == "Email":
                return store.find_ids_by_email_part(text)
    return None


# Pages of the list


class SubscriberList:
    """The list of one store. The object keeps the rows of the last queries until the store or the switches change."""

    def __init__(self, store: SubscriberStore) -> None:
        self._store = store
        self._ids_by_filters: dict[tuple[Filter, ...], list[int]] = {}
        self._version = -1  # the version of the store when the rows were found
        self._settings: SandboxSettings | None = None

    def find(self, query: Query, settings: SandboxSettings) -> list[int]:
        """Return the result of `find_subscriber_ids`. The result is kept, so that all pages of a list need only one
        search of the store."""
        is_list_in_store = query.base_id is not None or not (query.filters or settings.hidden_bases)
        if is_list_in_store and settings.order != "email" and not settings.hide:
            return find_subscriber_ids(self._store, query, settings)  # the store has this list ready
        if self._version != self._store.version or self._settings is not settings:
            self._ids_by_filters, self._version, self._settings = {}, self._store.version, settings
        if query.filters not in self._ids_by_filters:
            while len(self._ids_by_filters) >= _MAX_STORED_QUERIES:
                del self._ids_by_filters[next(iter(self._ids_by_filters))]
            self._ids_by_filters[query.filters] = find_subscriber_ids(self._store, query, settings)
        return self._ids_by_filters[query.filters]

    def read_page(self, query: Query, settings: SandboxSettings, now: float, random: Random) -> bytes:
        """Return the body of the page that the query asks for, at the time `now`.

        Raise RejectedError for a page past the end, if the switch `past_end` is an error.
        """
        self._store.show_due_subscribers(now)
        listed_ids = self.find(query, settings)
        if settings.replica_lags_ms:
            lag_s = random.choice(settings.replica_lags_ms) / 1000
            longest_lag_s = max(settings.replica_lags_ms) / 1000
            if unreplicated_ids := self._store.find_unreplicated_ids(now, lag_s, longest_lag_s):
                listed_ids = [subscriber_id for subscriber_id in listed_ids if subscriber_id not in unreplicated_ids]
        if settings.lost_shard and random.random() < settings.lost_shard:
            shard = random.randrange(settings.shards)
            listed_ids = [subscriber_id for subscriber_id in listed_ids if subscriber_id % settings.shards != shard]
        row_count = min(len(listed_ids), settings.result_window) if settings.result_window else len(listed_ids)
        start_offset = query.offset
        if settings.past_end == "repeat" and start_offset >= row_count > 0 and query.limit:
            start_offset = (row_count - 1) // query.limit * query.limit
        if settings.past_end in ("400", "404") and start_offset >= row_count and start_offset:
            raise RejectedError("There is no such page", int(settings.past_end))
        stop_offset = min(start_offset + query.limit, row_count)
        if settings.order == "shuffled":  # in a random order, a page is a random sample
            page_ids = random.sample(listed_ids, max(0, stop_offset - start_offset))
        elif settings.order == "id_desc":
            page_ids = listed_ids[max(0, len(listed_ids) - stop_offset) : max(0, len(listed_ids) - start_offset)][::-1]
        else:
            page_ids = listed_ids[start_offset:stop_offset]
        rows = [format_row(subscriber_json, settings) for subscriber_json in self._store.read_jsons(page_ids)]
        total_count = max(0, row_count + settings.total_off)
        if settings.max_total:
            total_count = min(total_count, settings.max_total)
        body: dict[str, object] = {"TotalCount": total_count, "Offset": query.offset, "Limit": query.limit}
        is_null_page = settings.past_end == "null" and not rows
        body = {name: value for name, value in body.items() if name not in settings.list_omits}
        body["Subscribers"] = None if is_null_page else [orjson.Fragment(row) for row in rows]
        return orjson.dumps({"success": True, "SubscribersList": body})


# Churn: after a page is read, subscribers vanish and appear at the head, in the middle or at the end of the list


def draw_churned_id(ids: list[int], settings: SandboxSettings, random: Random) -> int:
    """Return an id of the list: at its head, in its middle or at its end, as the switch `churn_where` says. If the
    order is shuffled, return a random id. `ids` are the ids of the list, at least one."""
    if settings.order == "shuffled":
        return ids[random.randrange(len(ids))]
    index = {"head": 0, "middle": len(ids) // 2, "end": len(ids) - 1}[settings.churn_where]
    return ids[-1 - index if settings.order == "id_desc" else index]


def choose_new_id(store: SubscriberStore, ids: list[int], settings: SandboxSettings) -> int:
    """Return the id of a new subscriber.

    If the list is in the order of ids, return a free id at the head, in the middle or at the end of the list (switch
    `churn_where`). In other orders, or without a free id, return the next id.
    """
    free_id: int | None = None
    if ids and settings.order in ("id", "id_desc"):
        if settings.churn_where == "middle":
            middle_ids = ids[len(ids) // 2 : len(ids) // 2 + _MAX_SEARCHED_NEIGHBOURS]
            free_id = next(
                (subscriber_id + 1 for subscriber_id in middle_ids[:-1] if subscriber_id + 1 not in store), None
            )
        elif settings.churn_where == ("head" if settings.order == "id" else "end"):
            free_id = ids[0] - 1
            while free_id > 0 and free_id in store:  # a subscriber of another base has this id
                free_id -= 1
    return free_id if free_id is not None and free_id > 0 else store.create_id(settings.id_step)
