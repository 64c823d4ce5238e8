"""The facts about each person, from the truth log of the service and the times of every request."""

from dataclasses import dataclass, field

from connector.load.lookups import LOOKED_UP_AS_SENT
from tests.simulation.calls import Call, StoredSubscriber
from tests.simulation.network import MIXED_UP_ENDING
from tests.simulation.world import PlayedNight, World

_STATUSES = ("blocked_status", "limit_status", "quota_status")


@dataclass(slots=True)
class Truth:
    """The facts of a played world by person. Subscribers count only in the base that the person's rows are for."""

    world: World
    _stored: dict[int, list[StoredSubscriber]] = field(default_factory=dict)
    _calls: dict[int, list[Call]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for subscriber in self.world.record.stored_subscribers:
            if subscriber.person and subscriber.base_id == self.world.find_base(subscriber.person):
                self._stored.setdefault(subscriber.person, []).append(subscriber)
        for call in self.world.record.calls:
            if call.operation == "create":
                self._calls.setdefault(call.person, []).append(call)

    @property
    def persons(self) -> list[int]:
        """The numbers of all people of the scenario, with or without rows."""
        return list(self.world.scenario.people.persons)

    def find_stored(self, person: int) -> list[StoredSubscriber]:
        """Return each subscriber that the service stored for a person, whoever created the subscriber."""
        return self._stored.get(person, [])

    def find_ours(self, person: int) -> list[StoredSubscriber]:
        """Return each subscriber that our creates stored for a person."""
        return [subscriber for subscriber in self.find_stored(person) if subscriber.call is not None]

    def find_calls(self, person: int, night: int | None = None) -> list[Call]:
        """Return the creates of a person that left, in their order, in all nights or in one night."""
        calls = self._calls.get(person, [])
        return [call for call in calls if call.has_left and night in (None, call.night)]

    def is_in_doubt(self, call: Call) -> bool:
        """Return whether the create may have had an effect (architecture 2), so that it must not be sent again at once.

        Every create may have had an effect, except a refusal that stored nothing.
        """
        return not call.is_refusal or bool(call.stored_subscribers)

    def is_forgotten(self, first_call: Call, second_call: Call) -> bool:
        """Return whether the ledger was lost or restored between two creates."""
        nights_between = [
            played_night.night
            for played_night in self.world.played_nights
            if first_call.night < played_night.number <= second_call.night
        ]
        return any(night.ledger != "kept" for night in nights_between)

    def is_released(self, first_call: Call, second_call: Call) -> bool:
        """Return whether a retry has released or dropped held entries between two creates."""
        retries_between = [
            played_night.night.retry
            for played_night in self.world.played_nights
            if first_call.night <= played_night.number <= second_call.night
        ]
        return any(retry is not None and retry.held_decision != "leave" for retry in retries_between)

    def is_misdirected(self, person: int) -> bool:
        """Return whether one of the person's creates was answered with another person, or may have been."""
        calls = self.find_calls(person)
        spellings = self.world.scenario.people.persons[person].spellings
        if "alter_identity" in self.world.scenario.settings and any("+" in spelling for spelling in spellings):
            return True
        subscribers = [subscriber for call in calls for subscriber in call.stored_subscribers]
        is_wrong = any(subscriber.is_moved or subscriber.fate == "wrong_answer" for subscriber in subscribers)
        return is_wrong or any(call.ending == MIXED_UP_ENDING for call in calls)

    def is_discarded(self, person: int) -> bool:
        """Return whether the service answered one of the person's creates with success and stored nothing."""
        return any(call.ending in ("200", "201") and not call.stored_subscribers for call in self.find_calls(person))

    def is_acceptable(self, person: int) -> bool:
        """Return whether the service accepts the rows of the person in the last two nights, which have equal rows."""
        source_night_count = sum(played_night.night.retry is None for played_night in self.world.played_nights)
        return self.world.scenario.people.persons[person].accepted_from < source_night_count

    @property
    def is_list_unreadable(self) -> bool:
        """Whether the list can prove no absence: it is shuffled and has several pages, or it is cut off."""
        settings = self.world.scenario.settings
        is_in_pages = settings.get("max_limit") != 1000 or len(self.world.scenario.strangers) >= 900
        return (settings.get("order") == "shuffled" and is_in_pages) or "result_window" in settings

    @property
    def shows_nobody_created(self) -> bool:
        """Whether no request ever shows the subscribers that creates have stored."""
        return self._has_hidden("unconfirmed")

    @property
    def hides_old_ids(self) -> bool:
        """Whether the list and its filters by identity leave out subscribers with old ids."""
        return self._has_hidden("old_ids")

    @property
    def has_provisional_ids(self) -> bool:
        """Whether the Id in the answer to a create differs from the Id in the list."""
        return "provisional_ids" in self.world.scenario.settings

    def _has_hidden(self, name: str) -> bool:
        hidden_names = self.world.scenario.settings.get("hide", ())
        return isinstance(hidden_names, list) and name in hidden_names

    @property
    def has_unclear_refusals(self) -> bool:
        """Whether the answer to a refused row has neither the status nor the text of a refusal."""
        settings = self.world.scenario.settings
        is_wordless = settings.get("error_status") == 200 and settings.get("error_shape") in ("html", "empty")
        return is_wordless and not all(map(self.is_acceptable, self.persons))

    @property
    def has_passing_refusals(self) -> bool:
        """Whether the service refuses all creates for a while in one of the nights."""
        storms = [night.storm.switches for night in self.world.scenario.nights if night.storm is not None]
        return any(name in switches for switches in storms for name in _STATUSES)

    def is_hidden_by_spelling(self, played_night: PlayedNight, person: int) -> bool:
        """Return whether the report warns about subscribers in other capitals, and the person has several spellings."""
        is_warned = played_night.report is not None and LOOKED_UP_AS_SENT in played_night.report.tally.messages
        spellings = self.world.scenario.people.persons[person].spellings
        return is_warned and len({spelling.strip() for spelling in spellings}) > 1

    def find_quiet_start(self, call: Call) -> float:
        """Return when the quiet period of an attempt begins (architecture 4.5).

        It begins at the end of the attempt or, if the process died, at the start of the next night.
        """
        if call.ending != "died":
            return call.ended_at if call.ended_at is not None else float("inf")
        later_start_times = [
            played_night.began_at for played_night in self.world.played_nights if played_night.number > call.night
        ]
        return later_start_times[0] if later_start_times else float("inf")

    def is_covered(self, subscriber: StoredSubscriber) -> bool:
        """Return whether the rule of architecture 4.5 covers a subscriber, so that the create must not be sent again.

        Two kinds of subscribers are not covered, because no client can wait for them:

        - The service stores the subscriber more than a quiet period after the end of the attempt.
        - The list shows the subscriber later than two quiet periods and than twice the largest lag on record, and no
          other subscriber shows the run that the list lags.
        """
        if subscriber.call is None:
            return False
        end, quiet_s = self.find_quiet_start(subscriber.call), self.world.scenario.quiet_s
        if subscriber.stored_at <= end:
            covered_s = max(2 * quiet_s, 2 * self._find_lag_on_record(subscriber.call, end))
            return subscriber.shown_at <= end + covered_s or self._has_sentinel(subscriber.call, end)
        return subscriber.stored_at <= end + quiet_s and subscriber.shown_at <= end + 2 * quiet_s

    def _find_lag_on_record(self, call: Call, end: float) -> float:
        """Return the largest lag on record at the start of the night that sent the person's next create."""
        nights = [create.night for create in self.find_calls(call.person) if create.sent_at > end]
        return self.world.played_nights[nights[0] - 1].largest_lag_s if nights else 0.0

    def _has_sentinel(self, call: Call, end: float) -> bool:
        """Return whether the run that sent the next create had another create confirmed after the end of the
        attempt."""
        later_creates = [create for create in self.find_calls(call.person) if create.sent_at > end]
        return bool(later_creates) and any(
            other_call.operation == "create"
            and other_call.night == later_creates[0].night
            and other_call.ending in ("200", "201")
            and other_call.ended_at is not None
            and end < other_call.ended_at < later_creates[0].sent_at
            for other_call in self.world.record.calls
        )
