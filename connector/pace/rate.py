"""The rate of requests under a limit that the service does not document. The controller finds the limit from the
requests that are served and refused.

While no limit is known, the rate doubles (the *search*). After that, the rate rises in *ramps*. A ramp rises from a
guess to the upper bound of the limit. Above the upper bound, the rate rises slowly at first and then faster, until a
refusal. The refusal gives the bounds of the next ramp. docs/explanation/pace.md has the reasons.

Requests *behind* a refused request left after it, and were in flight when the refusal arrived. A refusal by *chance* is
random: it does not depend on the rate. A *short* pause is a pause under 10 s.

1. Cost. The cost of a refusal is its pause, a round trip and the refused requests. A ramp over bounds of width
   `w` = ln(upper / lower) loses the share `w` / 2 of its time. If the ramp takes 2 / `w` costs, the ramp loses one
   cost. So the ramp is slow between close bounds and fast between distant bounds. A ramp takes at most 20 costs, or two
   windows if these are longer. A cost counts as at least 0.3 s, and in the maximum as at least 2 s.
2. Bounds. The upper bound is the refused rate, and after a search at most twice the mean rate. The lower bound is the
   number of served requests per second. The seconds include the longer of the pauses before and after, because the
   limiter saves up in a pause. A second lower bound counts no pause, and subtracts twice the number of requests that a
   limiter can save up. This number is at most the smallest number of served requests of any stretch. A ramp begins at
   the geometric mean of the upper bound and the higher lower bound. If more than five requests behind the refused one
   were served, their rate is a bound as well.
3. Windows. A limiter may count requests in windows, which may be as long as the longest pause. A ramp takes at least
   two windows. If the service refuses all requests for more than a second beyond the pause, a window was full. Then
   the next ramp begins at the mean rate of this window.
4. Chance. A refusal by chance costs its pause and does not change the rate. In the search, the requests behind the
   refused one show the cause: a limit refuses most of them, and chance refuses few. In a ramp near the limit, they do
   not show the cause. There, a single refusal below the lower bound is evidence of chance. After evidence, a refusal
   counts as chance if at least three requests behind it were served, and at most a third as many were refused. The
   tenth refusal without new evidence ends this rule.
5. Doubt. With few requests in flight, chance looks like a limit. So a limit is in doubt after a short pause. If more
   requests of an earlier stretch were served than the limit allows, the search begins again, once for each such
   stretch. The doubt ends when ten refusals in a row contradict no earlier stretch. It also ends when at least three
   requests behind a refused one are refused, and at most as many are served.

A *stretch* is the time between two refusals that count. It ends with a refusal that has a pause, or with the third
refusal without a pause beyond the tolerated share (the sixth while chance is expected). `record_refused` ends the
stretch. During the pause, the rate stays, and the answers to the requests behind the refused one are counted. When the
first request leaves after the pause, `_decide` chooses: chance, a new search or a ramp. A ramp begins to rise after one
request was served (`_recover`). After five refusals in a row, only single requests leave: the wait between two requests
doubles up to one second.

Rates are measured between the times at which requests leave, in seconds of a monotonic clock. Pure: the time
`now` is an argument.
"""

import math
from dataclasses import dataclass, replace
from math import exp, inf, log, ulp

_FIRST_RATE = 20.0  # requests/s; most services allow this rate for the short time of the first doublings
_GROWTH = 0.42  # share by which an answer raises the rate in the search: two answers double the rate
_BUSY_GAPS = 4  # a sender is busy if the gap between two requests is at most this many times 1 / rate
# A ramp after a search ends at most at this many times the mean rate of the search, because the search began slowly.
_FIRST_END = 2.0
# The length of the longest ramp in costs of a refusal. With 20, this ramp loses 1/21 of the time to its refusal. A
# longer ramp would find a raised limit late.
_LONGEST_RAMP_COSTS = 20.0
# The length of the longest ramp is computed with at least this cost (s). With a smaller value, a limit of 5 requests/s
# without pauses refuses more than 3 % of the requests.
_LEAST_CAP_COST_S = 2.0
_LEAST_COST_S = 0.3  # the length of any other ramp is computed with at least this cost (s)
# A ramp begins at least this share below its upper end. Half of this share scales the rise above the upper end.
_ROOM = 0.015
# Seconds in which the rise above the upper end of a ramp grows e-fold. A ramp uses a longer window instead.
_PROBE_S = 2.0
_LONGEST_WINDOW_S = 61.0  # the longest window of services; refusals of all requests for a longer time are an outage
_WINDOW_ROOM = 0.1  # a ramp after a full window ends this share above the mean rate of the window
_REFUSALS = 3  # the fewest refusals without a pause, or answers behind a refused request, that show the cause
# The number of refusals for each served request that do not count. The first number is for a ramp, and the second for a
# search or while chance is expected.
_TOLERATED, _TOLERATED_CHANCE = 0.01, 0.2
_SURE = 0.9  # a ramp begins at this share of the rate behind a refused request, because a sample is not exact
_FEW = 5  # so few served requests prove no rate; after as many refusals in a row, only single requests leave
# Refusals without a pause are evidence of chance if at least this many requests are served for each refusal.
_SERVED_BETWEEN = 8.0
# A refusal with this pause or a longer pause never counts as chance, because a wrong guess costs the pause again.
_LIMIT_PAUSE_S = 10.0
# Chance is not expected after this many refusals without evidence. A limit is certain after this many refusals without
# a contradiction.
_PATIENCE = 10
_SLACK_S = 0.005  # seconds that a late sender may catch up: one turn of the event loop
_HALVED_IN_S = 86_400.0  # seconds after which half of the low end of an earlier limit is used, because limits change
_LEAST_SHARE = 0.25  # the used low end is at least this share, or at least the first rate if that is lower


@dataclass(frozen=True, slots=True)
class FoundLimit:
    """A limit that a run has found: the rates `low` and `high` of the next ramp (requests/s), the pause of a refusal
    (s), and the longest window in which the limiter may count (s)."""

    low: float
    high: float
    pause_s: float
    window_s: float

    def scale(self, factor: float) -> "FoundLimit":
        """Return the limit multiplied by `factor`. Shards use this to turn the limit of a shard into the limit of all
        shards, or back."""
        return replace(self, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, slots=True)
class _Ramp:
    """The rate from `low` to `high` requests/s in `length_s` seconds. Later, the rise above `high` grows e-fold in
    `probe_s` seconds."""

    low: float
    high: float
    length_s: float
    probe_s: float

    def rate_at(self, seconds: float) -> float:
        """Return the rate (requests/s) after this time of sending."""
        if seconds < self.length_s:
            return self.low * math.pow(self.high / self.low, seconds / self.length_s)
        excess = exp(min((seconds - self.length_s) / self.probe_s, 30.0)) - 1
        return self.high * (1 + _ROOM / 2 * excess)


@dataclass(slots=True)
class _Stretch:
    """The requests between two refusals that count. `refused_sent_at` and the fields below it are about the second
    refusal."""

    began_at: float = inf  # when the first request left; after the refusal of a limit, the first served request
    served: int = 0
    excess: float = 0.0  # refusals beyond the tolerated share
    served_before: int = 0  # requests served before the first refusal of `excess`
    refused_sent_at: float = inf  # when the refused request left
    rate: float = 1.0  # rate when the refusal arrived (requests/s); after a search, at most twice the mean rate
    sent_s: float = 1.0  # from `began_at` to `refused_sent_at`
    filled_s: float = 1.0  # the sum of `sent_s` and the longer of the pauses before and after
    served_behind: int = 0  # served requests behind the refused one
    refused_behind: int = 0  # refused requests behind the refused one


class RateController:
    """Decides when the next request may leave; never exceeds `ceiling` (requests/s).

    `found` is the limit that an earlier run found `age_s` seconds ago.
    """

    def __init__(self, ceiling: float = inf, found: FoundLimit | None = None, age_s: float = 0.0) -> None:
        self.rate = min(_FIRST_RATE, ceiling)  # requests/s
        self._ceiling = ceiling
        self._trip_s = 0.1  # mean round trip of served requests
        self._due_at = self._left_at = -inf  # when the next request may leave, and when the last one left
        self._is_busy = True  # requests leave about as fast as the rate allows; only then the rate grows
        self._paused_until = -inf
        self._old_answers_until = -inf  # answers to requests that left before this time belong to the last refusal
        self._ramp: _Ramp | None = None  # None in the search
        self._ramp_s = 0.0  # time of sending since the ramp began
        self._stretch, self._ended = _Stretch(), _Stretch()  # the present stretch, and the one before the last refusal
        self._is_measured = False  # a refusal of this run showed a limit
        self._is_undecided = False  # `_decide` has not run for the last refusal
        # True if the last refusal was chance, or if a request was served or a search began after the refusal.
        self._has_recovered = True
        self._refused_in_row = 0
        self._fewest_served = inf  # the smallest number of served requests of a stretch; more cannot be saved up
        self._pause_s = self._window_s = 0.0  # as in `FoundLimit`
        self._proved_rate = 0.0  # requests/s: the highest lower bound since the last fall of the limit
        self._chance_left = 0  # refusals without evidence until chance is not expected; 0: chance is not expected
        # The stretch with the most served requests, among the stretches after short pauses since the last
        # contradiction.
        self._most_served: _Stretch | None = None
        self._is_after_short_pause = False  # the present stretch began after a short pause
        # Refusals in a row, after short pauses, that no earlier stretch contradicts. From ten on, the limit is certain.
        self._agreement_count = 0
        if found is not None:
            self._pause_s, self._window_s = found.pause_s, found.window_s
            least = min(_FIRST_RATE, _LEAST_SHARE * found.low)
            self._begin_ramp(max(found.low * 0.5 ** (max(age_s, 0.0) / _HALVED_IN_S), least), found.high)

    @property
    def found(self) -> FoundLimit | None:
        """The limit that is known now, or None during a search. After a doubt, the limit is also None until the search
        ends. The last refusal counts even during its pause."""
        if self._is_undecided:
            self._decide()
        if self._ramp is None:
            return None
        sent_s = max(self._left_at - self._stretch.began_at, 1 / self.rate)
        low = max(self._ramp.low, min(self._stretch.served / (sent_s + self._pause_s), self._ramp.high))
        return FoundLimit(low, max(self._ramp.high, self.rate), self._pause_s, self._window_s)

    @property
    def is_measured(self) -> bool:
        """Whether this run has measured the limit: by a refusal that was not chance, or by a rate above the earlier
        limit."""
        if self._is_undecided:
            self._decide()
        return self._is_measured or (self._ramp is not None and self.rate > self._ramp.high)

    def admit(self, now: float) -> float:
        """Return 0 if a request may leave, and count it as sent; otherwise the seconds to wait."""
        wait_s = max(self._due_at, self._paused_until) - now
        if wait_s > 2 * ulp(now):  # sums of floats are rounded
            return wait_s
        self._leave(now)
        return 0.0

    def reserve(self, now: float) -> float:
        """Reserve the time of the next request, and return the seconds until that time.

        Readers of the list call this method, because they limit their own concurrency. While no limit and no ceiling is
        known, the request waits only for the end of a pause.
        """
        leaves_at = max(now, self._paused_until)
        if self._is_undecided:
            self._decide()
        if self._ramp is None and self._ceiling == inf:
            self._count_leaving(leaves_at)
        else:
            leaves_at = max(leaves_at, self._due_at)
            self._leave(leaves_at)
        return leaves_at - now

    def record_served(self, sent_at: float, now: float) -> None:
        """Record that a request sent at `sent_at` got an answer other than a refusal for its rate."""
        self._trip_s += 0.1 * (now - sent_at - self._trip_s)
        if sent_at < self._old_answers_until:
            self._ended.served_behind += sent_at > self._ended.refused_sent_at
            return
        if not self._has_recovered:
            self._recover(sent_at)
        self._stretch.served += 1
        self._refused_in_row = 0
        tolerated = _TOLERATED_CHANCE if self._ramp is None or self._chance_left else _TOLERATED
        self._stretch.excess = max(self._stretch.excess - tolerated, 0.0)
        if self._ramp is None and self._is_busy:  # a high rate at most triples in a round trip
            self.rate = min(self.rate + min(_GROWTH * self.rate, 2 / self._trip_s), self._ceiling)

    def record_refused(self, sent_at: float, now: float, retry_after_s: float | None = None) -> None:
        """Record that a request sent at `sent_at` was refused for its rate. No request leaves for `retry_after_s`."""
        pause_s, ended, stretch = retry_after_s or 0.0, self._ended, self._stretch
        self._paused_until = max(self._paused_until, now + pause_s)
        if sent_at < self._old_answers_until:
            ended.refused_behind += sent_at > ended.refused_sent_at
            return
        self._refused_in_row += 1
        if not self._has_recovered:
            self._old_answers_until = max(now, self._paused_until)
            return
        if not stretch.excess:
            stretch.served_before = stretch.served
        stretch.excess += 1
        if not pause_s and stretch.excess < (2 * _REFUSALS if self._chance_left else _REFUSALS):
            return
        self._pause_s, self._old_answers_until = pause_s, max(now, self._paused_until)
        stretch.refused_sent_at, stretch.rate = sent_at, self.rate
        stretch.sent_s = max(sent_at - stretch.began_at, 1 / self.rate)
        # Includes the longer of the pauses before and after the stretch.
        stretch.filled_s = max(stretch.sent_s + pause_s, sent_at - ended.refused_sent_at)
        if self._ramp is None:  # the rate is far above the mean rate that was served
            stretch.rate = min(self.rate, _FIRST_END * max(stretch.served, 1) / stretch.sent_s)
        self._ended, self._stretch = stretch, _Stretch()
        self._is_undecided, self._has_recovered = True, False

    def _leave(self, at: float) -> None:
        """Record that a request leaves at `at`, and set the time of the next one."""
        if self._is_undecided:
            self._decide()
        since_s = self._count_leaving(at)
        if self._ramp is not None and self._is_busy and self._has_recovered:
            self._ramp_s += max(since_s, 0.0)
            self.rate = min(self._ramp.rate_at(self._ramp_s), self._ceiling)
        self._due_at = max(self._due_at, self._paused_until, at - _SLACK_S) + 1 / self.rate
        if self._refused_in_row >= _FEW:  # only single requests leave, in the end one a second
            doublings = min(self._refused_in_row - _FEW, 30)
            self._due_at = max(self._due_at, at + min(self._trip_s * 2.0**doublings, 1.0))

    def _count_leaving(self, at: float) -> float:
        """Record the time at which a request leaves, and return the seconds since the request before it."""
        self._stretch.began_at = min(self._stretch.began_at, at)
        since_s = at - max(self._left_at, self._stretch.began_at)
        self._is_busy = since_s * self.rate <= _BUSY_GAPS
        self._left_at = at
        return since_s

    def _decide(self) -> None:
        """Choose the effect of the last refusal: none, because it was chance, or a new search, or a ramp."""
        ended, rate_behind, self._is_undecided = self._ended, 0.0, False
        if ended.served_behind > _FEW and self._left_at > ended.refused_sent_at:
            rate_behind = (ended.served_behind - 1) / (self._left_at - ended.refused_sent_at)
        is_short = 0 < self._pause_s < _LIMIT_PAUSE_S
        if is_short and self._judge_doubt():
            self._ramp, self._has_recovered = None, True
        elif self._judge_chance(is_short, rate_behind):
            self._has_recovered = True
        else:
            self._window_s = max(self._window_s, min(self._pause_s, _LONGEST_WINDOW_S))
            self._begin_ramp(*self._find_ends(rate_behind))
            self._is_measured = True
        if self._has_recovered:
            self._refused_in_row = 0
        self._is_after_short_pause = is_short

    def _find_ends(self, rate_behind: float) -> tuple[float, float]:
        """Return the first rate and the end of the next ramp (requests/s)."""
        ended = self._ended
        self._fewest_served = min(self._fewest_served, ended.served)
        proved = max(ended.served, 1) / ended.filled_s  # the service serves at least one request after a pause
        if ended.sent_s >= self._pause_s:
            proved = max(proved, (ended.served - 2 * self._fewest_served) / ended.sent_s)
        return max((proved * ended.rate) ** 0.5, _SURE * rate_behind), max(ended.rate, rate_behind)

    def _judge_doubt(self) -> bool:
        """Return whether an earlier stretch contradicts the limit: more of its requests were served than a limit at the
        refused rate allows."""
        ended, most = self._ended, self._most_served
        if ended.refused_behind >= max(_REFUSALS, ended.served_behind):
            self._agreement_count = _PATIENCE  # only a limit refuses most requests behind the refused one
        if self._agreement_count >= _PATIENCE or not self._is_after_short_pause:
            return False
        if most is None or ended.served > most.served:
            self._most_served = ended
        if self._ramp is None or most is None:
            return False
        allowed_count = ended.served + _FEW + ended.rate * max(most.sent_s - ended.sent_s, 0.0)
        is_contradicted = most.served > allowed_count
        if is_contradicted:  # a stretch contradicts only once, because the limit may have fallen since then
            self._most_served = None
        self._agreement_count = 0 if is_contradicted else self._agreement_count + 1
        return is_contradicted

    def _judge_chance(self, is_short: bool, rate_behind: float) -> bool:
        """Return whether the last refusal counts as chance, and record the evidence."""
        ended = self._ended
        are_most_served = is_short and ended.served_behind >= max(_REFUSALS, 3 * ended.refused_behind)
        if self._ramp is None:  # the rate doubles, so a limit refuses most requests behind the refused one
            if are_most_served:
                self._chance_left = _PATIENCE
            return are_most_served
        if self._pause_s:
            is_single = are_most_served and not ended.refused_behind
        else:
            is_single = ended.served - ended.served_before >= _SERVED_BETWEEN * ended.excess
        is_below = ended.rate < self._proved_rate
        if is_below and not is_single:
            self._proved_rate = 0.0  # the limit has fallen
        self._chance_left = _PATIENCE if is_below and is_single else max(self._chance_left - 1, 0)
        self._proved_rate = max(self._proved_rate, (ended.served - _FEW) / ended.filled_s, rate_behind)
        return are_most_served and self._chance_left > 0

    def _recover(self, sent_at: float) -> None:
        """Begin the stretch at `sent_at`, when the first request left that was served after the refusal. If the service
        refused all requests until the end of a window, begin a ramp at the rate of this window."""
        self._has_recovered, self._stretch.began_at = True, sent_at
        ended, paused_s = self._ended, sent_at - self._ended.refused_sent_at
        is_too_long = self._refused_in_row >= _FEW and self._pause_s + 1.0 < paused_s < _LONGEST_WINDOW_S
        if is_too_long and ended.served > _FEW:  # with fewer requests, the cause was an outage and not a full window
            mean = ended.served / (ended.sent_s + paused_s)
            self._window_s = max(self._window_s, paused_s)
            self._begin_ramp(mean, (1 + _WINDOW_ROOM) * mean)
            self._is_measured = True

    def _begin_ramp(self, low: float, high: float) -> None:
        low = min(low, (1 - _ROOM) * high)
        self.rate = min(low, self._ceiling)
        width = log(high / low)
        cost_s = self._pause_s + self._trip_s + (1 if self._pause_s else _REFUSALS) / self.rate
        longest_s = _LONGEST_RAMP_COSTS * max(cost_s, _LEAST_CAP_COST_S)
        length_s = max(min(2 * max(cost_s, _LEAST_COST_S) / min(width, 1.0), longest_s), 2 * self._window_s)
        self._ramp, self._ramp_s = _Ramp(low, high, length_s, max(_PROBE_S, self._window_s)), 0.0
