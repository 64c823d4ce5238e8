"""The service of a simulation: the code of the sandbox, in the same process and on virtual time.

Each stored subscriber is recorded with the request that created it. The service outlives the processes that call it.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import orjson

from connector.sandbox.connection import Request
from connector.sandbox.service import Peer, Service
from connector.sandbox.state import Sandbox
from connector.sandbox.subscriber import RejectedError
from connector.sandbox.switches import SandboxSettings, change_settings
from connector.sandbox.truth import AnswerFate
from tests.simulation.people import People
from tests.simulation.requests import Call, EventRecord, StoredSubscriber
from tests.simulation.timeline import Timeline

TOKEN = "a-token-of-the-simulation"


class SimulatedService:
    """The service, and a method with which other programs create subscribers."""

    def __init__(self, timeline: Timeline, settings: Mapping[str, object], people: People, record: EventRecord) -> None:
        self._timeline = timeline
        self._people = people
        self._record = record
        sandbox_settings = change_settings(SandboxSettings(), settings)
        self.state = Sandbox(sandbox_settings, TOKEN, None, timeline.read_monotonic_s, timeline.read_unix_s)
        self._service = Service(self.state, cast("Any", self._call_later))
        lag_s = (sandbox_settings.list_lag_ms + max(sandbox_settings.replica_lags_ms, default=0.0)) / 1000
        # The lag is infinite if no request ever shows a created subscriber.
        self._lag_s = float("inf") if "unconfirmed" in sandbox_settings.hide else lag_s
        self._current_call: Call | None = None
        self._traced_count = 0
        self._latest_by_id: dict[int, StoredSubscriber] = {}

    def receive(self, call: Call, request: Request, peer: Peer) -> None:
        """Receive a request of a process."""
        call.arrived_at = self._timeline.now_s
        self._serve_call(call, lambda: self._service.receive(request, peer))

    def create_by_other_program(self, subscriber_object: Mapping[str, object]) -> None:
        """Create a subscriber as another program does."""
        try:
            self.state.create_subscriber(orjson.dumps({"Subscriber": subscriber_object}), AnswerFate.NO_REQUEST)
        except RejectedError:
            return  # the service has the subscriber already and refuses the other program
        self._trace_call(None)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` later. The effects of `callback` count as effects of the request that is being served now."""
        call = self._current_call
        self._timeline.call_later(delay_s, lambda: self._serve_call(call, callback))

    def _serve_call(self, call: Call | None, callback: Callable[[], None]) -> None:
        outer_call, self._current_call = self._current_call, call
        try:
            callback()
        finally:
            self._current_call = outer_call
        self._trace_call(call)

    def _trace_call(self, call: Call | None) -> None:
        """Record the new events of the truth log as effects of the request `call`."""
        if self.state.event_log.last_sequence_number == self._traced_count:
            return
        events = orjson.loads(self.state.event_log.read_events(self._traced_count))
        self._traced_count = self.state.event_log.last_sequence_number
        for event in events:
            subscriber = self._build_stored_subscriber(event, call)
            self._latest_by_id[subscriber.subscriber_id] = subscriber
            self._record.stored_subscribers.append(subscriber)
            if call is not None:
                call.stored_subscribers.append(subscriber)
            origin = f"by request {call.number}" if call is not None else "by another program"
            verb = "updated" if subscriber.was_updated else "stored"
            self._record.add_line(
                subscriber.stored_at,
                f"service: {verb} {subscriber.subscriber_id} (person {subscriber.person_number}) {origin}, "
                f"{subscriber.answer_kind}",
            )

    def _build_stored_subscriber(self, event: Mapping[str, Any], call: Call | None) -> StoredSubscriber:
        now_s, subscriber_object = self._timeline.now_s, event["subscriber"]
        return StoredSubscriber(
            stored_at=now_s,
            shown_at=now_s + self._lag_s,
            subscriber_id=event["id"],
            base_id=event["base_id"],
            person_number=self._people.find_person_number(subscriber_object),
            first_name=subscriber_object.get("FirstName") or "",
            answer_kind=event["answered"],
            was_updated=event["kind"] == "updated",
            call=call,
            previous_version=self._latest_by_id.get(event["id"]),
        )
