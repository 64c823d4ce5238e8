"""Finds out by counts whether the list shows some classes of subscribers only to a request for the class.

A load that looks subscribers up by filters alone never reads the list. Filters leave out the same classes as the list
does, so nobody is absent by a filter before these counts.
"""

from functools import partial

from connector.listing.access import ListAccess
from connector.listing.controls import Ask, are_as_asked
from connector.listing.evidence import PARTITIONS, Question, Topic, ask_together
from connector.listing.pages import try_page
from connector.paging.certificate import HiddenClass
from connector.service.wire import LARGEST_PAGE, ListQuery, read_field

_SAMPLE = 50  # rows of a part that are compared with the question


async def learn_hidden_classes(access: ListAccess) -> tuple[HiddenClass, ...]:
    """Return the classes that the list hides, and record them in the state of the look-ups. Ask once in a run."""
    state = access.state
    if not state.are_classes_known:
        asking = find_hidden_classes(partial(try_page, access.client, access.retrier), access.policy.max_concurrency)
        found = await access.control.until_stopped(asking)
        state.hidden = tuple(dict.fromkeys([*state.hidden, *found]))
        state.are_classes_known = True
    return state.hidden


async def find_hidden_classes(ask: Ask, at_once: int) -> list[HiddenClass]:
    """Return the classes that the list shows only to a request for the class: of which the first page has no row, in a
    partition whose parts exceed the whole. Ask seven questions, at most `at_once` at a time."""
    questions = [
        Question(Topic.WHOLE, ListQuery(limit=LARGEST_PAGE)),
        *(
            Question(Topic.PART, ListQuery(limit=_SAMPLE, **{name: value}), name, value)  # type: ignore[arg-type]
            for name, values in PARTITIONS.items()
            for value in values
        ),
        Question(Topic.WHOLE, ListQuery(limit=_SAMPLE)),
    ]
    first, *parts, last = await ask_together(ask, questions, at_once)
    if first.page is None or first.total is None or last.total is None:
        return []
    hidden = list[HiddenClass]()
    for name in PARTITIONS:
        answers = [each for each in parts if each.question.name == name]
        counts = {
            each.question.value: each.total
            for each in answers
            if each.page is not None and each.total and are_as_asked({name: each.question.value}, each.page.subscribers)
        }
        shown = {read_field(row, name) or ("" if name == "gender" else False) for row in first.page.subscribers}
        if sum(counts.values()) > min(first.total, last.total):
            hidden += [(name, value) for value in counts if value not in shown]
    return hidden
