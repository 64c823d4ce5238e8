"""The rate of requests under a limit that the service does not name: found from what it serves and what it refuses.

One idea: how often to probe follows from what a refusal costs (docs/explanation/pace.md). Until a limit shows, the rate
doubles (the search). After that the rate runs in ramps: from a guess between the bounds of the limit to the upper
bound, then ever faster, until a refusal gives the bounds of the next ramp.

1. Cost. A refusal costs its pause, a round trip and the refused requests. A ramp over a bracket of width `w` loses half
   of `w` of its time. Both cost the same if the ramp takes two costs / `w`: a narrow bracket is crossed slowly and a
   wide one fast. A ramp takes at least 2 and at most 20 costs; for the maximum a cost counts at least 2 s.
2. Bounds. A limiter saves up in a pause no more than its rate is worth. If a ramp and the longer one of the pauses
   around the ramp take `filled_s` seconds, the limit is at least served / filled_s. A pause also saves up no more than
   the ramp that was served fewest (`fewest`). A ramp may use what was saved up for the window in which it begins and
   for the one in which it ends. So if it takes no less than the pause, the limit is at least
   (served - 2 * fewest) / sent_s. The limit is at most the refused rate, in the search at most twice the mean rate. The
   next ramp begins at the geometric mean of both bounds.
3. Windows. A limiter may count requests in windows as long as the longest pause. Then a ramp takes no less than two
   windows, whatever a refusal costs. If everything is refused for longer than the pause, the limiter does count in
   windows, and the rate of the last one is known.
4. Chance. A limit cannot refuse a rate below its lower bound. So a refusal there is chance, or the limit has fallen. A
   limit that has fallen also refuses requests that were in flight behind the refused one; chance serves them. A refusal
   by chance costs its pause and leaves the rate as it is. It is expected then: the next refusals count as chance if at
   least two of three requests behind them were served. The refusals of a limit may pass as chance a few times.

`record_refused` records the refusal; the rate stays, and answers to the requests in flight behind it are counted. When
the pause is over, the next request to leave makes `_decide` choose: chance or a ramp. Without a pause `_decide` runs at
once. After a limit's refusal, the first served request makes `_resume` begin the ramp: until then the rate stays at the
ramp's begin, and single requests leave if everything is refused.

Rates are measured between the times at which requests were sent, in seconds of a clock that does not go back. Pure: the
time `now` comes in.
"""

from dataclasses import dataclass, replace
from math import exp, inf, log, ulp

_FIRST_RATE = 20.0  # requests/s; most services serve these for the moment that the first doublings take
_GROWTH = 0.42  # in the search, an answer raises the rate by this share: two answers double the rate
_BUSY_GAPS = 4  # requests leave as fast as they may if the gap between two is at most so many times 1 / rate
_LONGEST_RAMP_COSTS = 20.0  # then a refusal takes 1/21 of the time; longer ramps find a raised limit late
_LEAST_COST_S = 2.0  # least cost for the longest ramp: if less, a limit of 5/s without pauses refuses more than 3 %
_SHORTEST_S = 0.3  # least cost for the shortest ramp
_ROOM = 0.015  # a ramp begins at least this share below its end; half of it is the unit of the excess over the end
_PROBE_S = 2.0  # beyond its end, a ramp's excess grows e-fold in so many seconds
_REFUSALS = 3  # refusals without a pause that show a limit
_LEAST_BEHIND = 2  # requests served behind a refused one that tell chance from a limit
_SAMPLE = 6  # so many served requests behind a refused one measure the rate at which they were served
_ALL_REFUSED = 5  # refusals in a row after which single requests leave
_FIRST_END = 2.0  # times the mean rate of the search: the end of the first ramp, as the search was slow at first
_LONGEST_WINDOW_S = 61.0  # of services; if everything is refused for longer, the service is out of order
_WINDOW_ROOM = 0.1  # a ramp after a full window ends this share above the mean rate of the window
_LONGEST_CHANCE_PAUSE_S = 10.0  # a refusal with a longer pause counts as a limit's: a wrong guess costs the pause again
_SHORT_PAUSE_S = 2.0  # in the search, a refusal with so short a pause counts as chance if few requests are in flight
_TOLERATED = {"search": 0.5, "limit": 0.01, "chance": 0.2}  # refusals for each served request that do not count
_SPARE = 5  # requests of a ramp that a window may have allowed beyond its rate: they prove nothing
_BELOW = 0.95  # a refusal below this share of the lower bound contradicts the bound, which may be a little too high
_CHANCE_FOR = 7  # refusals without evidence of chance; the last of them ends the expectation of chance
_SERVED_BETWEEN = 8.0  # without a pause, chance lets at least so many requests pass for each one that it refuses
_SLACK_S = 0.005  # a sender that wakes up late makes up for this much at once: one turn of the event loop
_HALVED_IN_S = 86_400.0  # a day halves the low end of an earlier limit: limits change with contracts
_SURE = 0.9  # share of the rate served behind the first refusal at which the ramp begins: a sample is not exact
_LEAST_SHARE = 0.25  # of the low end of an earlier limit, however old the limit is, up to the first rate
_LOWEST_RATE = 1 / 86_400.0  # requests/s: one a day


@dataclass(frozen=True, slots=True)
class Found:
    """A limit as a run has found it: the rates `low` and `high` of the next ramp (requests/s), the pause that a refusal
    costs (s), and the longest window that the limiter may count in (s)."""

    low: float
    high: float
    pause_s: float
    window_s: float

    def scale(self, factor: float) -> "Found":
        """Return the limit multiplied by `factor`: from one shard's limit to that of all shards, or back."""
        return replace(self, low=self.low * factor, high=self.high * factor)


class _Ramp:
    """The rate from `low` to `high` requests/s in `length_s` seconds, and beyond; `at_s` is the present point."""

    __slots__ = ("at_s", "growth", "high", "length_s", "low", "probe_s")

    def __init__(self, low: float, high: float, length_s: float, probe_s: float) -> None:
        self.low, self.high, self.length_s, self.probe_s, self.at_s = low, high, length_s, probe_s, 0.0
        self.growth = log(high / low) / length_s

    def move(self, seconds: float) -> float:
        """Go on by this time, and return the rate there (requests/s)."""
        self.at_s += max(seconds, 0.0)
        if self.at_s < self.length_s:
            return self.low * exp(self.growth * self.at_s)
        beyond = min((self.at_s - self.length_s) / self.probe_s, 30.0)
        return self.high * (1 + _ROOM / 2 * (exp(beyond) - 1))


@dataclass(slots=True)
class _Refusal:
    """A refusal of a request that was sent at `sent_at` and at `rate` (requests/s), after `served` requests in `sent_s`
    seconds. `served_after` and `refused_after` count the requests that were in flight behind the refused one."""

    sent_at: float = -inf
    served: int = 0
    sent_s: float = 1.0
    rate: float = 1.0
    filled_s: float = 1.0  # time in which the limiter has allowed `served`
    counted: int = 0  # requests served since the first of the refusals that show the limit
    pause_s: float = 0.0
    is_first: bool = True  # no limit had shown
    fewest: float = 0.0  # requests served in the ramp that was served fewest: a pause saves up no more
    is_undecided: bool = False  # `_decide` has not run for the refusal
    awaits_served: bool = False  # unless by chance: no request has been served since the refusal
    served_after: int = 0
    refused_after: int = 0
    served_behind: float = 0.0  # requests/s at which the requests in flight behind were served; 0: not measured

    @property
    def proved(self) -> float:
        """The lower bound of the limit (requests/s): the service serves at least one request after a pause."""
        by_pauses = max(self.served, 1) / self.filled_s
        if self.sent_s < self.pause_s:
            return by_pauses
        return max(by_pauses, (self.served - 2 * self.fewest) / self.sent_s)


class RateController:
    """Decides when the next request may leave; never exceeds `ceiling` (requests/s).

    `found` is the limit that an earlier run found `age_s` seconds ago.
    """

    def __init__(self, ceiling: float = inf, found: Found | None = None, age_s: float = 0.0) -> None:
        self.rate = min(_FIRST_RATE, ceiling)  # requests/s
        self._ceiling = ceiling
        self._trip_s = 0.1  # mean round trip of served requests
        self._due_at = self._left_at = -inf  # when the next request may leave, and when the last one left
        self._is_busy = True  # requests leave about as fast as they may: only then the rate may grow
        self._paused_until = -inf
        self._old_answers_until = -inf  # answers to requests that left before this time belong to the last refusal
        self._ramp: _Ramp | None = None  # None while no limit has shown: the rate doubles
        self._resumed_at = inf  # when the first of `_served` left; inf if none has
        self._served = 0  # requests since the last refusal that counts
        self._refused_in_row = 0
        self._excess = 0.0  # refusals beyond the tolerated share
        self._excess_from = 0  # requests that were served before the first of these refusals
        self._last = _Refusal()
        self._fewest = inf  # as in `_Refusal`
        self._pause_s = self._window_s = 0.0  # as in `Found`
        self._chance_below = 0.0  # requests/s: the highest lower bound since the limit was seen to fall
        self._chance_for = 0  # refusals without evidence of chance until chance is not expected; 0: it is not
        if found is not None:
            self._pause_s, self._window_s = found.pause_s, found.window_s
            least = min(_FIRST_RATE, _LEAST_SHARE * found.low)
            self._begin_ramp(max(found.low * 0.5 ** (max(age_s, 0.0) / _HALVED_IN_S), least), found.high)

    @property
    def found(self) -> Found | None:
        """The limit as known now, or None while no limit has shown. A refusal whose pause runs counts."""
        if self._last.is_undecided:
            self._decide(self._paused_until)
        ramp = self._ramp
        if ramp is None:
            return None
        sent_s = max(self._left_at - self._resumed_at, 1 / self.rate)
        low = max(ramp.low, min(self._served / (sent_s + self._pause_s), ramp.high))
        return Found(low, max(ramp.high, self.rate), self._pause_s, self._window_s)

    def admit(self, now: float) -> float:
        """Return 0 if a request may leave, and count it as sent; otherwise the seconds to wait."""
        wait_s = max(self._due_at, self._paused_until) - now
        if wait_s > 2 * ulp(now):  # rounding makes sums of floats differ a little from the exact time
            return wait_s
        self._leave(now)
        return 0.0

    def reserve(self, now: float) -> float:
        """Reserve the time of the next request, and return the seconds until that time. Pauses are not included.

        For a reader of the list, which limits its own concurrency: while no limit has shown the wait is 0, unless there
        is a ceiling.
        """
        if self._last.is_undecided and now >= self._paused_until:
            self._decide(now)
        if self._ramp is None and self._ceiling == inf:
            self._count_leaving(now)
            return 0.0
        leaves_at = max(now, self._due_at)
        self._leave(leaves_at)
        return leaves_at - now

    def record_served(self, sent_at: float, now: float) -> None:
        """Record that a request sent at `sent_at` got an answer other than a refusal for its rate."""
        self._trip_s += 0.1 * (now - sent_at - self._trip_s)
        if sent_at < self._old_answers_until:
            self._last.served_after += sent_at > self._last.sent_at
            return
        if self._last.awaits_served:
            self._resume(sent_at)
        self._served += 1
        self._refused_in_row = 0
        state = "search" if self._ramp is None else "chance" if self._chance_for else "limit"
        self._excess = max(self._excess - _TOLERATED[state], 0.0)
        if self._ramp is None and self._is_busy:  # a round trip at most triples a high rate
            self.rate = min(self.rate + min(_GROWTH * self.rate, 2 / self._trip_s), self._ceiling)

    def record_refused(self, sent_at: float, now: float, retry_after_s: float | None = None) -> None:
        """Record that a request sent at `sent_at` was refused for its rate. No request leaves for `retry_after_s`."""
        pause_s, last = retry_after_s or 0.0, self._last
        self._paused_until = max(self._paused_until, now + pause_s)
        if sent_at < self._old_answers_until:
            last.refused_after += sent_at > last.sent_at
            return
        self._refused_in_row += 1
        if last.awaits_served:
            self._old_answers_until = max(now, self._paused_until)
            return
        if not self._excess:
            self._excess_from = self._served
        self._excess += 1
        if not pause_s and self._excess < self._needed:
            return
        self._pause_s, self._old_answers_until = pause_s, max(now, self._paused_until)
        sent_s, rate = max(sent_at - self._resumed_at, 1 / self.rate), self.rate
        is_first = self._ramp is None
        if is_first:  # the rate has grown far beyond the mean rate that was served
            rate = min(rate, _FIRST_END * max(self._served, 1) / sent_s)
        filled_s = sent_s + max(pause_s, 1.0)  # a fresh limiter has saved up more than a pause is worth
        if last.sent_at > -inf:
            filled_s = max(sent_s + pause_s, sent_at - last.sent_at)
        counted = self._served - self._excess_from
        self._last = _Refusal(
            *(sent_at, self._served, sent_s, rate, filled_s, counted, pause_s, is_first),
            is_undecided=True,
            awaits_served=True,
        )
        if not pause_s:  # with a pause, answers to the requests in flight are counted first
            self._decide(now)

    def _leave(self, at: float) -> None:
        """Record that a request leaves at `at`, and set the time of the next one."""
        if self._last.is_undecided:
            self._decide(at)
        since_s = self._count_leaving(at)
        if self._ramp is not None and self._is_busy and not self._last.awaits_served:
            self.rate = min(self._ramp.move(since_s), self._ceiling)
        self._due_at = max(self._due_at, self._paused_until, at - _SLACK_S) + 1 / self.rate
        if self._refused_in_row >= _ALL_REFUSED:  # single requests, one a second in the end
            self._due_at = max(self._due_at, at + min(self._trip_s * 2.0 ** (self._refused_in_row - _ALL_REFUSED), 1.0))

    def _count_leaving(self, at: float) -> float:
        """Record the time at which a request leaves, and return the seconds since the request before it."""
        self._resumed_at = min(self._resumed_at, at)
        since_s = at - max(self._left_at, self._resumed_at)
        self._is_busy = since_s * self.rate <= _BUSY_GAPS
        self._left_at = at
        return since_s

    @property
    def _needed(self) -> int:
        """The refusals beyond the tolerated share that show a limit."""
        return 2 * _REFUSALS if self._chance_for else _REFUSALS

    def _decide(self, at: float) -> None:
        """Classify the last refusal as chance, or begin a ramp. The next request leaves at `at`."""
        last = self._last
        last.is_undecided = False
        if last.served_after >= _SAMPLE and self._left_at > last.sent_at:
            last.served_behind = (last.served_after - 1) / (self._left_at - last.sent_at)
        if self._is_chance():
            last.awaits_served = False
            self._resumed_at, self._served, self._refused_in_row, self._excess = inf, 0, 0, 0.0
            return
        self._fewest = last.fewest = min(self._fewest, last.served)
        if self._pause_s < _LONGEST_WINDOW_S:
            self._window_s = max(self._window_s, self._pause_s)
        self._begin_ramp_after(last)  # `_resume` begins it once more: until then the rate stays
        if not self._pause_s:
            self._due_at = max(self._due_at, at + 1 / self.rate)

    def _is_chance(self) -> bool:
        """Return whether the last refusal is taken for chance, and record the evidence."""
        last = self._last
        may_be_chance = 0 < self._pause_s < _LONGEST_CHANCE_PAUSE_S
        are_most_served = last.served_after >= _LEAST_BEHIND and last.refused_after <= last.served_after / 2
        if self._ramp is None:  # the rate doubles, so a limit refuses most requests behind the refused one
            if may_be_chance and are_most_served:
                self._chance_for = _CHANCE_FOR
                return True
            is_alone = last.served_after + last.refused_after < _LEAST_BEHIND <= last.served
            return 0 < self._pause_s <= _SHORT_PAUSE_S and is_alone
        if self._pause_s:
            is_single = may_be_chance and last.served_after >= _LEAST_BEHIND and not last.refused_after
        else:
            is_single = last.counted >= _SERVED_BETWEEN * self._excess
        if last.rate < _BELOW * self._chance_below:
            if is_single:
                self._chance_for = _CHANCE_FOR
            else:
                self._chance_below, self._chance_for = 0.0, max(self._chance_for - 1, 0)  # the limit has fallen
        else:
            self._chance_for = max(self._chance_for - 1, 0)
        self._chance_below = max(self._chance_below, (last.served - _SPARE) / last.filled_s, last.served_behind)
        return may_be_chance and are_most_served and self._chance_for > 0

    def _resume(self, sent_at: float) -> None:
        """Begin the ramp anew, because a request that left at `sent_at` is the first one served since the refusal."""
        last, paused_s = self._last, sent_at - self._last.sent_at
        self._begin_ramp_after(last)
        is_too_long = self._refused_in_row >= _ALL_REFUSED and self._pause_s + 1.0 < paused_s < _LONGEST_WINDOW_S
        if is_too_long and last.served > _SPARE:  # fewer requests fill no window: the service was out of order
            mean = last.served / (last.sent_s + paused_s)  # the rate of a window
            self._window_s = max(self._window_s, paused_s)
            self._begin_ramp(mean, (1 + _WINDOW_ROOM) * mean)
        last.awaits_served, self._resumed_at = False, sent_at

    def _begin_ramp_after(self, refusal: _Refusal) -> None:
        low, high = (refusal.proved * refusal.rate) ** 0.5, refusal.rate
        if refusal.is_first:
            low, high = max(low, _SURE * refusal.served_behind), max(high, refusal.served_behind)
        self._begin_ramp(low, high)

    def _begin_ramp(self, low: float, high: float) -> None:
        low = max(min(low, (1 - _ROOM) * high), _LOWEST_RATE)
        high = max(high, (1 + _ROOM) * low)
        self.rate = min(low, self._ceiling)
        width = log(high / low)
        cost_s = self._pause_s + self._trip_s + (1 if self._pause_s else _REFUSALS) / self.rate
        length_s = max(2 * max(cost_s, _SHORTEST_S) / min(width, 1.0), 4 * self._trip_s * width)
        length_s = min(length_s, _LONGEST_RAMP_COSTS * max(cost_s, _LEAST_COST_S))
        probe_s = max(_PROBE_S, self._window_s)
        self._ramp = _Ramp(low, high, max(length_s, 2 * self._window_s), probe_s)
        self._resumed_at, self._served, self._excess = inf, 0, 0.0
