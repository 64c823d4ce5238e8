"""The facts of each person, from the truth log of the service and the times of every request."""

from dataclasses import dataclass, field

from connector.load.lookups import LOOKED_UP_AS_SENT
from tests.simulation.calls import Call, Stored
from tests.simulation.network import MIXED_UP
from tests.simulation.world import Played, World

_STATUSES = ("blocked_status", "limit_status", "quota_status")


@dataclass(slots=True)
class Truth:
    """A played world, looked at person by person; only the base that their rows are for counts."""

    world: World
    _stored: dict[int, list[Stored]] = field(default_factory=dict)
    _calls: dict[int, list[Call]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stored in self.world.record.stored:
            if stored.person and stored.base_id == self.world.find_base(stored.person):
                self._stored.setdefault(stored.person, []).append(stored)
        for call in self.world.record.calls:
            if call.operation == "create":
                self._calls.setdefault(call.person, []).append(call)

    @property
    def persons(self) -> list[int]:
        """Everybody of ours, whether a row told of them or not."""
        return list(self.world.scenario.people.persons)

    def find_stored(self, person: int) -> list[Stored]:
        """Each time that the service stored them, by whomever."""
        return self._stored.get(person, [])

    def find_ours(self, person: int) -> list[Stored]:
        """Each time that a request of ours did."""
        return [stored for stored in self.find_stored(person) if stored.by is not None]

    def find_calls(self, person: int, night: int | None = None) -> list[Call]:
        """Their creates (of one night), in the order in which they left; those that never left are none."""
        calls = self._calls.get(person, [])
        return [call for call in calls if call.has_left and night in (None, call.night)]

    def is_in_doubt(self, call: Call) -> bool:
        """Whether the process could not know that this create had no effect (architecture 2); a success is no doubt
        either, but may not be sent again just the same."""
        return not call.is_refusal or bool(call.stored)

    def is_forgotten(self, first: Call, second: Call) -> bool:
        """Whether the ledger was lost or put back between two creates."""
        between = [played.night for played in self.world.played if first.night < played.number <= second.night]
        return any(night.ledger != "kept" for night in between)

    def is_released(self, first: Call, second: Call) -> bool:
        """Whether a person has decided since the first of them what becomes of those who are held."""
        since = [played.night.retry for played in self.world.played if first.night <= played.number <= second.night]
        return any(retry is not None and retry.held != "leave" for retry in since)

    def is_misdirected(self, person: int) -> bool:
        """Whether one of their creates was answered with somebody else."""
        calls = self.find_calls(person)
        spelled = self.world.scenario.people.persons[person].spellings
        if "alter_identity" in self.world.scenario.settings and any("+" in subscriber for subscriber in spelled):
            return True
        stored = [subscriber for call in calls for subscriber in call.stored]
        is_wrong = any(subscriber.is_taken or subscriber.fate == "wrong_answer" for subscriber in stored)
        return is_wrong or any(call.seen == MIXED_UP for call in calls)

    def is_discarded(self, person: int) -> bool:
        """Return whether the service answered one of the person's creates with success and stored nothing."""
        return any(call.seen in ("200", "201") and not call.stored for call in self.find_calls(person))

    def is_acceptable(self, person: int) -> bool:
        """Whether the service takes them as the last two nights, which say the same, have them."""
        told = sum(played.night.retry is None for played in self.world.played)
        return self.world.scenario.people.persons[person].accepted_from < told

    @property
    def is_list_unreadable(self) -> bool:
        """Whether the service's stance is such that nobody can be known to be absent by its list: shuffled, in several
        pages; or cut off."""
        settings = self.world.scenario.settings
        is_in_pages = settings.get("max_limit") != 1000 or len(self.world.scenario.strangers) >= 900
        return (settings.get("order") == "shuffled" and is_in_pages) or "result_window" in settings

    @property
    def shows_nobody_created(self) -> bool:
        """Whether no request ever shows a subscriber that a create has stored."""
        return self._has_hidden("unconfirmed")

    @property
    def hides_old_ids(self) -> bool:
        """Whether the list and its filters by identity leave out subscribers with old ids."""
        return self._has_hidden("old_ids")

    @property
    def has_provisional_ids(self) -> bool:
        """Whether a create is answered with another Id than the list shows."""
        return "provisional_ids" in self.world.scenario.settings

    def _has_hidden(self, name: str) -> bool:
        hidden = self.world.scenario.settings.get("hide", ())
        return isinstance(hidden, list) and name in hidden

    @property
    def has_unclear_refusals(self) -> bool:
        """Return whether the answer to a refused row has neither the status nor the words of a refusal."""
        settings = self.world.scenario.settings
        is_wordless = settings.get("error_status") == 200 and settings.get("error_shape") in ("html", "empty")
        return is_wordless and not all(map(self.is_acceptable, self.persons))

    @property
    def has_passing_refusals(self) -> bool:
        """Return whether a night's service refuses creates for a while, whatever their rows say."""
        storms = [night.storm.switches for night in self.world.scenario.nights if night.storm is not None]
        return any(name in switches for switches in storms for name in _STATUSES)

    def is_hidden_by_spelling(self, played: Played, person: int) -> bool:
        """Return whether the night says that it cannot see subscribers in other capitals, and the person has such
        spellings."""
        is_told = played.report is not None and LOOKED_UP_AS_SENT in played.report.tally.messages
        spellings = self.world.scenario.people.persons[person].spellings
        return is_told and len({spelling.strip() for spelling in spellings}) > 1

    def when_known_to_end(self, call: Call) -> float:
        """When the quiet period of an attempt begins (architecture 4.5): at its end or, where its process died, when
        the next one found it."""
        if call.seen != "died":
            return call.ended_at if call.ended_at is not None else float("inf")
        following = [played.began_at for played in self.world.played if played.number > call.night]
        return following[0] if following else float("inf")

    def is_foreseen(self, stored: Stored) -> bool:
        """Whether the rule of architecture 4.5 covers what a request of ours stored, so that nobody may be sent again
        for it.

        Not covered, since no client can wait for it: what the service executes later than a quiet period after the
        attempt ended; and what its list shows later than two of them and than twice the largest lag on record, unless
        the run could see by somebody else that the list lags.
        """
        if stored.by is None:
            return False
        end, quiet_s = self.when_known_to_end(stored.by), self.world.scenario.quiet_s
        if stored.at <= end:
            seen_s = max(2 * quiet_s, 2 * self._find_lag_on_record(stored.by, end))
            return stored.shown_at <= end + seen_s or self._has_witness(stored.by, end)
        return stored.at <= end + quiet_s and stored.shown_at <= end + 2 * quiet_s

    def _find_lag_on_record(self, call: Call, end: float) -> float:
        """The largest lag that the ledger knew of when the night began that sent this person again."""
        nights = [other.night for other in self.find_calls(call.person) if other.sent_at > end]
        return self.world.played[nights[0] - 1].largest_lag_s if nights else 0.0

    def _has_witness(self, call: Call, end: float) -> bool:
        """Whether the run that sent this person again had confirmed somebody since the attempt ended."""
        again = [other for other in self.find_calls(call.person) if other.sent_at > end]
        return bool(again) and any(
            later.operation == "create"
            and later.night == again[0].night
            and later.seen in ("200", "201")
            and later.ended_at is not None
            and end < later.ended_at < again[0].sent_at
            for later in self.world.record.calls
        )
