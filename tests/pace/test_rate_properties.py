"""Whatever happens, in whatever order, the rate controller stays within its bounds."""

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal

from hypothesis import example, given, strategies as st

from connector.pace.rate import RateController

HAIR_S = 2e-9
What = Literal["admit", "served", "refused"]
Event = tuple[What, float, int, float | None]  # what, after how long (s), of which request, and the pause asked for

delays = st.one_of(st.just(0.0), st.floats(0, 0.1), st.floats(0, 10), st.sampled_from([300.0, 1e5]))
pauses = st.one_of(st.none(), st.sampled_from([0.0, 0.05, 1.0, 120.0]), st.floats(0, 1e4))
events = st.tuples(st.sampled_from(["admit", "served", "refused"]), delays, st.integers(0, 50), pauses)
ceilings = st.sampled_from([inf, 1e4, 100.0, 1.0, 0.01])


@dataclass(slots=True)
class Played:
    """What was asked of one controller: which requests are under way, and until when nothing may leave."""

    controller: RateController
    ceiling: float
    now: float = 0.0
    until: float = -inf
    under_way: list[float] = field(default_factory=list)

    def play(self, event: Event) -> None:
        what, delay_s, which, pause_s = event
        self.now += delay_s
        if what == "admit":
            self._admit()
        elif self.under_way:
            sent_at = self.under_way.pop(which % len(self.under_way))
            if what == "served":
                self.controller.record_served(sent_at, self.now)
            else:
                self.controller.record_refused(sent_at, self.now, pause_s)
                self.until = max(self.until, self.now + (pause_s or 0.0))
        assert 0 < self.controller.rate <= self.ceiling

    def wait(self) -> float:
        """What a sender is told, who then waits for so long (s)."""
        wait_s = self.controller.admit(self.now)
        self.now += wait_s
        return wait_s

    def _admit(self) -> None:
        wait_s = self.controller.admit(self.now)
        assert isfinite(wait_s)
        assert wait_s >= 0
        if not wait_s:
            assert self.now >= self.until - HAIR_S
            self.under_way.append(self.now)


@given(st.lists(events, max_size=200), ceilings, st.sampled_from([0.0, 1e6]))
@example([("admit", 0.0, 0, None), ("refused", 0.0, 0, None)] * 20, inf, 0.0)
@example([("admit", 0.1, 0, None), ("refused", 0.1, 0, 1.0)] * 50, 100.0, 0.0)
@example([("admit", 0.0, 0, None), ("served", 0.0, 0, None)] * 100, inf, 1e6)
def test_waits_are_never_negative_rates_never_beyond_the_ceiling_and_pauses_kept(
    happened: list[Event], ceiling: float, begun_at: float
) -> None:
    played = Played(RateController(ceiling), ceiling, begun_at)

    for event in happened:
        played.play(event)


@given(st.lists(events, max_size=200))
def test_who_waits_as_long_as_told_is_let_go(happened: list[Event]) -> None:
    """Each wait leads to a request within a few more: nobody is sent away for ever."""
    played = Played(RateController(), inf)

    for event in happened:
        played.play(event)

    assert 0 in [played.wait() for _ in range(5)]
