"""The service at the far end: the sandbox's own, in the same process and on virtual time, with each deed traced to the
request that asked for it. It outlives the processes that call it."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import orjson

from connector.sandbox.connection import Request
from connector.sandbox.service import Peer, Sandbox, Service
from connector.sandbox.subscriber import RejectedError
from connector.sandbox.switches import SandboxSettings, change_settings
from connector.sandbox.truth import Fate
from tests.simulation.calls import Call, Record, Stored
from tests.simulation.people import People
from tests.simulation.timeline import Timeline

TOKEN = "a-token-of-the-simulation"


class FarEnd:
    """The service, and those who reach it by another way."""

    def __init__(self, timeline: Timeline, settings: Mapping[str, object], people: People, record: Record) -> None:
        self._timeline = timeline
        self._people = people
        self._record = record
        stance = change_settings(SandboxSettings(), settings)
        self.state = Sandbox(stance, TOKEN, None, timeline.read, timeline.read_wall)
        self._service = Service(self.state, cast("Any", self._call_later))
        lag_s = (stance.list_lag_ms + max(stance.replica_lags_ms, default=0.0)) / 1000
        self._lag_s = float("inf") if "unconfirmed" in stance.hide else lag_s  # no request shows who was created
        self._serving: Call | None = None
        self._traced = 0
        self._latest: dict[int, Stored] = {}

    def receive(self, call: Call, request: Request, peer: Peer) -> None:
        """A request has arrived."""
        call.arrived_at = self._timeline.now_s
        self._serve(call, lambda: self._service.receive(request, peer))

    def put(self, wire: Mapping[str, object]) -> None:
        """Somebody comes into a base by another way."""
        try:
            self.state.create_subscriber(orjson.dumps({"Subscriber": wire}), Fate.UNASKED)
        except RejectedError:
            return  # the service has them already, and says so to whomever it was
        self._trace(None)

    def _call_later(self, delay_s: float, act: Callable[[], None]) -> None:
        """The service's timers: what they set off later is still the deed of the request being served now."""
        call = self._serving
        self._timeline.call_later(delay_s, lambda: self._serve(call, act))

    def _serve(self, call: Call | None, act: Callable[[], None]) -> None:
        outer, self._serving = self._serving, call
        try:
            act()
        finally:
            self._serving = outer
        self._trace(call)

    def _trace(self, call: Call | None) -> None:
        """Read what the truth log has told since, and whose deed it was."""
        if self.state.truth.sequence == self._traced:
            return
        events = orjson.loads(self.state.truth.read_events(self._traced))
        self._traced = self.state.truth.sequence
        for event in events:
            stored = self._read(event, call)
            self._latest[stored.subscriber_id] = stored
            self._record.stored.append(stored)
            if call is not None:
                call.stored.append(stored)
            whose = f"by request {call.number}" if call is not None else "by another way"
            verb = "updated" if stored.is_update else "stored"
            self._record.tell(
                stored.at, f"service: {verb} {stored.subscriber_id} (person {stored.person}) {whose}, {stored.fate}"
            )

    def _read(self, event: Mapping[str, Any], call: Call | None) -> Stored:
        now, wire = self._timeline.now_s, event["subscriber"]
        return Stored(
            at=now,
            shown_at=now + self._lag_s,
            subscriber_id=event["id"],
            base_id=event["base_id"],
            person=self._people.recognise(wire),
            first_name=wire.get("FirstName") or "",
            fate=event["answered"],
            is_update=event["kind"] == "updated",
            by=call,
            previous=self._latest.get(event["id"]),
        )
