"""List subscribers (api.md 4.3): the query, its bounds, the order, and the page. It changes only what is visible.

Undocumented choices: an offset below 0 becomes 0, a limit below `min_limit` becomes that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from connector.sandbox.answers import Answer, quote_ids
from connector.sandbox.filters import FILTERS, Filter, build_test, is_blind, parse_filter, parse_int
from connector.sandbox.rejection import RejectedError
from connector.sandbox.shelf import Shelf
from connector.sandbox.state import State
from connector.sandbox.switches import Settings

_DEFAULT_LIMIT = 50
_KEPT_RESULTS = 8  # filtered lists remembered while nothing changes: paging one costs one scan, not one a page


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


def parse_query(text: str, settings: Settings) -> Query:
    """The query of a list request; raises RejectedError naming the parameter that breaks a rule."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=64)
    except ValueError:
        raise RejectedError("The query cannot be read", 400) from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise RejectedError(f"{name} is given twice")
        if name not in FILTERS and name not in ("offset", "limit") and settings.unknown_fields == "reject":
            raise RejectedError(f"{name} is not a known parameter")
        given[name] = value
    limit = parse_int("limit", given.get("limit", str(_DEFAULT_LIMIT)))
    offset = max(0, parse_int("offset", given.get("offset", "0")))
    filters = tuple(parse_filter(name, value) for name, value in given.items() if name in FILTERS)
    if settings.filters == "ignored":
        filters = ()
    if settings.combine == "last":
        filters = filters[-1:]
    return Query(
        min(offset, settings.max_offset) if settings.max_offset else offset,
        min(max(limit, settings.min_limit), settings.max_limit),
        filters,
    )


class Listing:
    """Answers list requests; remembers the last filtered results until something changes."""

    def __init__(self) -> None:
        self._results: dict[tuple[object, ...], list[int]] = {}

    def read_page(self, state: State, query: Query) -> Answer:
        """The page that the query names, as the switches would have it; raises RejectedError past the end, if so."""
        state.store.show(state.clock())
        settings = state.settings
        total, read_ids = self._arrange(state, query)
        if settings.result_window:
            total = min(total, settings.result_window)
        start = query.offset
        if settings.align_offset and query.limit:
            start -= start % query.limit
        if settings.past_end == "repeat" and start >= total > 0 and query.limit:
            start = (total - 1) // query.limit * query.limit
        if settings.past_end in ("400", "404") and start >= total and start:
            raise RejectedError("There is no such page", int(settings.past_end))
        wires = state.store.read_wires(read_ids(start, min(start + query.limit, total)))
        shown_total = max(0, total + settings.total_off)
        if settings.max_total:
            shown_total = min(shown_total, settings.max_total)
        if "ids" in settings.numbers_as_text:
            wires = [quote_ids(wire) for wire in wires]
        shape = b'"%d"' if "counts" in settings.numbers_as_text else b"%d"
        rows = b"null" if settings.past_end == "null" and not wires else b"[%s]" % b",".join(wires)
        counts = (shape % number for number in (shown_total, query.offset, query.limit))
        body = b'{"success":true,"SubscribersList":{"TotalCount":%s,"Offset":%s,"Limit":%s,"Subscribers":%s}}'
        return Answer(200, body % (*counts, rows))

    def _arrange(self, state: State, query: Query) -> tuple[int, Callable[[int, int], list[int]]]:
        """(how many there are, the ids from one place to before another) in the order of the switches."""
        order = state.settings.order
        late = _draw_late(state)
        if late:
            ids = [each for each in self._arrange_all(state, query) if each not in late]
            if order == "shuffled":
                state.random.shuffle(ids)
            return len(ids), lambda start, stop: ids[start:stop]
        if not query.filters or query.base_id is not None:
            shelf = state.store.shelf(by_email=order == "email", base_id=query.base_id)
            return len(shelf), _read_shelf(shelf, order, state)
        found = self._find(state, query.filters)
        if order == "shuffled":
            return len(found), lambda start, stop: state.random.sample(found, len(found[start:stop]))
        return len(found), lambda start, stop: found[start:stop]

    def _arrange_all(self, state: State, query: Query) -> list[int]:
        """The ids of the whole result, in order (shuffled ones in id order)."""
        if query.filters and query.base_id is None:
            return self._find(state, query.filters)
        order = state.settings.order
        shelf = state.store.shelf(by_email=order == "email", base_id=query.base_id)
        ids = shelf.read_ids(0, len(shelf))
        return ids[::-1] if order == "id_desc" else ids

    def _find(self, state: State, filters: tuple[Filter, ...]) -> list[int]:
        """All that match, in order (shuffled ones in id order); remembered until the store's next change."""
        settings, store = state.settings, state.store
        switched = (settings.filters, settings.blind_filters, settings.combine, settings.order)
        key = (filters, *switched, store.version, state.epoch)
        if key not in self._results:
            is_any_blind = any(is_blind(each, settings.blind_filters) for each in filters)
            found = [] if is_any_blind else _filter(state, filters, _narrow(state, filters))
            found.sort(key=store.sort_key if settings.order == "email" else None, reverse=settings.order == "id_desc")
            while len(self._results) >= _KEPT_RESULTS:
                del self._results[next(iter(self._results))]
            self._results[key] = found
        return self._results[key]


def _draw_late(state: State) -> set[int]:
    """The subscribers that are on the list, but not yet on the replica that this request is read from."""
    lags_ms = state.settings.replica_lags_ms
    if not lags_ms:
        return set()
    return state.store.find_late(state.clock(), state.random.choice(lags_ms) / 1000, max(lags_ms) / 1000)


def _read_shelf(shelf: Shelf, order: str, state: State) -> Callable[[int, int], list[int]]:
    total = len(shelf)
    if order == "id_desc":
        return lambda start, stop: shelf.read_ids(max(0, total - stop), max(0, total - start))[::-1]
    if order == "shuffled":  # a page of a random order is a random sample
        return lambda start, stop: [
            shelf.read_id(place) for place in state.random.sample(range(total), max(0, min(stop, total) - start))
        ]
    return shelf.read_ids


def _filter(state: State, filters: tuple[Filter, ...], ids: list[int]) -> list[int]:
    store, settings = state.store, state.settings
    if len(filters) == 1 and filters[0].name == "IsActive":
        return [each for each in ids if store.is_active(each) is filters[0].value]
    passes = build_test(filters, settings.filters, settings.combine)
    return [each for each in ids if passes(store.read_subscriber(each))]


def _narrow(state: State, filters: tuple[Filter, ...]) -> list[int]:
    """The few that an index leaves as possible, or everybody; all visible."""
    store = state.store
    candidates: list[int] | None = None
    if state.settings.combine != "any" or len(filters) == 1:
        is_whole = state.settings.filters in ("exact", "icase")
        for each in filters:
            if each.name == "Id":
                candidates = [int(each.value)]
            elif each.name == "Email" and is_whole and str(each.value).strip():
                candidates = store.find_email(str(each.value))
            elif each.name == "ClientUserId" and is_whole and str(each.value).strip():
                candidates = store.find_client_user_id(str(each.value))
    if candidates is not None:
        return [each for each in candidates if store.is_visible(each)]
    shelf = store.shelf(by_email=False, base_id=None)
    return shelf.read_ids(0, len(shelf))
