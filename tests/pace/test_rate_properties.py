"""The rate controller stays within its bounds for any events in any order."""

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal

from hypothesis import example, given, strategies as st

from connector.pace.rate import RateController

TIME_TOLERANCE_S = 2e-9
EventKind = Literal["admit", "served", "refused"]
Event = tuple[EventKind, float, int, float | None]
"""An event: its kind, the seconds after the last event, the index of the request, and the pause that a refusal asks
for."""

delays = st.one_of(st.just(0.0), st.floats(0, 0.1), st.floats(0, 10), st.sampled_from([300.0, 1e5]))
pauses = st.one_of(st.none(), st.sampled_from([0.0, 0.05, 1.0, 120.0]), st.floats(0, 1e4))
events = st.tuples(st.sampled_from(["admit", "served", "refused"]), delays, st.integers(0, 50), pauses)
ceilings = st.sampled_from([inf, 1e4, 100.0, 1.0, 0.01])


@dataclass(slots=True)
class SimulatedController:
    """Applies events to a rate controller. `sent_times` has the times of the requests in flight."""

    controller: RateController
    ceiling: float
    now: float = 0.0
    pause_ends_at: float = -inf
    sent_times: list[float] = field(default_factory=list)

    def apply_event(self, event: Event) -> None:
        event_kind, delay_s, request_index, pause_s = event
        self.now += delay_s
        if event_kind == "admit":
            self._admit()
        elif self.sent_times:
            sent_at = self.sent_times.pop(request_index % len(self.sent_times))
            if event_kind == "served":
                self.controller.record_served_request(sent_at, self.now)
            else:
                self.controller.record_refusal(sent_at, self.now, pause_s)
                self.pause_ends_at = max(self.pause_ends_at, self.now + (pause_s or 0.0))
        assert 0 < self.controller.rate <= self.ceiling

    def wait(self) -> float:
        """Return the seconds that the controller makes a sender wait, and move the time forward by these seconds."""
        wait_s = self.controller.admit_or_compute_wait(self.now)
        self.now += wait_s
        return wait_s

    def _admit(self) -> None:
        wait_s = self.controller.admit_or_compute_wait(self.now)
        assert isfinite(wait_s)
        assert wait_s >= 0
        if not wait_s:
            assert self.now >= self.pause_ends_at - TIME_TOLERANCE_S
            self.sent_times.append(self.now)


@given(st.lists(events, max_size=200), ceilings, st.sampled_from([0.0, 1e6]))
@example([("admit", 0.0, 0, None), ("refused", 0.0, 0, None)] * 20, inf, 0.0)
@example([("admit", 0.1, 0, None), ("refused", 0.1, 0, 1.0)] * 50, 100.0, 0.0)
@example([("admit", 0.0, 0, None), ("served", 0.0, 0, None)] * 100, inf, 1e6)
def test_the_controller_stays_within_its_bounds_for_any_order_of_events(
    events_in_order: list[Event], ceiling: float, start_time: float
) -> None:
    simulated_controller = SimulatedController(RateController(ceiling), ceiling, start_time)

    for event in events_in_order:
        simulated_controller.apply_event(event)


@given(st.lists(events, max_size=200))
def test_a_sender_may_send_after_a_few_waits(events_in_order: list[Event]) -> None:
    """Check that the sender waits at most five times. The controller returns the length of each wait."""
    simulated_controller = SimulatedController(RateController(), inf)

    for event in events_in_order:
        simulated_controller.apply_event(event)

    assert 0 in [simulated_controller.wait() for _ in range(5)]
