"""Finds out whether the list shows a base, or a class of subscribers, only to a request that asks for it (architecture
4.7).

A load that looks subscribers up by filters alone never reads the list. Filters leave out the same classes as the list.
So counts of the classes come first: without the counts, a filter proves nobody absent.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from connector.fields import BY_NAME
from connector.listing.access import ListAccess, ListLag, LookupState
from connector.listing.base_reader import build_reader
from connector.listing.controls import Ask, are_as_asked
from connector.listing.evidence import ask_combinations, ask_together, combine_classes
from connector.listing.findings import PARTITIONS, Question, Topic
from connector.listing.pages import ListFailed, try_page
from connector.listing.requests import ask, look_up, read_stats, try_unlisted
from connector.paging.certificate import Counts, HiddenClass, Says, decide_counts
from connector.service.wire import LARGEST_PAGE, ListQuery, read_field

_HIDDEN_SAMPLE = 50  # subscribers of a base that no listing has shown


async def detect_hidden_base(access: ListAccess, *, is_swept: bool = False) -> bool | None:
    """Return whether the account's list hides the base, or None while the Id of an unlisted base is unknown.

    If no listing of the run has shown the base, ask with its BaseId. If the list hides the base, later sweeps of
    `access` ask with the BaseId, and filters prove nothing. `is_swept`: a complete sweep has just shown nobody of the
    base; otherwise the identity filter may show that the base is not hidden. Raises ListFailed, and RunAborted if the
    base is not the intended one or the run must stop.
    """
    state, service_id = access.state, access.journal.base.service_id
    if state.base_id is not None or access.is_base_shown:
        return state.base_id is not None
    reader, stats = build_reader(access, [access.policy.identity]), await read_stats(access)
    if any(reader.is_of_base({"Id": base_id, "Name": name}) for base_id, name in stats.bases):
        access.is_base_shown = True
        return False
    if service_id is None:
        return None
    if is_swept and service_id in state.swept_base_ids:
        return False
    rows = await access.control.until_stopped(_ask_for_base(access, service_id))
    rows = [row for row in rows if reader.is_of_base(row.get("Base"))]
    ours = {sentinel.subscriber_id: sentinel for sentinel in access.sentinels}
    others = [row for row in rows if row["Id"] not in ours]
    if not others:
        others = await access.control.until_stopped(_ask_for_classes(access, service_id))
    if not others:
        return False
    name, path = access.policy.identity, BY_NAME[access.policy.identity].path[0]
    sample = next((row for row in others if row.get(path)), None)
    if sample is not None and not is_swept:
        shown = await access.control.until_stopped(look_up(access, name, sample[path]))
        if shown.holds(sample["Id"]):
            access.is_base_shown = True
            return False
    sentinels = [ours[row["Id"]] for row in rows if row["Id"] in ours]
    for sentinel in sentinels:
        access.sentinels.remove(sentinel)
    access.lag = ListLag(deque(sentinels, maxlen=access.sentinels.maxlen), access.lag.largest_lag_s)
    access.state = LookupState(
        base_id=service_id,
        useless_fields={"email", "client_user_id"},
        shown_subscribers=state.shown_subscribers,
        subscribers_elsewhere=state.subscribers_elsewhere,
    )
    return True


async def _ask_for_base(access: ListAccess, base_id: int) -> Sequence[dict[str, Any]]:
    """Return the first subscribers that the list shows with this BaseId. A service may refuse an unknown Id."""
    try:
        return (await ask(access, ListQuery(limit=_HIDDEN_SAMPLE, base_id=base_id))).rows
    except ListFailed as failure:
        if failure.status != 404:
            raise
        return ()


async def _ask_for_classes(access: ListAccess, base_id: int) -> list[dict[str, Any]]:
    """Return subscribers of the base, without those that this run has created, that the list shows only to a request
    for the base and for other classes. These are the classes that the list has not shown without such a request."""
    classes = tuple(dict.fromkeys([*access.state.hidden_classes, *access.state.unshown_classes]))
    base_class = "base_id", base_id
    combinations = [
        combination for combination in combine_classes([*classes, base_class], fewest=2) if base_class in combination
    ]
    ask_one = partial(try_page, access.client, access.retrier)
    shown = await ask_combinations(ask_one, combinations, access.policy.max_concurrency)
    rows = [row for part in shown.values() for row in part if type(row.get("Id")) is int]
    access.known_ids.add_shown([row["Id"] for row in rows])
    ours = {sentinel.subscriber_id for sentinel in access.sentinels}
    return [row for row in rows if row["Id"] not in ours]


_SAMPLE = 50  # rows of a part that are compared with the question
_SMALLEST = 2  # the smallest first id that has an id below


async def learn_hidden_classes(access: ListAccess, *, is_again: bool = False) -> tuple[HiddenClass, ...]:
    """Return the classes that the list hides, and record them in the state of the look-ups. Ask once in a run, and with
    `is_again` once more: a create of this run may be the first of its class."""
    state = access.state
    if not state.are_classes_known or (is_again and not state.hidden_classes):
        ask, at_once = partial(try_page, access.client, access.retrier), access.policy.max_concurrency
        counts = await access.control.until_stopped(count_classes(ask, at_once))
        found = await access.control.until_stopped(find_hidden_classes(ask, counts, at_once))
        unlisted = await access.control.until_stopped(_find_older(ask, counts.ids))
        await access.control.until_stopped(try_unlisted(access, unlisted))
        state.hidden_classes = tuple(dict.fromkeys([*state.hidden_classes, *found]))
        state.unshown_classes = counts.unshown
        state.are_classes_known = True
    return state.hidden_classes


async def find_hidden_classes(ask: Ask, counts: "ClassCounts", at_once: int) -> list[HiddenClass]:
    """Return the classes that the list shows only to a request for the class: of which the first page has no row, in a
    partition whose parts exceed the whole. Add the classes that only a request for several of them at once shows."""
    hidden = list[HiddenClass]()
    for name, parts in counts.parts.items():
        # without TotalCount, the rows alone tell
        if len(counts.wholes) < 2 or sum(parts.values()) > min(counts.wholes):
            hidden += [(name, value) for value, number in parts.items() if number and value not in counts.shown[name]]
    rows_of = await ask_combinations(ask, combine_classes(counts.unshown, fewest=2), at_once)
    return list(dict.fromkeys([*hidden, *(class_ for combination in rows_of for class_ in combination)]))


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """The TotalCounts of the list before and after `parts`, and of the parts by filter and value, without the parts
    whose rows are not as asked. `shown` has the values on the first page, by filter, and `ids` its Ids."""

    wholes: Sequence[int] = ()
    parts: Mapping[str, Mapping[object, int]] = field(default_factory=dict)
    shown: Mapping[str, Collection[object]] = field(default_factory=dict)
    ids: Sequence[object] = ()

    @property
    def unshown(self) -> tuple[HiddenClass, ...]:
        """The classes of which neither the first page nor a request for the class shows a subscriber."""
        return tuple(
            (name, value)
            for name, parts in self.parts.items()
            for value, number in parts.items()
            if not number and value not in self.shown[name]
        )

    def decide(self, name: str) -> Says:
        """Return what the parts of one filter say of the list, as for a list that does not change meanwhile."""
        if len(self.wholes) < 2 or len(self.parts.get(name, {})) < len(PARTITIONS[name]):
            return Says.NOTHING
        rounds = [Counts(self.wholes[0], list(self.parts[name].values()), self.wholes[1])]
        return decide_counts(rounds, True, ()) or Says.CONTRADICTS


async def count_classes(ask: Ask, at_once: int) -> ClassCounts:
    """Count the classes of the list by seven questions, `at_once` at a time."""
    questions = [
        Question(Topic.WHOLE, ListQuery(limit=LARGEST_PAGE - 1)),
        *(
            Question(Topic.PART, ListQuery(limit=_SAMPLE, **{name: value}), name, value)  # type: ignore[arg-type]
            for name, values in PARTITIONS.items()
            for value in values
        ),
        Question(Topic.WHOLE, ListQuery(limit=_SAMPLE)),
    ]
    first, *parts, last = await ask_together(ask, questions, at_once)
    if first.page is None:
        return ClassCounts()
    counts: dict[str, dict[object, int]] = {name: {} for name in PARTITIONS}
    for part in parts:
        name, value = part.question.name, part.question.value
        if part.page is not None and are_as_asked({name: value}, part.page.subscribers):
            counts[name][value] = (part.total or len(part.page.subscribers)) if part.page.subscribers else 0
    rows = first.page.subscribers
    shown = {
        name: {read_field(row, name) or ("" if name == "gender" else False) for row in rows} for name in PARTITIONS
    }
    wholes = [total for total in (first.total, last.total) if total is not None]
    return ClassCounts(wholes, counts, shown, [row.get("Id") for row in rows])


async def _find_older(ask: Ask, ids: Sequence[object]) -> list[int]:
    """Return the id below the first of these ids, if the list is in ascending order and the id has a subscriber."""
    numbers = [subscriber_id for subscriber_id in ids if type(subscriber_id) is int]
    if not numbers or numbers != sorted(numbers) or numbers[0] < _SMALLEST:
        return []
    older = numbers[0] - 1
    page = await ask(ListQuery(limit=_SAMPLE, id=older))
    return [older] if page is not None and [row.get("Id") for row in page.subscribers] == [older] else []
