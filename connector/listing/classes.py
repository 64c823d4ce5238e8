"""Finds out by counts whether the list shows some classes of subscribers only to a request for the class.

A load that looks subscribers up by filters alone never reads the list. Filters leave out the same classes as the list
does, so nobody is absent by a filter before these counts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from connector.listing.access import ListAccess
from connector.listing.controls import Ask, are_as_asked
from connector.listing.evidence import ask_combinations, ask_together, combine_classes
from connector.listing.pages import try_page
from connector.listing.questions import PARTITIONS, Question, Topic
from connector.listing.requests import try_unlisted
from connector.paging.certificate import Counts, HiddenClass, Says, decide_counts
from connector.service.wire import LARGEST_PAGE, ListQuery, read_field

_SAMPLE = 50  # rows of a part that are compared with the question
_SMALLEST = 2  # the smallest first id that has an id below


async def learn_hidden_classes(access: ListAccess, *, is_again: bool = False) -> tuple[HiddenClass, ...]:
    """Return the classes that the list hides, and record them in the state of the look-ups. Ask once in a run, and with
    `is_again` once more: a create of this run may be the first of its class."""
    state = access.state
    if not state.are_classes_known or (is_again and not state.hidden):
        ask, at_once = partial(try_page, access.client, access.retrier), access.policy.max_concurrency
        counts = await access.control.until_stopped(count_classes(ask, at_once))
        found = await access.control.until_stopped(find_hidden_classes(ask, counts, at_once))
        unlisted = await access.control.until_stopped(_find_older(ask, counts.ids))
        await access.control.until_stopped(try_unlisted(access, unlisted))
        state.hidden = tuple(dict.fromkeys([*state.hidden, *found]))
        state.unshown = counts.unshown
        state.are_classes_known = True
    return state.hidden


async def find_hidden_classes(ask: Ask, counts: "ClassCounts", at_once: int) -> list[HiddenClass]:
    """Return the classes that the list shows only to a request for the class: of which the first page has no row, in a
    partition whose parts exceed the whole. Add the classes that only a request for several of them at once shows."""
    hidden = list[HiddenClass]()
    for name, parts in counts.parts.items():
        # without TotalCount, the rows alone tell
        if len(counts.wholes) < 2 or sum(parts.values()) > min(counts.wholes):
            hidden += [(name, value) for value, number in parts.items() if number and value not in counts.shown[name]]
    rows_of = await ask_combinations(ask, combine_classes(counts.unshown, fewest=2), at_once)
    return list(dict.fromkeys([*hidden, *(each for combination in rows_of for each in combination)]))


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
    for each in parts:
        name, value = each.question.name, each.question.value
        if each.page is not None and are_as_asked({name: value}, each.page.subscribers):
            counts[name][value] = (each.total or len(each.page.subscribers)) if each.page.subscribers else 0
    rows = first.page.subscribers
    shown = {
        name: {read_field(row, name) or ("" if name == "gender" else False) for row in rows} for name in PARTITIONS
    }
    wholes = [each for each in (first.total, last.total) if each is not None]
    return ClassCounts(wholes, counts, shown, [row.get("Id") for row in rows])


async def _find_older(ask: Ask, ids: Sequence[object]) -> list[int]:
    """Return the id below the first of these ids, if the list is in ascending order and the id has a subscriber."""
    numbers = [each for each in ids if type(each) is int]
    if not numbers or numbers != sorted(numbers) or numbers[0] < _SMALLEST:
        return []
    older = numbers[0] - 1
    page = await ask(ListQuery(limit=_SAMPLE, id=older))
    return [older] if page is not None and [row.get("Id") for row in page.subscribers] == [older] else []
