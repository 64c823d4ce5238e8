"""Whether the service's filters may be believed, and for which classes of spellings (architecture 2).

A filter that lists somebody made up is ignored by the service, and not used in this run any more. A class passes when
somebody of it who is on the list is found by a filter for their own text: best a witness of this run by the text as it
was sent, since that shows how the service treats what we send, else one who was seen on the list. A witness who does
not show may merely not show yet; that they do show by their id and not by their text is what speaks against the filter.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from connector.listing import make_up_value
from connector.load.looks.lookout import Specimen
from connector.load.looks.lookups import ask, build_query, look_up, look_up_together
from connector.load.looks.witness import Witness
from connector.load.session import Session
from connector.service import ListQuery
from connector.subscribers import SpellingClass, classify

_WITNESSES_TRIED = 2  # the first of the run, likeliest to show by now; another, should that one have been erased
_PLAIN_EMAILS = SpellingClass("email", frozenset())


@dataclass(frozen=True, slots=True)
class Checked:
    """What controls said: the classes that `passed`; those that `failed`, or whose field's filter tells nothing (for
    all others there was nobody to try with); the witnesses shown; whether the filter by email finds other capitals."""

    passed: frozenset[SpellingClass] = frozenset()
    failed: frozenset[SpellingClass] = frozenset()
    shown: tuple[Witness, ...] = ()
    is_case_blind: bool = False


@dataclass(frozen=True, slots=True)
class _Tried:
    """How the controls of one class ended: by whom it passed, if it did; whether they told anything at all."""

    by: Witness | Specimen | None = None
    is_told: bool = True


async def check_filters(session: Session, classes: Collection[SpellingClass], *, with_case: bool = False) -> Checked:
    """Make one positive control for each class and one negative for each field; with `with_case`, see also whether the
    filter by email finds texts in other capitals.

    Raises ListFailed.
    """
    useful = await _find_useful(session, sorted({each.field for each in classes}))
    asked = sorted((each for each in classes if each.field in useful), key=lambda each: sorted(each.traits))
    tried = await look_up_together(session, [partial(_try_class, session, each) for each in asked])
    is_case_blind = with_case and "email" in useful and await _is_case_blind(session)
    passed = {each for each, result in zip(asked, tried, strict=True) if result.by is not None}
    untried = {each for each, result in zip(asked, tried, strict=True) if not result.is_told}
    return Checked(
        frozenset(passed),
        frozenset(classes).difference(passed, untried),
        tuple(result.by for result in tried if isinstance(result.by, Witness)),
        is_case_blind,
    )


def has_control(session: Session, spelling_class: SpellingClass) -> bool:
    """Whether there is anybody to try the filter with for this class; the list must have been surveyed."""
    lookout = session.lookout
    if spelling_class.field in lookout.useless:
        return False
    if lookout.survey is not None and spelling_class in lookout.survey.specimens:
        return True
    return next(_find_witnesses(session, spelling_class), None) is not None


async def _find_useful(session: Session, fields: Collection[str]) -> list[str]:
    """The fields whose filters list nobody when asked for somebody made up."""
    asked = [each for each in fields if each not in session.lookout.useless]
    shown = await look_up_together(session, [partial(ask, session, _build_nobody(session, each)) for each in asked])
    session.lookout.useless.update(each for each, answer in zip(asked, shown, strict=True) if answer.rows)
    return [each for each, answer in zip(asked, shown, strict=True) if answer.is_whole and not answer.rows]


def _build_nobody(session: Session, name: str) -> ListQuery:
    return build_query(name, make_up_value(name, session.draw))


async def _try_class(session: Session, spelling_class: SpellingClass) -> _Tried:
    """By witnesses first, then by those who were seen on the list; the first verdict counts."""
    for witness in islice(_find_witnesses(session, spelling_class), _WITNESSES_TRIED):
        verdict = await _try_witness(session, witness)
        if verdict is not None:
            return _Tried(witness if verdict else None)
    survey = session.lookout.survey
    specimens = survey.specimens.get(spelling_class, []) if survey is not None else []
    for specimen in specimens:
        if (await look_up(session, spelling_class.field, specimen.text)).proves(specimen.subscriber_id):
            return _Tried(specimen)
    return _Tried(is_told=bool(specimens))


async def _try_witness(session: Session, witness: Witness) -> bool | None:
    """Whether the filter finds somebody by the text as it was sent; None when they do not show by their id either."""
    look_up_text = partial(look_up, session, witness.field, witness.value)
    if (await look_up_text()).proves(witness.subscriber_id):
        return True
    if not (await ask(session, ListQuery(id=witness.subscriber_id))).holds(witness.subscriber_id):
        return None
    return (await look_up_text()).proves(witness.subscriber_id)  # they may have begun to show in between


def _find_witnesses(session: Session, spelling_class: SpellingClass) -> Iterator[Witness]:
    """Those whose text as sent is of this class, the first confirmed first."""
    for witness in tuple(session.witnesses):
        if witness.field == spelling_class.field and classify(witness.field, witness.value) == spelling_class:
            yield witness


async def _is_case_blind(session: Session) -> bool:
    """Whether emails are found by a text in other capitals: those kept with some by one without, plain ones by one in
    capitals throughout. Once it was not so, it is not tried again in this run."""
    survey, lookout = session.lookout.survey, session.lookout
    if survey is None or lookout.tells_capitals_apart:
        return False
    capital = [(each, each.text.lower()) for each in survey.find_with_capitals()]
    plain = [(each, each.text.upper()) for each in survey.specimens.get(_PLAIN_EMAILS, ())]
    groups = [group for group in (capital, plain) if group]
    found = await look_up_together(session, [partial(_finds_any, session, group) for group in groups])
    lookout.tells_capitals_apart = not all(found)
    return bool(found) and all(found)


async def _finds_any(session: Session, asked: list[tuple[Specimen, str]]) -> bool:
    """Whether the filter finds one of these by the text that goes with them; some may have vanished."""
    for specimen, text in asked:
        if (await look_up(session, "email", text)).proves(specimen.subscriber_id):
            return True
    return False
