"""The way of an API request: let in or not, waiting its turn and its latency, executed, answered as its fault has it.

Nothing here awaits: each step decides and calls the next, at once or later by the loop's timer.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import orjson

from connector.sandbox.answers import NO_ANSWER, Answer, Ending, build_error
from connector.sandbox.churn import churn
from connector.sandbox.creates import create_subscriber
from connector.sandbox.door import OPERATIONS, admit, refuse_for
from connector.sandbox.faults import FATES, Fate, Fault, pick_garbage
from connector.sandbox.listing import Listing, parse_query
from connector.sandbox.rejection import RejectedError
from connector.sandbox.request import Request
from connector.sandbox.sends import send_email
from connector.sandbox.state import State

_AS_IF_REFUSED = 1.0  # the Retry-After of a 429 that stands for a create which took place


class Peer(Protocol):
    """The connection that a request came by; the client has been told by it to stay away until `told_until`."""

    told_until: float

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed."""

    def finish(self, answer: Answer, ending: Ending = Ending.WHOLE, cut_by: str = "close") -> None:
        """Ends the request."""


class Service:
    """The API over one state."""

    def __init__(self, state: State, call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]) -> None:
        self._state = state
        self._call_later = call_later
        self._listing = Listing()
        self._served = 0
        self._is_calling = False
        self._line: deque[Callable[[], None]] = deque()

    def receive(self, request: Request, peer: Peer) -> None:
        """Takes a request of the API, whose `peer.finish` will be called once."""
        state = self._state
        now = state.clock()
        operation = OPERATIONS[request.path][0] if request.path in OPERATIONS else None
        label = operation or "other"
        state.stats.note_received(label, now, peer.told_until)
        entry = admit(state, request, operation, now, self._served + len(self._line))
        if operation is None or entry.refusal is not None:
            refusal = entry.refusal or build_error(state.settings.error_shape, 404, "There is nothing at this address")
            self._after(self._latency_s(), lambda: self._finish(label, peer, refusal, Ending.WHOLE))
            return
        self._stand_in_line(lambda: self._serve(operation, request, peer, entry.fault))

    # capacity and latency

    def _stand_in_line(self, serve: Callable[[], None]) -> None:
        if self._state.settings.capacity and self._served >= self._state.settings.capacity:
            self._line.append(serve)
            return
        self._served += 1
        serve()

    def _leave(self) -> None:
        self._served -= 1
        if self._is_calling:  # a call below served one at once and came back here: its loop goes on, not a deeper one
            return
        self._is_calling = True
        while self._line and (not self._state.settings.capacity or self._served < self._state.settings.capacity):
            self._served += 1
            self._line.popleft()()
        self._is_calling = False

    def _latency_s(self) -> float:
        settings = self._state.settings
        jitter_ms = self._state.random.random() * settings.jitter_ms if settings.jitter_ms else 0.0
        return (settings.latency_ms + jitter_ms) / 1000

    def _after(self, delay_s: float, act: Callable[[], None]) -> None:
        if delay_s:
            self._call_later(delay_s, act)
        else:
            act()

    def _serve(self, operation: str, request: Request, peer: Peer, fault: Fault | None) -> None:
        epoch = self._state.epoch

        def act() -> None:
            try:
                if self._state.epoch == epoch:
                    self._perform(operation, request, peer, fault)
                else:  # begun before a reset: it must not show after it
                    self._finish(operation, peer, NO_ANSWER, Ending.CUT)
            finally:
                self._leave()

        self._after(self._latency_s(), act)

    # execution

    def _perform(self, operation: str, request: Request, peer: Peer, fault: Fault | None) -> None:
        state = self._state
        if fault is Fault.DROP_BEFORE:
            self._finish(operation, peer, NO_ANSWER, Ending.CUT)
            if state.settings.late_ms and operation != "list":
                self._execute_late(operation, request)
            return
        if fault is Fault.ERROR_BEFORE or (operation == "list" and self._is_list_error()):
            self._finish(operation, peer, self._server_error(), Ending.WHOLE)
            return
        fate = Fate.GONE if peer.is_gone else FATES[fault]
        answer, is_done = self._execute(operation, request, fate)
        answer, ending = self._disguise(operation, answer, fault, is_done=is_done)
        self._finish(operation, peer, answer, ending)

    def _execute_late(self, operation: str, request: Request) -> None:
        epoch = self._state.epoch

        def act() -> None:
            if self._state.epoch == epoch:
                self._execute(operation, request, Fate.LATE)

        self._call_later(self._state.settings.late_ms / 1000, act)

    def _execute(self, operation: str, request: Request, fate: Fate) -> tuple[Answer, bool]:
        """(the answer, whether the request did what it asked for)."""
        state = self._state
        try:
            if operation == "create":
                return create_subscriber(state, request.body, fate), True
            if operation == "send":
                return send_email(state, request.body, fate), True
            query = parse_query(request.query, state.settings)
            page = self._listing.read_page(state, query)
            churn(state, query.base_id)
        except RejectedError as error:
            status = state.settings.error_status if error.status is None else error.status
            return build_error(state.settings.error_shape, status, error.message), False
        except OSError:  # a full disk: nothing was stored, and the sandbox says so as a service would
            return self._server_error(), False
        return page, True

    def _is_list_error(self) -> bool:
        share = self._state.settings.list_error
        if not share or self._state.random.random() >= share:
            return False
        self._state.stats.faults["list_error"] += 1
        return True

    # answers

    def _disguise(self, operation: str, answer: Answer, fault: Fault | None, *, is_done: bool) -> tuple[Answer, Ending]:
        """What the fault makes of the answer to an executed request; a rejection is not made out to be another one."""
        state = self._state
        match fault:
            case Fault.DROP_AFTER:
                return NO_ANSWER, Ending.CUT
            case Fault.CUT_ANSWER:
                return answer, Ending.PART
            case Fault.HANG_AFTER:
                return NO_ANSWER, Ending.SILENT
            case Fault.ERROR_AFTER:
                return self._server_error(), Ending.WHOLE
            case Fault.GARBAGE_AFTER:
                return Answer(200, pick_garbage(state.random)), Ending.WHOLE
            case Fault.CREATED_422 if is_done and operation != "list":
                return build_error(state.settings.error_shape, 422, "The request cannot be processed"), Ending.WHOLE
            case Fault.CREATED_429 if is_done and operation != "list":
                return refuse_for(state, 429, _AS_IF_REFUSED, "Too many requests, come back later"), Ending.WHOLE
            case Fault.EXECUTED_STATUS if is_done and operation != "list":
                status = int(state.random.choice(state.settings.executed_statuses))
                return build_error(state.settings.error_shape, status, "This is not possible"), Ending.WHOLE
            case Fault.WRONG_ANSWER if is_done and operation == "create":
                return _somebody_else(answer), Ending.WHOLE
            case _:
                return answer, Ending.WHOLE

    def _server_error(self) -> Answer:
        settings = self._state.settings
        return build_error(settings.error_shape, settings.server_error, "Something went wrong on our side")

    def _finish(self, operation: str, peer: Peer, answer: Answer, ending: Ending) -> None:
        """Answers, and counts what the client can see of it."""
        label = _LABELS.get(ending) or str(answer.status)
        self._state.stats.note_answered(operation, "gone" if peer.is_gone else label)
        state = self._state
        wait_s = answer.wait_s if answer.wait_until is None else answer.wait_until - state.wall()
        if wait_s > 0:
            peer.told_until = state.clock() + wait_s
            state.stats.note_retry_after(peer.told_until)
        peer.finish(answer, ending, self._state.settings.cut_by)


_LABELS = {Ending.CUT: "cut", Ending.PART: "cut_in_answer", Ending.SILENT: "hung"}


def _somebody_else(answer: Answer) -> Answer:
    """The answer with the email of somebody else, as of a service that mixed two requests up."""
    root = orjson.loads(answer.body)
    root["Subscriber"]["Email"] = "somebody.else@example.net"
    return Answer(answer.status, orjson.dumps(root))
