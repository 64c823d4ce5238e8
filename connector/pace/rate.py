"""The pace of requests under a limit that the service does not name: found from what it serves and what it refuses.

Theory of operation (docs/pace.md). Until the first refusal the rate doubles. From then on it runs in ramps: from a
lower bound of what the limiter allows to an upper bound, and beyond that ever faster, until the next refusal, which
gives the bounds of the next ramp. Nothing of the limiter's shape is presumed. That page says where a rule may fail. Of
`served` requests in `sent_s` seconds since the last pause, and a pause of `paused_s`:

- the limit is at least served / (sent_s + paused_s): no limiter saves up more in a pause than its rate is worth;
- it is at least (served - burst) / sent_s: no limiter gives more besides its rate than it gave when it was fresh;
- where two ramps were refused at much the same rate, that rate is the limit, and the next ramp begins just below;
- where all is refused until later than was asked for, it is a window, and served / (sent_s + paused_s) is its rate;
- where the limiter is full again after as much as it gave when it was fresh, in more than a second, and has not served
  evenly, as a bucket mostly does, it is taken for a window as long as that took; so long its refusals say nothing new;
- of a window, a rate is allowed that was kept for two windows without a refusal, and what the last one served is all;
- where two ramps were served the same mean, pauses included, the limiter gives back what a pause costs;
- of few requests whose refusal costs no pause, the limit lies between what was served and what was sent in the mean;
- what is refused without a pause, and in the same share at a low rate as at a high one, is refused by chance.

How long a ramp takes follows from what a refusal costs: its pause or, without one, the requests whose refusal it takes
to tell a limit from chance, and they are the same share of what is sent as pauses are of the time. A rate that lies a
share s too low loses s of each second: so a bracket of width s is crossed in about two pauses / s, a wide one at once
and a narrow one slowly, and never more slowly than one pause in so many as can be afforded. So a steady limit is met
once in a while, one that has risen is found by the end of the ramp, and one that has fallen by its first refusals.

Everything counts by the time at which a request was sent, and refusals of what was sent before the last cut say nothing
new. Pure: the time comes in, in seconds of a clock that does not go back.
"""

from dataclasses import dataclass, replace
from math import exp, inf, log, ulp

_FIRST_RATE = 20.0  # requests/s: any service serves so many for the moment that the first doublings take
_FIRST_BURST = 10  # requests that leave unspaced: what any server is sent of a new connection (RFC 6928)
_SECOND = 1.0  # what no run notices: the unit of free refusals, the rarest of single probes, the most made up for
_FREE_S = 0.3  # the least that the end of a ramp is taken to cost: shorter ramps mistake chance for a limit
_PAUSES_APART = 30.0  # so many pauses of work after each: 1/31 and half of _ROOM are lost, where 5 % may be,
_DEAR_PAUSES_APART = 16.0  # and 1/17, where 10 % may: a pause of _DEAR_S or longer (both by the promise)
_DEAR_S = 10.0
_ROOM = 0.015  # from the least that a ramp begins below its end, of which half is lost
_TOLERATED = 0.01  # of the requests may be refused where that costs no pause
_REPEATS = 3  # tell a rule from chance: refusals in a row, ramps refused early, windows and round trips in a ramp
_FALLEN = 4.0  # a limit may have halved, and a bucket gives hardly half of that after a pause
_LONGEST_WINDOW_S = 61.0  # what is refused for longer than a minute is an outage
_SLACK_S = 0.005  # a sender that wakes up late makes up for so much at once: a loop's turn
_HALVED_IN_S = 86_400.0  # a guess is worth half a day later: limits change with contracts and load, not by the hour


@dataclass(frozen=True, slots=True)
class Found:
    """What a run found of a limit: its bounds (requests/s), what it gave before its first refusal (requests), the pause
    that a refusal costs and the longest window that has shown (s)."""

    low: float
    high: float
    burst: float
    pause_s: float
    window_s: float

    def scale(self, factor: float) -> "Found":
        """Return the limit multiplied by `factor`: the limit of all shards from one shard's, or the other way round."""
        return replace(self, low=self.low * factor, high=self.high * factor, burst=self.burst * factor)


class _Ramp:
    """From `low` to `high` requests/s in `length_s` seconds, then the probe; `at_s` is how far it has come."""

    __slots__ = ("at_s", "growth", "high", "length_s", "low", "probe_s")

    def __init__(self, low: float, high: float, length_s: float, trip_s: float) -> None:
        self.low, self.high, self.length_s, self.at_s = low, high, length_s, 0.0
        self.growth = log(high / low) / length_s
        self.probe_s = 2 * max(_SECOND, _REPEATS * trip_s)

    def move(self, seconds: float) -> float:
        """Go on so far, and return the rate there (requests/s): by a fifth at most between two requests."""
        if self.at_s < self.length_s:
            seconds = min(seconds, 0.2 / self.growth)
        self.at_s += max(seconds, 0.0)
        return self.compute_rate(self.at_s)

    def compute_rate(self, at_s: float) -> float:
        """Return the rate (requests/s) so long after the ramp has begun."""
        if at_s < self.length_s:
            return self.low * exp(self.growth * at_s)
        beyond = min((at_s - self.length_s) / self.probe_s, 30.0)
        return self.high * (1 + _ROOM / 2 * (exp(beyond) - 1))

    @property
    def is_early(self) -> bool:
        """Whether it is in its first half, where only what had been overestimated is refused."""
        return self.at_s < self.length_s / 2


class _Row:
    """Refusals with nothing served between, from the one that ended a ramp: after `served` requests in `sent_s`."""

    __slots__ = ("began_at", "gap_s", "last_at", "number", "sent_s", "served")

    def __init__(self, served: float, sent_s: float, began_at: float, gap_s: float) -> None:
        self.served, self.sent_s, self.number, self.gap_s = served, sent_s, 1, gap_s
        self.began_at = self.last_at = began_at


class _Fill:
    """What the limiter has served since it was full, at `full_at`: `served` requests from `begun_at` on, in one ramp or
    in several that were refused early. `is_uneven`: not the same in each second, pauses included, as a bucket does."""

    __slots__ = ("begun_at", "full_at", "is_uneven", "served")

    def __init__(self, full_at: float) -> None:
        self.full_at, self.begun_at, self.served, self.is_uneven = full_at, inf, 0.0, False


@dataclass(frozen=True, slots=True)
class _End:
    """How a ramp has ended: a request was refused that was sent at `sent_at`, `sent_s` after the last pause, at `rate`.
    The ramp was served `mean` with the pause before it, `proved` is allowed (all in requests/s), and the refusal asks
    for a pause of `pause_s`."""

    sent_at: float
    sent_s: float
    rate: float
    mean: float
    proved: float
    pause_s: float


_Bounds = tuple[float, float, float]
"""Of the next ramp: from and to (requests/s), and the least that it takes (s)."""


class RateController:
    """Says when the next request may leave; `ceiling`, requests/s, is never exceeded.

    `found` is what an earlier run found, `age_s` ago.
    """

    def __init__(self, ceiling: float = inf, found: Found | None = None, age_s: float = 0.0) -> None:
        self.rate = min(_FIRST_RATE, ceiling)  # requests/s
        self._ceiling = ceiling
        self._trip_s = 0.1  # mean round trip of single attempts
        self._due_at = self._left_at = -inf  # the next request's time by the rate, and when the last one left
        self._paused_until = self._cut_at = -inf
        self._ramp: _Ramp | None = None  # None: no limit has shown
        self._row: _Row | None = None  # None: requests are served
        self._step_at, self._served_in_step = 0.0, 0
        self._unspaced, self._unspaced_until = 0 if found else _FIRST_BURST, -inf  # still to leave, and when they did
        self._doubled = _FIRST_RATE  # requests/s, what was served in the last step of doubling
        self._resumed_at = inf  # since when requests leave again
        self._served = self._refused = self._in_a_row = 0  # since then
        self._burst = 0.0  # requests that the limiter let pass before its first refusal
        self._fresh_until = -inf  # when the one that was refused first was sent
        self._cost_s, self._paused_s = 0.0, inf  # the pause that was asked for last, and how long the last one was
        self._window_s = 0.0  # the longest window that has shown
        self._full_s = 0.0  # the longest that a window may stay full, where it has shown by what it served
        self._fill = _Fill(-inf)  # of the limiter, since it was full
        self._proved = 0.0  # requests/s that the last ramp that was not refused early proves to be allowed
        self._last_refused = inf  # requests/s, where the last ramp ended
        self._last_served, self._last_sent_s = 0.0, 1.0  # requests that the last ramp was served, in so many seconds
        self._last_mean = 0.0  # requests/s, that ramp with the pause before it
        self._early = 0  # ramps in a row that were refused early
        self._tolerated = _TOLERATED
        if found is not None:
            self._burst, self._cost_s, self._window_s = found.burst, found.pause_s, found.window_s
            least = min(_FIRST_RATE, found.low / _FALLEN)  # the oldest guess says no less than none would
            self._proved = max(found.low * 0.5 ** (max(age_s, 0.0) / _HALVED_IN_S), least)
            self._begin_ramp(self._proved, found.high, at=inf)

    @property
    def found(self) -> Found | None:
        """What is known of the limit by now; None while none has shown."""
        ramp = self._ramp
        if ramp is None:
            return None
        proved = (self._served - self._burst) / max(self._left_at - self._resumed_at, 1 / self.rate)
        low = max(
            ramp.low, min(proved, ramp.high)
        )  # a short run is not refused again, and would begin as low each time
        return Found(low, max(ramp.high, self.rate), self._burst, self._cost_s, self._window_s)

    def admit(self, now: float) -> float:
        """0 when a request may leave, which is then taken to leave; otherwise the seconds until one may."""
        wait_s = max(self._due_at, self._paused_until) - now
        if wait_s > 2 * ulp(now):  # sums of floats miss a moment by rounding
            return wait_s
        self._leave(now)
        return 0.0

    def reserve(self, now: float) -> float:
        """Take the next place for a request, and return the seconds after which it may leave, pauses apart.

        Its sender limits itself otherwise, as one that reads a list does: only a limit that has shown holds it back.
        """
        if self._ramp is None and self._ceiling == inf:
            return 0.0
        leaves_at = max(now, self._due_at)
        self._leave(leaves_at)
        return leaves_at - now

    def note_served(self, sent_at: float, now: float) -> None:
        """A request that was sent then was answered by anything but a refusal for its rate."""
        self._trip_s += 0.1 * (now - sent_at - self._trip_s)
        self._in_a_row = 0
        row = self._row
        if row is not None and sent_at >= self._cut_at and sent_at > row.last_at:
            self._end_row(row, sent_at)
        if sent_at < self._resumed_at:
            self._burst += sent_at <= self._fresh_until  # answers come in any order
            return
        self._served += 1
        if self._ramp is None and sent_at > self._unspaced_until:
            self._served_in_step += 1
            if self._served_in_step >= max(2.0, self.rate * self._trip_s / 2):
                self._double(now)

    def note_refused(self, sent_at: float, now: float, retry_after_s: float | None = None) -> None:
        """A request that was sent then was refused for its rate (429); nothing leaves for `retry_after_s`."""
        if retry_after_s:
            self._paused_until = max(self._paused_until, now + retry_after_s)
        if sent_at < self._cut_at:
            return
        if self._row is not None:
            self._row.number += 1
            self._row.last_at = max(self._row.last_at, sent_at)
            return
        self._refused += 1
        self._in_a_row += 1
        in_a_row = round(_REPEATS * log(_TOLERATED) / log(self._tolerated))
        is_chance = self._in_a_row < in_a_row and self._refused < in_a_row + self._tolerated * self._served
        if self._ramp is not None and not self._ramp.is_early and self.rate < _REPEATS / _FREE_S:
            is_chance = is_chance and self._refused > 1  # three are a large share of few, and one is expected here
        if retry_after_s or not is_chance:
            pause_s = retry_after_s or 0.0
            self._paused_until = max(self._paused_until, now + pause_s)
            self._end_ramp(sent_at, now, pause_s)

    # Between refusals

    def _leave(self, at: float) -> None:
        """A request leaves then; the next by the rate."""
        if self._resumed_at == inf:
            self._resumed_at = self._step_at = at
        if self._ramp is not None and self._row is None:
            since_s = at - max(self._left_at, self._resumed_at)
            if since_s * self.rate <= _FALLEN:  # else it is not the rate that holds requests back, and need not grow
                self.rate = min(self._ramp.move(since_s), self._ceiling)
        gap_s = 1 / self.rate
        if self._ramp is None and self._unspaced > 0:
            self._unspaced -= 1
            self._unspaced_until = self._step_at = at
            gap_s = 1 / self._ceiling if self._unspaced > 0 else gap_s
        due_at = max(self._due_at, self._paused_until)
        self._due_at = max(due_at, at - _SLACK_S) + gap_s
        if self._row is not None and self._row.number >= _REPEATS:  # all is refused: single probes
            self._due_at = max(self._due_at, at + self._row.gap_s)
            self._row.gap_s = min(2 * self._row.gap_s, _SECOND)
        self._left_at = at

    def _double(self, now: float) -> None:
        if self.rate * (now - self._step_at) < _FALLEN * self._served_in_step:
            self.rate = min(2 * self.rate, self._ceiling)
        self._doubled = self._served_in_step / max(now - self._step_at, ulp(now))
        self._step_at, self._served_in_step = now, 0

    # What a refusal says

    def _end_ramp(self, sent_at: float, now: float, pause_s: float) -> None:
        """Read the next ramp's bounds from the one that this refusal ends."""
        ramp, sent_s = self._ramp, max(sent_at - self._resumed_at, 1 / self.rate)
        mean = self._served / (sent_s + self._paused_s)
        end = _End(sent_at, sent_s, self.rate, mean, max(mean, (self._served - self._burst) / sent_s), pause_s)
        self._cost_s = pause_s
        self._row = _Row(float(self._served), sent_s, sent_at, self._trip_s)
        if ramp is None:
            low, high, least_s = self._read_first(end)
        else:
            low, high, least_s = self._read_early(ramp, end) if ramp.is_early else self._read_late(ramp, end)
            low, high = self._narrow(low, high, ramp, end)
        self._last_refused, self._last_mean = end.rate, mean
        self._last_served, self._last_sent_s = float(self._served), sent_s
        self._cut_at = max(now, self._paused_until)
        self._begin_ramp(low, high, at=self._cut_at, least_s=least_s)
        self._due_at = max(self._due_at, now + 1 / self.rate)

    def _read_first(self, end: _End) -> _Bounds:
        """The first refusal of all: what was served until now tells the burst, and little of the limit."""
        self._burst, self._fresh_until, self._fill = float(self._served), end.sent_at, _Fill(end.sent_at)
        low = end.rate / 50 if end.pause_s else self._doubled / _FALLEN
        return low, min(end.rate, _FALLEN * self._doubled), 0.0

    def _read_early(self, ramp: _Ramp, end: _End) -> _Bounds:
        """The limit has fallen, or was overestimated; or a window is still full; or chance refuses."""
        fill = self._add_to_fill(end)
        if end.pause_s and end.sent_at - fill.full_at < max(self._window_s, self._full_s):
            return ramp.low, ramp.high, 0.0  # the window is still full of what was sent before
        self._early += 1
        if not end.pause_s and self._early >= _REPEATS and self._refused < self._served:
            # a share that stays, however low the rate, does not come of the rate; its root leaves it much room
            self._tolerated = max(self._tolerated, (self._refused / (self._served + self._refused)) ** 0.5)
        if self._early > 1:
            return max(end.proved, end.rate / _FALLEN ** (self._early - 1)), end.rate, 0.0
        low = max(end.proved, self._proved)
        if end.pause_s and ramp.length_s > 0.9 * self._longest_s and ramp.at_s > self._window_s:
            low = max(low, self._find_limit(end))  # so narrow a ramp meets a steady limit early, too
        return low, end.rate, 0.0

    def _read_late(self, ramp: _Ramp, end: _End) -> _Bounds:
        """The ramp has met the limit, or has passed its end."""
        limit = self._find_limit(end)
        low, high, least_s = max(end.proved, end.rate / 50), end.rate, 0.0
        fill, self._fill = self._add_to_fill(end), _Fill(end.sent_at)  # it is full now
        took_s = end.sent_at - fill.begun_at
        if self._is_quota(fill, end.sent_at):
            self._row = _Row(fill.served, took_s, end.sent_at, self._trip_s)
            if took_s > self._window_s:
                self._window_s, self._full_s = took_s, min(end.sent_at - fill.full_at, _LONGEST_WINDOW_S)
                low, high = min(low, fill.served / self._full_s), min(high, 1.1 * fill.served / took_s)
        self._early, self._proved = 0, low
        self._tolerated = max(self._tolerated / 2, _TOLERATED)
        if ramp.at_s < ramp.length_s - 1 / end.rate - (self._trip_s if end.pause_s else 0.0):  # else nothing new
            return max(low, limit), high, least_s
        if limit and end.rate < 1.5 * ramp.high:  # it has not risen
            least_s, low = 4 * ramp.length_s, max(low, ramp.compute_rate(ramp.length_s / 2) if end.pause_s else 0.0)
            if ramp.length_s > 0.9 * self._longest_s:
                low = max(low, (1 - _ROOM) * ramp.high)
                high = min(end.rate, (1 + _ROOM + (end.rate / ramp.high - 1) / 10) * ramp.high)
        return low, high, least_s

    def _narrow(self, low: float, high: float, ramp: _Ramp, end: _End) -> tuple[float, float]:
        """Narrow the bounds by what few requests, and what the last windows, say besides."""
        is_few = end.proved < _REPEATS / _FREE_S  # requests: what was refused is a large share
        if not end.pause_s and is_few and self._refused > 1 and end.rate < 1.5 * ramp.high:
            high = min(high, (self._served + self._refused) / end.sent_s)  # if it is more, the probe finds it
        window_s = self._window_s
        if end.pause_s and 0 < 2 * window_s < ramp.at_s:
            low = max(low, (1 - _ROOM) * ramp.compute_rate(ramp.at_s - 2 * window_s))  # filled none in two
        at_s = min(ramp.at_s, end.sent_s)
        if end.pause_s and 0 < window_s < at_s < ramp.length_s + window_s:
            earlier = (ramp.compute_rate(at_s - window_s) - ramp.low) / ramp.growth
            high = min(high, (self._served - earlier) / window_s)  # what the last one served is all
        if not end.pause_s and end.sent_s < window_s < end.sent_s + self._paused_s:
            high = min(high, self._served / window_s)  # what a whole one served is all
        return low, high

    def _find_limit(self, end: _End) -> float:
        """Return a rate just below the limit (requests/s), as two ramps that were refused at much the same rate tell:
        the more they differ, the lower; it may be negative. Return 0 where the rate of a refusal says how much the
        limiter had saved, and nothing of the limit."""
        if end.pause_s and self._gives_back(end.mean, end.rate):
            return 0.0
        return end.rate - 2 * abs(self._last_refused - end.rate)

    def _add_to_fill(self, end: _End) -> _Fill:
        """Add what the ramp that ends was served."""
        fill, in_s = self._fill, end.sent_s + self._paused_s
        fill.begun_at = min(fill.begun_at, self._resumed_at)
        fill.served += self._served
        if self._last_mean and abs(end.mean - self._last_mean) * in_s > max(_REPEATS, _ROOM * self._served):
            fill.is_uneven = True
        return fill

    def _is_quota(self, fill: _Fill, sent_at: float) -> bool:
        """Return whether that is what a window allows: what the limiter gave when it was fresh, as far as that can be
        counted while answers are under way. A bucket serves its rate besides, or evenly, with few exceptions."""
        is_same = abs(fill.served - self._burst) <= max(_ROOM * self._burst, 1.0)
        took_s, longest_s = sent_at - fill.begun_at, _LONGEST_WINDOW_S
        if self._full_s > 0:  # it has shown like this, and twice as long comes of half the limit
            longest_s = min(longest_s, 1.9 * self._window_s)
        is_long = _SECOND < took_s <= longest_s and sent_at - fill.full_at <= 2 * _LONGEST_WINDOW_S
        return is_same and is_long and (fill.is_uneven or self._window_s > 0)

    def _gives_back(self, mean: float, refused: float) -> bool:
        """Return whether the limiter saves up what a pause costs: fresh, it gave more than two of them are worth,
        and two ramps in a row were served the same mean, pauses included, and refused well above it."""
        mean_before = self._last_served / (self._last_sent_s + self._paused_s)  # with the pause after that ramp
        is_same = not self._window_s and abs(mean - mean_before) < _ROOM * mean
        return is_same and refused > 1.1 * mean and self._burst > 2 * self._paused_s * mean

    def _end_row(self, row: _Row, sent_at: float) -> None:
        """Requests are served again, from the one that was sent then."""
        self._row = None
        self._resumed_at = max(self._resumed_at, sent_at)
        self._paused_s = sent_at - row.began_at
        in_s = row.sent_s + self._paused_s
        if _SECOND < row.last_at - row.began_at <= _LONGEST_WINDOW_S and row.served / in_s > self._proved / _FALLEN:
            # what was sent has filled a window, and this is its length, less what the last pause was too long
            self._window_s, self._early = max(self._window_s, self._paused_s), 0
            self._begin_ramp(row.served / in_s, 1.1 * row.served / max(in_s - self._cost_s, in_s / 2), at=sent_at)

    def _begin_ramp(self, low: float, high: float, *, at: float, least_s: float = 0.0) -> None:
        low = max(min(low, (1 - _ROOM) * high), 1 / _HALVED_IN_S)
        high = max(high, (1 + _ROOM) * low)
        width = log(high / low)
        self.rate = min(low, self._ceiling)
        crossed_s = max(2 * max(self._price_s, _FREE_S) / width, 4 * self._trip_s * width)
        windows_s = _REPEATS * self._window_s if self._early < 2 else 0.0  # it has fallen, which needs no whole window
        length_s = min(max(crossed_s, least_s, windows_s), self._longest_s)
        self._ramp = _Ramp(low, high, length_s, self._trip_s)
        self._resumed_at = at
        self._served = self._refused = self._in_a_row = 0

    @property
    def _price_s(self) -> float:
        """What a refusal costs: its pause, or the time of the requests that are refused, where that is longer."""
        return max(self._cost_s, (1 if self._cost_s else _REPEATS) / self.rate)

    @property
    def _longest_s(self) -> float:
        pauses = _PAUSES_APART if self._cost_s < _DEAR_S else _DEAR_PAUSES_APART
        # below 2/s no more than the time of one request: ramps three times as long miss that a limit has changed
        cost_s = max(self._cost_s or 1 / self.rate, min(self._price_s, 1.5 * _SECOND), _SECOND)
        return max(pauses * cost_s, _REPEATS * self._window_s)
