"""The pace of requests under a limit that nobody has told: found, held just below, and tried again.

Theory of operation. While nothing is refused the rate doubles (START). A refusal shows the limit: what was served in
the second before it is at least what is allowed. From then on the rate is held a little below that estimate (HOLD),
and raised by steps that widen, from half a percent to a third (GROW), until the next refusal. Refused while growing,
the size of the rise tells whether the limit has risen, or only what had been left unused in a bucket was spent. Refused
while holding, the limit has come down, or the estimate was too high: what is served between refusals is measured
(`refused.Pressure`) and is the estimate from then on. When all is refused for long, single probes go out until one is
served; how long that took tells the length of the limiter's window (`windows.Windows`).

Everything is attributed to the time at which a request was sent, and refusals of what was sent before the last cut say
nothing new. Pure: the time comes in, in seconds of a clock that does not go back.
"""

from enum import Enum
from math import inf

from connector.pace.deliveries import Deliveries
from connector.pace.first import FirstEstimate
from connector.pace.noise import Noise
from connector.pace.pauses import Pauses
from connector.pace.refused import Pressure, Row
from connector.pace.trip_time import TripTime
from connector.pace.windows import Windows

_FIRST_RATE = 20.0
_LOWEST_RATE = 0.1
_STEPS = (1.005, 1.01, 1.02, 1.04, 1.07, 1.12, 1.2, 1.3)  # of the estimate
_FURTHER = 1.3  # and each further step, of the one before
_SHORTEST_STEP_S = 0.4
_SENT_IN_STEP = 8
_ROOM = 0.978  # of the estimate, while it is held
_ROOM_AFTER_FALL = 0.95  # at first, after a fall by a fifth or more: what was measured holds what a bucket had left
_FALL = 0.8
_SHORTEST_HOLD_S = 5.0
_SENT_IN_HOLD = 140  # at least, so that the refusals of one rise are few among them
_WINDOWS_IN_HOLD = 1.5
_PAUSES_IN_HOLD = 120  # where a refusal costs a pause, rises are rare: pauses of up to 1.5 s take 1 % of the time
_LONGEST_HOLD_S = 180.0
_CHEAP_PAUSE_S = 3.0
_FINE_ESTIMATE = 20.0  # requests/s; what is counted in a second is coarse below
_LONGEST_COUNT_S = 60.0  # however slow it is: a limit that has risen is found within minutes
_SAVED_S = 2.0  # a bucket keeps about what it gains in a second
_LOWEST_AFTER_BLOCK = 1 / 8  # of what was proved: all may have been refused for a while, by an outage
_LOWEST_AFTER_PAUSE = 1 / 2  # of the estimate: what was served in a second tells little when a part of it was a pause
_CUT_AFTER_PAUSE = 0.9  # at most: a refusal may come of requests that arrived together
_UNEXPLAINED = 1.015  # a rise by so much is believed at once, were it only for what a bucket had kept
_FIRST_PROBE_S = 0.1
_LAST_PROBE_S = 1.0
_RARER = 1.3
_SLACK_S = 0.005  # a sender that wakes up late makes up for so much at once
_MOST_LOST_S = 0.5  # and for so much in time, by gaps a little shorter: that leaves a third of the room to chance
_SHORTER = 0.015
_NOT_BINDING = 4.0  # a rate so many times what is served is not what holds the requests back: it need not grow
_RESTORED = 1.3  # times the estimate, when cutting has turned out to be in vain
_LONGEST_WAIT_S = 1.0  # for requests of another kind, of which it is not known whether they count
_HAIR_S = 1e-9  # sums of floats may miss a moment by rounding


class Phase(Enum):
    """What the controller is doing."""

    START = "start"
    HOLD = "hold"
    GROW = "grow"


class RateController:
    """Says when the next request may leave; `ceiling`, requests/s, is never exceeded."""

    def __init__(self, ceiling: float = inf) -> None:
        self.phase = Phase.START
        self.rate = min(_FIRST_RATE, ceiling)  # requests/s
        self.trip = TripTime()
        self._ceiling = ceiling
        self._estimate = inf  # what the limiter is taken to allow, requests/s
        self._deliveries, self._others, self._row, self._windows = Deliveries(), Deliveries(), Row(), Windows()
        self._pauses, self._noise = Pauses(), Noise()
        self._pressure = Pressure(self._deliveries, self._others)
        self._began_at: float | None = None
        self._due_at = -inf  # the next request's time, by the rate
        self._lost_s = 0.0  # by waking up late, while the rate is held
        self._first: FirstEstimate | None = None  # as long as it holds, and its window may be told more of
        self._proved = 0.0  # the last estimate at which nothing was refused for a whole hold
        self._since = 0.0  # when the phase, or its present step, began
        self._step = 0
        self._served_in_step = 0
        self._cut_at = -inf  # when the rate was last cut
        self._cycle_at = 0.0  # when the request was sent whose refusal led to that
        self._refused_at = -inf  # when the last refusal came
        self._highest = inf  # the estimate before the present row of cuts
        self._unused = 0.0  # requests that were allowed in this cycle and not sent, by the time it grew
        self._probe_s: float | None = None  # between single probes; None unless all is refused

    def admit(self, now: float) -> float:
        """0 when a request may leave, which is then taken to leave; otherwise the seconds until one may."""
        self._move_on(now)
        due_at = max(self._due_at, self._pauses.until)
        if due_at > now + _HAIR_S:
            return due_at - now
        if self._began_at is None:
            self._began_at = self._cycle_at = self._since = now
            self._windows.begin(now)
        if self._probe_s is None:
            self._lost_s = min(self._lost_s + max(0.0, now - _SLACK_S - due_at), _MOST_LOST_S)
            self._due_at = max(self._due_at, now - _SLACK_S) + self._shorten(self._pauses.quicken(1 / self.rate, now))
        else:
            self._due_at = now + self._probe_s
            self._probe_s = min(self._probe_s * _RARER, _LAST_PROBE_S)
        return 0.0

    def make_room(self, number: int, now: float) -> None:
        """So many requests of another kind have left: where one limit is for all, these take places of ours."""
        self._others.add(now, number)
        if self.phase is not Phase.START:
            self._due_at += min(number / self.rate, max(0.0, now + _LONGEST_WAIT_S - self._due_at))

    def note_served(self, sent_at: float, now: float) -> None:
        """A request that was sent then was answered by anything but a refusal for its rate."""
        self._deliveries.add(sent_at)
        self.trip.note(now - sent_at)
        if self._probe_s is not None and sent_at > self._row.last_at:
            self._end_block(sent_at, now)
        self._row.end()
        if sent_at >= self._cut_at:
            self._noise.note_served()
        elif self._first is not None and self._first.note_late(sent_at):
            self._estimate = self._first.rate
            self._set_rate(_ROOM * self._estimate)
        if self.phase is Phase.START:
            self._served_in_step += 1
            if self._served_in_step >= max(2.0, self.rate * self.trip.mean_s / 2):
                self._double(now)

    def note_refused(self, sent_at: float, now: float, retry_after_s: float | None = None) -> None:
        """A request that was sent then was refused for its rate (429); nothing leaves for `retry_after_s`."""
        self._row.add(sent_at)
        self._refused_at = now
        if retry_after_s:  # made up for only at a rate that has been held: else it would itself be refused
            self._pauses.note(sent_at, now, retry_after_s, self.rate if self._proved else 0.0)
        if self._probe_s is not None:
            return
        if self.phase is Phase.HOLD and self._row.is_block(self._windows, self.trip.mean_s):
            self._probe_s = max(_FIRST_PROBE_S, 2 / self.rate)
        elif sent_at >= self._cut_at:
            self._noise.note_refused()
            if self.phase is Phase.HOLD:
                self._judge_fall(sent_at, now, is_paused=bool(retry_after_s))
            elif self.phase is Phase.GROW and not self._noise.explains():
                self._cut(self._judge_rise(sent_at), sent_at, now)
            elif self.phase is Phase.START and not self._noise.explains_start():
                self._end_start(sent_at, now, is_paused=bool(retry_after_s))

    def _shorten(self, gap_s: float) -> float:
        """The time until the next request, less a part of what was lost by waking up late."""
        may_be_faster = self.phase is Phase.HOLD and self.rate <= (1 - _SHORTER) * self._ceiling
        if self._lost_s <= 0 or not may_be_faster:
            return gap_s
        made_up_s = min(self._lost_s, _SHORTER * gap_s)
        self._lost_s -= made_up_s
        return gap_s - made_up_s

    # Moving on, when the time has come

    def _move_on(self, now: float) -> None:
        if self._probe_s is not None:
            return
        if self.phase is Phase.HOLD and now >= self._since + self._settling_s() and self._is_calm(now):
            if now >= self._since + self._hold_s():
                self._begin_growth(now)
            elif self.rate < _ROOM * self._estimate and self._is_estimate_good:
                self._set_rate(_ROOM * self._estimate)
        elif self.phase is Phase.GROW and now >= self._since + self._step_s() and self._is_binding(now):
            self._step += 1
            if self._step == len(_STEPS) + 2:
                self._windows.forget()
            self._grow(now)

    @property
    def _is_estimate_good(self) -> bool:
        """Whether what was measured before a pause is what is allowed, and no bucket's rest; and worth a pause."""
        is_cheap = self._pauses.cost_s <= _CHEAP_PAUSE_S and self._estimate >= _FINE_ESTIMATE
        return is_cheap and not self._pauses.can_make_up

    def _settling_s(self) -> float:
        of_count = min(_SENT_IN_HOLD / self._estimate, _LONGEST_COUNT_S)
        return max(_SHORTEST_HOLD_S, of_count, _WINDOWS_IN_HOLD * self._windows.waited_s)

    def _hold_s(self) -> float:
        return max(self._settling_s(), min(_PAUSES_IN_HOLD * self._pauses.cost_s, _LONGEST_HOLD_S))

    def _is_calm(self, now: float) -> bool:
        """Whether nothing that was sent since the cut has been refused for a window."""
        return (
            self._refused_at <= self._cut_at
            or self._noise.explains()
            or now >= self._refused_at + self.trip.mean_s + self._windows.length_s
        )

    def _begin_growth(self, now: float) -> None:
        self._noise.note_calm()
        self._proved, self._first = self._estimate, None
        told_until = now - self.trip.mean_s - self.trip.margin_s
        told = self._estimate * (told_until - self._cycle_at) - self._deliveries.count(self._cycle_at, told_until)
        untold = (1 - _ROOM) * self._estimate * (now - told_until)
        self._unused = min(max(0.0, told + untold), _SAVED_S * self._estimate)
        self.phase, self._step = Phase.GROW, 0
        self._grow(now)

    def _grow(self, now: float) -> None:
        further = _FURTHER ** max(0, self._step - len(_STEPS) + 1)
        self._set_rate(self._estimate * _STEPS[min(self._step, len(_STEPS) - 1)] * further)
        self._since = now
        self._noise.begin()

    def _step_s(self) -> float:
        of_window = self._windows.waited_s / (4 if self._step < len(_STEPS) else 10)
        return max(1.2 * self.trip.mean_s, _SHORTEST_STEP_S, _SENT_IN_STEP / self.rate, of_window)

    def _is_binding(self, now: float) -> bool:
        """Whether the rate is what holds the requests back."""
        told_until = now - self.trip.mean_s
        length_s = max(1.0, _SENT_IN_STEP / self.rate)
        return self.rate * length_s < _NOT_BINDING * self._deliveries.count(told_until - length_s, told_until)

    def _double(self, now: float) -> None:
        if self.rate * (now - self._since) < _NOT_BINDING * self._served_in_step:
            self._set_rate(2 * self.rate)
        self._since, self._served_in_step = now, 0
        self._noise.begin()

    # What a refusal says

    def _end_start(self, sent_at: float, now: float, *, is_paused: bool) -> None:
        """The first cut."""
        if not is_paused:
            self._cut(self._read_last_second(sent_at), sent_at, now)
            return
        length_s, is_dear = self._windows.length_s, self._pauses.cost_s > _CHEAP_PAUSE_S
        others = self._others.count(sent_at - length_s, sent_at)
        first = FirstEstimate(sent_at, length_s, self._count_last_second(sent_at), others, is_pause_dear=is_dear)
        self._cut(first.rate, sent_at, now)
        self._first = first

    def _read_last_second(self, sent_at: float) -> float:
        """What was served just before a refusal, a second: no less than what is allowed."""
        length_s = min(self._windows.length_s, sent_at - (self._began_at or 0.0)) or 1 / _FIRST_RATE
        return self._count_last_second(sent_at) / length_s

    def _count_last_second(self, sent_at: float) -> float:
        """How many were served in the window before."""
        return max(1.0, self._deliveries.count(sent_at - self._windows.length_s, sent_at))

    def _judge_rise(self, sent_at: float) -> float:
        """The new estimate, refused while growing.

        A bucket serves what it has kept besides its rate: then what it served in the whole cycle is its rate.
        """
        end = sent_at - self.trip.margin_s
        length_s = max(self._windows.length_s, min(20 / self._estimate, 4.0))
        just_served = self._deliveries.count(end - length_s, end) / length_s
        cycle_s = max(sent_at - self._cycle_at, 1 / _FIRST_RATE)
        served = self._deliveries.count(self._cycle_at, sent_at)
        beyond = served - self._estimate * cycle_s
        if beyond > 1.3 * (self._unused + 1) + 3 + 0.2 * self._estimate * self.trip.mean_s:
            return max(just_served, self._estimate)
        explained = max(served / cycle_s, self._estimate)
        return max(min(just_served, _UNEXPLAINED * explained), self._estimate)

    def _judge_fall(self, sent_at: float, now: float, *, is_paused: bool) -> None:
        """Refused while holding: cut to what is served, once that can be told, unless cutting has not helped."""
        if is_paused:
            measured: float | None = self._judge_paused(sent_at)
        else:
            measured = self._pressure.measure(sent_at - self.trip.margin_s, self._windows, self._estimate)
        if measured is None or self._noise.explains() or self._noise.is_to_be_seen(is_paused=is_paused):
            return
        if self._noise.is_left(is_paused=is_paused):
            self._cut(min(self._highest, _RESTORED * self._estimate), sent_at, now)
            return
        before = self._estimate
        self._highest = before if self._noise.is_first_cut else max(self._highest, before)
        self._noise.note_cut()
        self._cut(measured if measured < 0.985 * before else 0.975 * before, sent_at, now)
        if measured < _FALL * before:
            self._set_rate(_ROOM_AFTER_FALL * self._estimate)

    def _judge_paused(self, sent_at: float) -> float:
        """The new estimate, refused while holding, and a pause asked for: no two refusals to measure between.

        The pause lets a bucket fill: what it served in the cycle, pauses and all, is its rate. If the first estimate is
        refused, what it counted besides creates did not count.
        """
        first = self._first if self._first is not None and self._first.is_open else None
        estimate = first.alone if first is not None else self._estimate
        cycle_s = max(sent_at - self._cycle_at, 1 / _FIRST_RATE)
        if cycle_s > 10 * self._pauses.cost_s and first is None:
            return 0.985 * estimate
        of_bucket = self._pauses.measure_bucket(sent_at, self._deliveries, self._windows.length_s)
        if of_bucket is not None:
            return min(estimate, max(_CUT_AFTER_PAUSE * estimate, of_bucket))
        if first is not None:
            return estimate
        if self._pauses.has_overdone:
            return min(self._estimate, self._read_last_second(sent_at))
        served = self._deliveries.count(self._cycle_at, sent_at) / cycle_s
        just_served = max(self._read_last_second(sent_at), _LOWEST_AFTER_PAUSE * self._estimate)
        return min(just_served, max(_CUT_AFTER_PAUSE * self._estimate, served))

    def _end_block(self, sent_at: float, now: float) -> None:
        self._probe_s, self._due_at = None, now
        length_s = self._windows.open(self._row.began_at, sent_at)
        if length_s is not None:
            served = self._deliveries.count(sent_at - length_s, sent_at) / self._windows.length_s
            self._cut(max(served, _LOWEST_AFTER_BLOCK * self._proved), sent_at, now)

    def _cut(self, estimate: float, sent_at: float, now: float) -> None:
        """Hold the rate at what is taken to be allowed."""
        self._first = None
        self.phase, self._estimate = Phase.HOLD, max(estimate, _LOWEST_RATE)
        self._since = self._cut_at = now
        self._cycle_at = sent_at
        self._lost_s = 0.0
        self._pressure = Pressure(self._deliveries, self._others)
        self._set_rate(_ROOM * self._estimate)

    def _set_rate(self, rate: float) -> None:
        """Change the pace, that of the next request included."""
        self.rate, before = min(rate, self._ceiling), self.rate
        if self._probe_s is None:
            self._due_at += 1 / self.rate - 1 / before
