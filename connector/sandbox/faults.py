"""The faults (design, section 9): which one befalls a request is drawn once, in the order in which they strike.

It decides; the service does what was decided.
"""

from bisect import bisect_right
from enum import StrEnum
from random import Random

from connector.sandbox.switches import Settings


class Fault(StrEnum):
    """Each is named after its switch; one that stands earlier is drawn earlier."""

    REFUSE = "refuse"
    DROP_BEFORE = "drop_before"
    ERROR_BEFORE = "error_before"
    DROP_AFTER = "drop_after"
    ERROR_AFTER = "error_after"
    CUT_ANSWER = "cut_answer"
    HANG_AFTER = "hang_after"
    GARBAGE_AFTER = "garbage_after"
    CREATED_422 = "created_422"
    CREATED_429 = "created_429"
    EXECUTED_STATUS = "executed_status"
    WRONG_ANSWER = "wrong_answer"


class Fate(StrEnum):
    """What became of the answer to a request that was executed, as the truth log tells it."""

    ANSWERED = "answered"
    CUT = "cut"  # stored, no byte of the answer sent
    CUT_IN_ANSWER = "cut_in_answer"
    HUNG = "hung"
    GARBAGE = "garbage"
    SERVER_ERROR = "server_error"
    AS_422 = "answered_422"
    AS_429 = "answered_429"
    AS_REFUSED = "answered_as_refused"  # with one of executed_statuses
    WRONG = "wrong_answer"
    LATE = "late"  # executed after the connection had been cut
    GONE = "gone"  # the client had closed before it was executed
    NOBODY = "nobody"  # no request asked for it: seeded, or churn


FATES: dict[Fault | None, Fate] = {
    None: Fate.ANSWERED,
    Fault.DROP_AFTER: Fate.CUT,
    Fault.ERROR_AFTER: Fate.SERVER_ERROR,
    Fault.CUT_ANSWER: Fate.CUT_IN_ANSWER,
    Fault.HANG_AFTER: Fate.HUNG,
    Fault.GARBAGE_AFTER: Fate.GARBAGE,
    Fault.CREATED_422: Fate.AS_422,
    Fault.CREATED_429: Fate.AS_429,
    Fault.EXECUTED_STATUS: Fate.AS_REFUSED,
    Fault.WRONG_ANSWER: Fate.WRONG,
}

_IN_ORDER = tuple(Fault)


class FaultDraw:
    """Draws a request's fault with one random number; a probability is of the requests that no earlier fault took."""

    def __init__(self, settings: Settings) -> None:
        self._operations = frozenset(settings.fault_operations)
        self._bounds: list[float] = []
        left = 1.0
        for fault in _IN_ORDER:
            left *= 1.0 - float(getattr(settings, fault))
            self._bounds.append(1.0 - left)
        self._is_idle = left == 1.0

    def draw(self, operation: str, random: Random) -> Fault | None:
        """The fault that befalls a request of this operation, mostly none."""
        if self._is_idle or operation not in self._operations:
            return None
        place = bisect_right(self._bounds, random.random())
        return _IN_ORDER[place] if place < len(_IN_ORDER) else None


_GARBAGE = (
    b"\x00\xff\xfe upstream sent no body \x80",
    b"<html><body>It works!</body></html>",
    b"null",
    b"[]",
    b'{"success":true}',
    b'{"success":"true","Subscriber":{"Id":1}}',
    b'{"success":true,"Subscriber":{"Id":null}}',
    b'{"success":true,"Subscriber":',
)


def pick_garbage(random: Random) -> bytes:
    """A body that is no success, each in a way of its own."""
    return random.choice(_GARBAGE)
