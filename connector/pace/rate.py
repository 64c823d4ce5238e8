"""The rate of requests under a limit that the service does not name: found from what it serves and what it refuses.

How it works (docs/explanation/pace.md). Until the first refusal the rate doubles. After that the rate runs in ramps:
from a lower bound of the limit to an upper bound, then ever faster, until a refusal gives the bounds of the next ramp.

1. Cost. A refusal costs its pause. A rate that lies a share `s` below the limit loses `s` of each second. So a bracket
   of width `s` is crossed in two pauses / `s`: a narrow one slowly, a wide one fast, but none in less than 2 or more
   than 20 pauses.
2. Bounds. Of `served` requests in `sent_s` seconds, refused at `rate` and then paused for `paused_s` seconds, the limit
   is at least served / (sent_s + paused_s), because a limiter saves up in a pause no more than its rate is worth. It is
   at least (served - burst) / sent_s, because a limiter saves up no more than it gave before its first refusal. It is
   at most `rate`. The next ramp begins at the geometric mean of the lower bound and `rate`.
3. Windows. If everything is refused for longer than the service asked for, the limiter counts in windows. Then
   served / (sent_s + paused_s) is its rate, and a ramp takes no less than two such windows.
4. Chance. A limiter that is exceeded refuses most of the requests that were under way behind the refused one. Chance
   serves them. A refusal by chance costs its pause and leaves the rate as it is.

One refusal after another: `record_refused` records the refusal, and the rate stays. Answers to requests that were under
way then are counted as requests behind the refused one. When the pause is over, the first request to leave makes
`_decide` choose: chance, or the next ramp. If that request is refused, too, nothing new is known, single probes follow,
and `_resume` begins the ramp once one is served. Without a pause `_decide` runs at once.

Every time is the time at which a request was sent, in seconds of a clock that does not go back. Pure: time comes in.
"""

from dataclasses import dataclass, replace
from math import exp, inf, log, sqrt, ulp

_FIRST_RATE = 20.0  # requests/s; any service serves these for the moment that the first doublings take
_LONGEST_RAMP_PAUSES = 20.0  # at most 1/21 of the time is lost to pauses, where 7 % may be lost
_LEAST_COST_S = 2.0  # least seconds that count as a pause in the longest ramp: else over 3 % of 5/s are refused
_SHORTEST_S = 0.3  # least seconds that count as a pause in a short ramp: a shorter ramp mistakes chance for a limit
_ROOM = 0.015  # a ramp begins at least this share below its end; half of it is lost
_PROBE_S = 2.0  # seconds in which the rate beyond a ramp's end grows e-fold
_REPEATS = 3  # refusals, windows and round trips that tell a rule from chance
_TOLERATED = 0.01  # share of requests that may be refused without a pause
_LEAST_PART = 16.0  # a limit is at least this part of the rate that it refused
_WINDOWS = 2.0  # windows that a ramp takes at least
_LONGEST_WINDOW_S = 61.0  # if everything is refused for longer than a minute, the service is out of order
_FREQUENT = 4.0  # refusals by chance that are more than this many pauses apart cost little if classified as a limit
_DEAR_S = 10.0  # a pause of this length is not risked to learn whether chance refuses
_EVIDENCE_NEEDED = 2.0  # ramps that ended as chance ends them: one may be an accident
_SLACK_S = 0.005  # a sender that wakes up late makes up for this much at once: one turn of the event loop
_HALVED_IN_S = 86_400.0  # an earlier limit counts half a day later: limits change with contracts, not by the hour


@dataclass(frozen=True, slots=True)
class Found:
    """A limit as a run has found it: its bounds `low` and `high` (requests/s), the requests that the limiter served
    before its first refusal (`burst`), the pause that a refusal costs (s) and the longest window seen (s)."""

    low: float
    high: float
    burst: float
    pause_s: float
    window_s: float

    def scale(self, factor: float) -> "Found":
        """Return the limit multiplied by `factor`: from one shard's limit to that of all shards, or back."""
        return replace(self, low=self.low * factor, high=self.high * factor, burst=self.burst * factor)


class _Ramp:
    """The rate from `low` to `high` requests/s in `length_s` seconds, and beyond; `at_s` is the present point."""

    __slots__ = ("at_s", "growth", "high", "length_s", "low", "probe_s")

    def __init__(self, low: float, high: float, length_s: float, probe_s: float) -> None:
        self.low, self.high, self.length_s, self.probe_s, self.at_s = low, high, length_s, probe_s, 0.0
        self.growth = log(high / low) / length_s

    def move(self, seconds: float) -> float:
        """Go on by this time, by a fifth of the rate at most, and return the rate there (requests/s)."""
        if self.at_s < self.length_s:
            seconds = min(seconds, 0.2 / self.growth)
        self.at_s += max(seconds, 0.0)
        if self.at_s < self.length_s:
            return self.low * exp(self.growth * self.at_s)
        beyond = min((self.at_s - self.length_s) / self.probe_s, 30.0)
        return self.high * (1 + _ROOM / 2 * (exp(beyond) - 1))


@dataclass(slots=True)
class _Refusal:
    """A refusal of a request that was sent at `sent_at` and at `rate` (requests/s), after `served` requests in `sent_s`
    seconds. `served_after` and `refused_after` count the requests that were under way behind the refused one."""

    sent_at: float = -inf
    served: int = 0
    sent_s: float = 1.0
    rate: float = 1.0
    served_before: int = 0  # `served` of the refusal before
    is_first: bool = True  # no limit had shown
    is_undecided: bool = False  # `_decide` has not run for the refusal
    refused_in_row: int = 0  # refusals since the last served request, this one included; 0 once a request is served
    served_after: int = 0
    refused_after: int = 0


class RateController:
    """Decides when the next request may leave; never exceeds `ceiling` (requests/s).

    `found` is the limit that an earlier run found `age_s` seconds ago.
    """

    def __init__(self, ceiling: float = inf, found: Found | None = None, age_s: float = 0.0) -> None:
        self.rate = min(_FIRST_RATE, ceiling)  # requests/s
        self._ceiling = ceiling
        self._trip_s = 0.1  # mean round trip of single attempts
        self._due_at = self._left_at = -inf  # when the next request may leave, and when the last one left
        self._paused_until = -inf
        self._news_from = -inf  # answers to requests that left before this time belong to the last refusal
        self._ramp: _Ramp | None = None  # None while no limit has shown: the rate doubles
        self._step_at, self._step_served = 0.0, 0  # the present step of doubling
        self._resumed_at = inf  # when the first request since the last pause left; inf if none has
        self._served = self._refused = 0  # counts of the requests since the last pause
        self._excess_refusals = 0.0  # refusals beyond the tolerated share
        self._last = _Refusal()
        self._burst = self._pause_s = self._window_s = 0.0  # as in `Found`
        self._chance_evidence = 0.0  # ramps that chance seems to have ended; halved by each that a limit has ended
        self._served_per_chance = 1.0  # mean requests served between two refusals by chance
        self._has_risked_pause = False  # one refusal without evidence is taken for chance in a run
        if found is not None:
            self._burst, self._pause_s, self._window_s = found.burst, found.pause_s, found.window_s
            least = min(_FIRST_RATE, found.low / 4)  # however old the found limit is, the first guess is not lower
            self._begin_ramp(max(found.low * 0.5 ** (max(age_s, 0.0) / _HALVED_IN_S), least), found.high)

    @property
    def found(self) -> Found | None:
        """The limit as known now, or None if no request has been refused yet."""
        ramp = self._ramp
        if ramp is None:
            return None
        proved = (self._served - self._burst) / max(self._left_at - self._resumed_at, 1 / self.rate)
        low = max(ramp.low, min(proved, ramp.high))  # a short run may end without another refusal, at a higher rate
        return Found(low, max(ramp.high, self.rate), self._burst, self._pause_s, self._window_s)

    def admit(self, now: float) -> float:
        """Return 0 if a request may leave, and count it as sent; otherwise the seconds to wait."""
        wait_s = max(self._due_at, self._paused_until) - now
        if wait_s > 2 * ulp(now):  # rounding makes sums of floats differ a little from the exact time
            return wait_s
        self._leave(now)
        return 0.0

    def reserve(self, now: float) -> float:
        """Reserve the time of the next request, and return the seconds until that time. Pauses are not included.

        For a reader of the list, which limits its own concurrency: before the first refusal the wait is 0, unless there
        is a ceiling.
        """
        if self._last.is_undecided and now >= self._paused_until:
            self._decide(now)
        if self._ramp is None and self._ceiling == inf:
            return 0.0
        leaves_at = max(now, self._due_at)
        self._leave(leaves_at)
        return leaves_at - now

    def record_served(self, sent_at: float, now: float) -> None:
        """Record that a request sent at `sent_at` got an answer other than a refusal for its rate."""
        self._trip_s += 0.1 * (now - sent_at - self._trip_s)
        if sent_at < self._news_from:
            self._last.served_after += sent_at > self._last.sent_at
            return
        if self._last.refused_in_row:
            self._resume(sent_at)
        self._served += 1
        self._excess_refusals = max(self._excess_refusals - self._tolerated_share, 0.0)
        if self._ramp is None:
            self._step_served += 1
            if self._step_served >= max(2.0, self.rate * self._trip_s / 2):
                self._double(now)

    def record_refused(self, sent_at: float, now: float, retry_after_s: float | None = None) -> None:
        """Record that a request sent at `sent_at` was refused for its rate. No request leaves for `retry_after_s`."""
        pause_s = retry_after_s or 0.0
        self._paused_until = max(self._paused_until, now + pause_s)
        if sent_at < self._news_from:
            self._last.refused_after += sent_at > self._last.sent_at
            if self._last.is_undecided and self._last.refused_after >= max(_REPEATS, self._last.served_after):
                self._decide(self._paused_until)  # now, because the run may end before the next request leaves
            return
        if self._last.refused_in_row:
            self._last.refused_in_row += 1
            self._news_from = max(now, self._paused_until)
            return
        self._excess_refusals += 1
        self._refused += 1
        if not pause_s and self._excess_refusals < self._refusals_needed:
            return
        self._pause_s, self._news_from = pause_s, max(now, self._paused_until)
        sent_s = max(sent_at - self._resumed_at, 1 / self.rate)
        is_first, before = self._ramp is None, self._last.served
        self._last = _Refusal(
            sent_at, self._served, sent_s, self.rate, before, is_first, is_undecided=True, refused_in_row=1
        )
        if not pause_s:  # with a pause, answers to the requests in flight are counted first
            self._decide(now)

    # Between refusals

    def _leave(self, at: float) -> None:
        """Record that a request leaves at `at`, and set the time of the next one."""
        if self._last.is_undecided:
            self._decide(at)
        if self._resumed_at == inf:
            self._resumed_at = self._step_at = at
        if self._ramp is not None and not self._last.refused_in_row:
            since_s = at - max(self._left_at, self._resumed_at)
            if since_s * self.rate <= 4:  # otherwise something else holds requests back, and the rate need not grow
                self.rate = min(self._ramp.move(since_s), self._ceiling)
        self._due_at = max(self._due_at, self._paused_until, at - _SLACK_S) + 1 / self.rate
        if self._last.refused_in_row >= _REPEATS:  # everything is refused: single probes, one a second in the end
            probe_wait_s = min(self._trip_s * 2.0 ** (self._last.refused_in_row - _REPEATS), 1.0)
            self._due_at = max(self._due_at, at + probe_wait_s)
        self._left_at = at

    def _double(self, now: float) -> None:
        if self.rate * (now - self._step_at) < 4 * self._step_served:  # as in `_leave`
            self.rate = min(2 * self.rate, self._ceiling)
        self._step_at, self._step_served = now, 0

    # The meaning of a refusal

    @property
    def _tolerated_share(self) -> float:
        """The share of requests that may be refused while nothing is decided.

        While the rate doubles, the share may be large, because the rate soon exceeds a limit by far. The square root of
        the share that chance refuses is several times that share: chance alone does not exceed it.
        """
        if self._ramp is None:
            return 0.5
        if self._chance_evidence < _EVIDENCE_NEEDED:
            return _TOLERATED
        return min(max(1 / sqrt(self._served_per_chance), _TOLERATED), 0.5)

    @property
    def _refusals_needed(self) -> int:
        """The refusals beyond the tolerated share that show a limit."""
        return 2 * _REPEATS if self._chance_evidence >= _EVIDENCE_NEEDED else _REPEATS

    def _decide(self, at: float) -> None:
        """Classify the last refusal as chance, or begin a ramp. The next request leaves at `at`."""
        last = self._last
        last.is_undecided = False
        if last.is_first:
            self._burst = max(self._burst, float(last.served))
        if self._is_chance():
            last.refused_in_row = 0
            self._step_at, self._step_served = at, 0
            self._resumed_at, self._served, self._refused = inf, 0, 0
            return
        if last.is_first:  # the rate has doubled far beyond the mean rate that was served
            last.rate = min(last.rate, max(last.served, 1) / last.sent_s)
        self._begin_ramp(self._find_low(at - last.sent_at), last.rate)
        if not self._pause_s:
            self._due_at = max(self._due_at, at + 1 / self.rate)

    def _is_chance(self) -> bool:
        """Return whether the last refusal leaves the rate as it is; record the evidence for chance."""
        if not self._pause_s:
            self._record_evidence_without_pause()
            return False
        return self._is_chance_while_doubling() if self._ramp is None else self._is_chance_in_ramp(self._ramp)

    def _is_chance_while_doubling(self) -> bool:
        """Return whether most requests behind the refused one were served.

        If fewer than two were, nothing tells chance from a limit. Then the rate goes on once in a run, if the pause is
        short and the refusal came late: a refusal after very few requests is rarely chance.
        """
        last = self._last
        if last.served_after >= 2:
            is_by_chance = last.refused_after <= last.served_after / 2
            if is_by_chance:
                self._count_chance(last.served)
            return is_by_chance
        is_cheap = self._pause_s < min(last.served, _DEAR_S)
        is_risked = is_cheap and not last.refused_after and not self._has_risked_pause
        self._has_risked_pause = self._has_risked_pause or is_risked
        return is_risked

    def _is_chance_in_ramp(self, ramp: _Ramp) -> bool:
        """Return whether earlier ramps have shown chance, and refusals are no more frequent than chance explains."""
        last = self._last
        is_frequent = last.sent_s < _FREQUENT * self._pause_s and self._pause_s < _DEAR_S
        is_by_chance = is_frequent and self._is_early(ramp) and last.served_after >= _REPEATS and not last.refused_after
        if is_by_chance:
            self._count_chance(last.served)
        is_tolerated = self._excess_refusals < self._refusals_needed and last.refused_after <= 1 + last.served_after / 5
        if is_frequent and self._chance_evidence >= _EVIDENCE_NEEDED and is_tolerated:
            return True
        if not is_by_chance:
            self._chance_evidence /= 2
        return False

    def _record_evidence_without_pause(self) -> None:
        """Record evidence for or against chance. Refusals without a pause end the ramp in any case, at little cost."""
        last, ramp = self._last, self._ramp
        is_rare = 8 * self._refused < last.served
        # Many refusals among served requests are chance: a limiter soon refuses most requests.
        has_many = ramp is None and self._refused > 4 * _REPEATS
        is_early = ramp is not None and self._is_early(ramp)
        if is_rare and (is_early or has_many):
            self._count_chance(last.served / self._refused, 2.0 * _EVIDENCE_NEEDED if has_many else 1.0)
        elif ramp is None or ramp.at_s >= ramp.length_s / 2:
            self._chance_evidence /= 2

    def _is_early(self, ramp: _Ramp) -> bool:
        """Return whether the ramp was refused in its first half, and after about as few requests as the ramp before,
        which was faster: a limiter serves more if the rate is lower."""
        return ramp.at_s < ramp.length_s / 2 and self._last.served < 2 * self._last.served_before

    def _count_chance(self, served_count: float, weight: float = 1.0) -> None:
        """Count evidence that chance refuses one request after `served_count` served ones, in the mean."""
        self._served_per_chance = (
            self._served_per_chance + 0.3 * (served_count - self._served_per_chance)
            if self._chance_evidence
            else max(served_count, 1.0)
        )
        self._chance_evidence = min(self._chance_evidence + weight, 2 * _EVIDENCE_NEEDED)

    def _find_low(self, paused_s: float) -> float:
        """Return the rate at which the next ramp begins (requests/s), after a pause of `paused_s` seconds."""
        last = self._last
        if last.is_first:  # a fresh limiter has saved up more than a pause is worth
            mean = last.served / (last.sent_s + max(paused_s, 1.0))
            low = (mean * last.rate) ** 0.5 if self._pause_s else mean
        else:
            mean = last.served / (last.sent_s + paused_s)
            low = (max(mean, (last.served - self._burst) / last.sent_s) * last.rate) ** 0.5
        return max(low, last.rate / _LEAST_PART)

    def _resume(self, sent_at: float) -> None:
        """Begin a ramp after a pause whose length is known now: the first served request left at `sent_at`."""
        last = self._last
        paused_s = sent_at - last.sent_at
        low, high, mean = self._find_low(paused_s), last.rate, last.served / (last.sent_s + paused_s)
        is_long = last.refused_in_row >= _REPEATS and self._pause_s + 1.0 < paused_s < _LONGEST_WINDOW_S
        if is_long and (last.is_first or mean > last.rate / _LEAST_PART):  # a window; else an outage
            low, high = mean, 1.1 * mean
            self._window_s = max(self._window_s, paused_s)
        last.refused_in_row = 0
        self._begin_ramp(low, high)
        self._resumed_at = sent_at

    def _begin_ramp(self, low: float, high: float) -> None:
        low = max(min(low, (1 - _ROOM) * high), 1 / _HALVED_IN_S)
        high = max(high, (1 + _ROOM) * low)
        self.rate = min(low, self._ceiling)
        width = log(high / low)
        cost_s = max(self._pause_s, (1 if self._pause_s else _REPEATS) / self.rate)
        length_s = max(2 * max(cost_s, _SHORTEST_S) / min(width, 1.0), 4 * self._trip_s * width)
        length_s = min(length_s, _LONGEST_RAMP_PAUSES * max(cost_s, _LEAST_COST_S))
        probe_s = max(_PROBE_S, 2 * _REPEATS * self._trip_s, self._window_s)
        self._ramp = _Ramp(low, high, max(length_s, _WINDOWS * self._window_s), probe_s)
        self._resumed_at, self._served, self._refused, self._excess_refusals = inf, 0, 0, 0.0
