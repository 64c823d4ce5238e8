"""The pace of one part of a joint run: one part finds the limit for all, and the others follow it.

Theory of operation. N controllers of one limit would each take the others' requests for a change of it. So of the parts
that send, the first one leads. Its controller works in requests/s of one part, as if the limit were its N-th, which it
is as long as all send alike. The others send at the leader's rate, which makes the shares even. What is refused to them
counts for the leader as its own: each pause, and each N-th refusal without one. A part that is slower than the leader's
rate leaves room, and the leader finds it. Where the leader ends or dies, the next part goes on from the bounds that it
heard of last.

Every part says once in `BEAT_S` what it knows, and hears what the others said. A follower hears of the leader's cut by
the next beat; what is refused to it before belongs to the ramp that the cut has ended, and is not said. Pure: the time
comes in.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import exp, inf, ulp

from connector.pace.rate import Found, RateController

BEAT_S = 0.5
"""Between two exchanges: a leader's ramp of a second and more is followed."""

_PAUSE_S = 2 * BEAT_S  # after refusals that ask for none: until then all parts have heard of the cut
_IDLE_S = 2.0  # a part that has not wanted to send for so long leads no more
_SLACK_S = 0.005  # a sender that wakes up late makes up for so much at once: a loop's turn


@dataclass(frozen=True, slots=True)
class Beat:
    """What a part says of its pace, in requests/s of one part.

    Of a leader: its `rate`, by how much that grows (1/s), what it has `found`, and the number of its ramp. Of every
    part: whether it is `sending`, and of the leader's ramp that it has heard of (`leader`, `ramp`), how many requests
    were `refused` without a pause, and for how long it pauses by a refusal (s).
    """

    rate: float
    growth: float
    found: Found | None
    is_sending: bool
    leader: int
    ramp: int
    refused: int
    pause_s: float


class SharedRate:
    """Says when the next request of part `number` may leave; `ceiling` (requests/s) and `found` are those of all
    `parts` together. No part sends at more than its share of the ceiling: others may begin before it hears of them."""

    def __init__(
        self, number: int, parts: int, ceiling: float = inf, found: Found | None = None, age_s: float = 0.0
    ) -> None:
        self._number, self._parts, self._ceiling = number, parts, ceiling
        self._sending = parts  # how many share the limit
        known = None if found is None else scale(found, 1 / parts)
        self._controller = RateController(ceiling / parts, known, age_s, least_pause_s=_PAUSE_S)
        self._lead: Beat | None = None  # of the part that is followed; None: this one leads
        self._lead_at = self._due_at = self._wants_until = self._paused_until = -inf
        self._leader, self._ramp = number, 0
        self._ramp_at = -inf  # since when the leader's ramp is known here
        self._cut_at = -inf  # of the controller's last cut that was looked at
        self._refused, self._pause_until = 0, -inf  # in this ramp
        self._counted: dict[int, int] = {}  # of the others' refusals in this ramp
        self._owed = 0.0  # refusals that the controller has not heard of yet

    @property
    def rate(self) -> float:
        """Requests/s of this part now."""
        return self._controller.rate if self._lead is None else self._lead.rate

    @property
    def found(self) -> Found | None:
        """What is known of the whole limit; None while none has shown."""
        found = self._controller.found if self._lead is None else self._lead.found
        return None if found is None else scale(found, self._sending)

    def admit(self, now: float) -> float:
        """0 when a request may leave, which is then taken to leave; otherwise the seconds until one may."""
        if self._lead is None:
            wait_s = self._controller.admit(now)
        else:
            wait_s = max(self._due_at, self._paused_until) - now
            if wait_s <= 2 * ulp(now):
                self._leave(self._lead, now)
                wait_s = 0.0
        self._wants_until = now + max(wait_s, 0.0) + _IDLE_S
        return wait_s

    def reserve(self, now: float) -> float:
        """Take the next place for a request, and return the seconds after which it may leave, pauses apart."""
        if self._lead is None:
            return self._controller.reserve(now)
        if self._lead.found is None and self._ceiling == inf:
            return 0.0
        leaves_at = max(now, self._due_at)
        self._leave(self._lead, leaves_at)
        return leaves_at - now

    def note_served(self, sent_at: float, now: float) -> None:
        """A request that was sent then was answered by anything but a refusal for its rate."""
        if self._lead is None:
            self._controller.note_served(sent_at, now)

    def note_refused(self, sent_at: float, now: float, retry_after_s: float | None = None) -> None:
        """A request that was sent then was refused for its rate; nothing leaves for `retry_after_s`."""
        if self._lead is None:
            self._controller.note_refused(sent_at, now, retry_after_s)
            return
        if retry_after_s:
            self._paused_until = max(self._paused_until, now + retry_after_s)
        if sent_at >= self._ramp_at:
            self._refused += not retry_after_s
            self._pause_until = max(self._pause_until, now + (retry_after_s or 0.0))

    def say(self, now: float) -> Beat:
        """Return what the others are to know."""
        controller = self._controller
        if self._lead is None:
            self._look_at_ramp()
        return Beat(
            controller.rate,
            controller.growth,
            controller.found,
            now < self._wants_until,
            self._leader,
            self._ramp,
            self._refused,
            max(0.0, (self._pause_until if self._lead is not None else controller.cut_at) - now),
        )

    def hear(self, beats: Mapping[int, tuple[Beat, float]], now: float) -> None:
        """Take what the other parts that go on have said, by their numbers, each with its age (s)."""
        sending = {number: (beat, now - age_s) for number, (beat, age_s) in beats.items() if beat.is_sending}
        leader = min([*sending, *([self._number] if now < self._wants_until else [])], default=self._number)
        if leader != self._number:
            self._follow(leader, *sending[leader], now)
        elif self._lead is not None:
            self._take_the_lead(self._lead, now)
        if self._sending != len(sending) + 1:
            self._controller.scale(self._sending / (len(sending) + 1))
            self._sending = len(sending) + 1
        if leader == self._number:
            self._look_at_ramp()
            self._count_refusals(sending, now)

    def _follow(self, leader: int, beat: Beat, said_at: float, now: float) -> None:
        if (leader, beat.ramp) != (self._leader, self._ramp):
            self._leader, self._ramp, self._ramp_at = leader, beat.ramp, now
            self._refused, self._pause_until = 0, -inf
        self._lead, self._lead_at = beat, said_at
        self._paused_until = max(self._paused_until, said_at + beat.pause_s)

    def _take_the_lead(self, lead: Beat, now: float) -> None:
        if lead.found is not None:
            self._controller = RateController(self._ceiling / self._parts, lead.found, least_pause_s=_PAUSE_S)
        self._controller.cut(now)
        self._lead, self._leader, self._ramp = None, self._number, self._ramp + 1

    def _look_at_ramp(self) -> None:
        """Forget what was refused to the others where the controller has begun another ramp."""
        if self._controller.cut_at != self._cut_at:
            self._cut_at, self._ramp, self._owed = self._controller.cut_at, self._ramp + 1, 0.0
            self._counted.clear()

    def _count_refusals(self, sending: Mapping[int, tuple[Beat, float]], now: float) -> None:
        """Let the controller hear of what was refused to the others in this ramp."""
        for number, (beat, said_at) in sending.items():
            if (beat.leader, beat.ramp) != (self._number, self._ramp):
                continue
            self._owed += (beat.refused - self._counted.get(number, 0)) / self._sending
            self._counted[number] = beat.refused
            if said_at + beat.pause_s > max(now, self._controller.cut_at):
                self._controller.note_refused(said_at, now, said_at + beat.pause_s - now)
        while self._owed >= 1:
            self._owed -= 1
            self._controller.note_refused(now, now)

    def _leave(self, lead: Beat, at: float) -> None:
        """A request leaves then; the next by the leader's rate."""
        rate = lead.rate * exp(lead.growth * min(max(at - self._lead_at, 0.0), 2 * BEAT_S))
        self._due_at = max(self._due_at, self._paused_until, at - _SLACK_S) + 1 / min(rate, self._ceiling)


def write_beat(beat: Beat) -> str:
    """Return a beat as JSON."""
    return json.dumps(asdict(beat))


def read_beat(text: str) -> Beat:
    """Return the beat that `write_beat` wrote."""
    said = json.loads(text)
    return Beat(**{**said, "found": said["found"] and Found(**said["found"])})


def scale(found: Found, factor: float) -> Found:
    """Return what was found, in requests/s of more or fewer senders."""
    return replace(found, low=found.low * factor, high=found.high * factor, burst=found.burst * factor)
