"""Looks people up by the list's filters, one request a spelling, between controls that say what the answers are worth.

Whom a filter shows is there. Whom it does not show is missed only if every answer was whole, and the controls of each
spelling's class passed before and after it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from connector.load.looks.controls import Checked, check_filters, has_control
from connector.load.looks.listed import BaseReader
from connector.load.looks.lookups import Shown, look_up, look_up_together
from connector.load.looks.sighting import Sighting, Wanted
from connector.load.looks.surveying import take_survey
from connector.load.looks.visibility import Visibility, find_visibility
from connector.load.session import Session
from connector.subscribers import SpellingClass, build_spellings, classify, has_spellings_by_case_alone

_BATCH = 300  # identities between two rounds of controls: a filter that stops working spoils no more than these


async def look_by_filter(session: Session, wanted: Sequence[Wanted]) -> Sighting:
    """Look for these identities by filters alone; one that tells capitals apart misses nobody `in_any_spelling`.

    Raises ListFailed when the service does not answer, RunAborted when the base is not the one that was meant or the
    run is to stop.
    """
    await take_survey(session)
    questions = [_build_question(each) for each in wanted]
    fields = sorted({each.field for each in wanted})
    reader = BaseReader(session.journal.base, session.asked_name, fields, session.inactive)
    return await session.until_stopped(_FilterLook(session, questions, reader).carry_out())


def can_tell(session: Session, each: Wanted) -> bool:
    """Whether a filter may tell that this identity is missed: there is somebody to make each control with.

    The list must have been surveyed.
    """
    question = _build_question(each)
    if question.needs_case_blind and session.lookout.tells_capitals_apart:
        return False
    return not question.has_hidden_spellings and all(has_control(session, each) for each in question.classes)


def count_requests(wanted: Sequence[Wanted]) -> int:
    """The requests of `look_by_filter`, controls included, when each control passes at once and the survey is there."""
    questions = [_build_question(each) for each in wanted]
    classes = _classes_of(questions)
    of_case = 2 * any(each.needs_case_blind for each in questions)
    controls = len(classes) + len({each.field for each in classes}) + of_case
    rounds = 1 + -(-len(questions) // _BATCH)
    return sum(len(each.texts) for each in questions) + rounds * controls + 1  # and a witness


@dataclass(frozen=True, slots=True)
class _Question:
    """Somebody wanted, with the texts to ask for and their classes.

    `needs_case_blind`: spellings in other capitals count, which only a filter that is blind to them finds;
    `has_hidden_spellings`: there may be some that no filter is known to find.
    """

    wanted: Wanted
    texts: tuple[str, ...] = field(repr=False)
    classes: frozenset[SpellingClass]
    needs_case_blind: bool
    has_hidden_spellings: bool

    def is_told_by(self, checked: Checked) -> bool:
        """Whether the controls allow to say that they are missed."""
        is_case_covered = checked.is_case_blind or not self.needs_case_blind
        return is_case_covered and not self.has_hidden_spellings and self.classes <= checked.passed

    def is_askable(self, checked: Checked) -> bool:
        """Whether the filter may at least find them."""
        return not self.classes & checked.failed


def _build_question(wanted: Wanted) -> _Question:
    texts = build_spellings(wanted.field, wanted.value)
    return _Question(
        wanted,
        texts,
        frozenset(classify(wanted.field, text) for text in texts),
        needs_case_blind=wanted.in_any_spelling and wanted.field == "email",
        has_hidden_spellings=wanted.in_any_spelling and not has_spellings_by_case_alone(wanted.field, wanted.value),
    )


def _classes_of(questions: Iterable[_Question]) -> frozenset[SpellingClass]:
    return frozenset().union(*(each.classes for each in questions))


@dataclass(slots=True)
class _FilterLook:
    """One look in progress."""

    session: Session
    questions: Sequence[_Question]
    reader: BaseReader
    found: dict[bytes, set[int]] = field(default_factory=dict)
    missed: set[bytes] = field(default_factory=set)

    async def carry_out(self) -> Sighting:
        session = self.session
        session.activity = f"looking for {len(self.questions):,} by the list's filters"
        started_at = session.clock.monotonic()
        visibility, checked = Visibility(), await self._check()
        if self._is_worth_asking(checked):
            fields = sorted({each.wanted.field for each in self.questions})
            visibility = await find_visibility(session, checked, started_at, fields)  # before anybody else is looked up
        for start in range(0, len(self.questions), _BATCH):
            if not self._is_worth_asking(checked):
                break
            batch = self.questions[start : start + _BATCH]
            shown = await self._ask([each for each in batch if each.is_askable(checked)])
            before, checked = checked, await self._check()
            self._note_missed(batch, shown, before, checked)
        found = {identity: tuple(sorted(ids)) for identity, ids in self.found.items()}
        missed = frozenset(self.missed.difference(found))
        return Sighting(found, missed, visibility.latest_seen_at, visibility.lag_s, started_at)

    async def _check(self) -> Checked:
        with_case = any(each.needs_case_blind for each in self.questions)
        return await check_filters(self.session, _classes_of(self.questions), with_case=with_case)

    def _is_worth_asking(self, checked: Checked) -> bool:
        """Whether somebody may be missed; of those in doubt, it helps as well to find who is there."""
        if any(each.is_told_by(checked) for each in self.questions):
            return True
        return any(each.is_askable(checked) and not each.wanted.in_any_spelling for each in self.questions)

    async def _ask(self, batch: Sequence[_Question]) -> dict[bytes, list[Shown]]:
        """The answers to every spelling of these; whom they show is kept."""
        asked = [(each.wanted, text) for each in batch for text in each.texts]
        looks = [partial(look_up, self.session, wanted.field, text) for wanted, text in asked]
        answers = await look_up_together(self.session, looks)
        shown: dict[bytes, list[Shown]] = {}
        for (wanted, _), answer in zip(asked, answers, strict=True):
            shown.setdefault(wanted.identity, []).append(answer)
        identities = {each.wanted.identity for each in self.questions}
        for identity, subscriber_id in self.reader.read([row for answer in answers for row in answer.rows]):
            if identity in identities:
                self.found.setdefault(identity, set()).add(subscriber_id)
        return shown

    def _note_missed(
        self, batch: Sequence[_Question], shown: Mapping[bytes, Sequence[Shown]], before: Checked, after: Checked
    ) -> None:
        """All answers whole, nobody in them, and the controls passed on either side."""
        for each in batch:
            answers = shown.get(each.wanted.identity, ())
            is_whole = bool(answers) and all(answer.is_whole for answer in answers)
            if is_whole and each.is_told_by(before) and each.is_told_by(after):
                self.missed.add(each.wanted.identity)
