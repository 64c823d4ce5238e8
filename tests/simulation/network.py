"""The network between a process and the service, which replaces sockets: latency, lost connections and time-outs.

The answers of the simulated network equal the answers of the real transport (`test_network.py` compares both).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from urllib.parse import quote, urlencode

import orjson

from connector.sandbox import connection
from connector.sandbox.connection import Delivery, Response
from connector.service.wire import AmbiguousResult, NotSent, RawAnswer, Request
from tests.simulation.process import ProcessState
from tests.simulation.requests import Call
from tests.simulation.service import TOKEN, SimulatedService
from tests.simulation.timeline import Timeline

_CUT_ANSWERS = {
    Delivery.CUT: AmbiguousResult(None, "the connection was cut before the answer"),
    Delivery.HALF_RESPONSE: AmbiguousResult(None, "the connection was cut in the middle of the answer"),
}
_SERVER_ERROR_STATUSES = range(500, 600)
_CREATED_STATUSES = (200, 201)
_UNCERTAIN_STATUSES = (408, 409)

MIXED_UP_ENDING = "the answer to another create"
"""The ending of a request that got the answer to another create."""


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """Faults of the network."""

    latency_s: float = 0.05  # the largest latency in each direction
    refused_share: float = 0.0  # share of the requests that get no connection
    delayed_share: float = 0.0  # share of the requests that take up to `delay_s`
    delay_s: float = 0.0  # may be longer than the timeout of the process
    mixed_up_share: float = 0.0  # share of the creates that get the answer to another create
    error_status: int = 0  # replaces the status of a 5xx answer; 0: no replacement
    # The connection is cut before the service reads a create of these persons.
    person_numbers_with_lost_creates: frozenset[int] = frozenset()


class Connection:
    """The connection of one request. The service uses the connection as a `Peer`."""

    def __init__(
        self,
        timeline: Timeline,
        process_state: ProcessState,
        call: Call,
        answer_future: "asyncio.Future[RawAnswer | AmbiguousResult]",
        alter_answer: Callable[[RawAnswer], RawAnswer],
    ) -> None:
        self._timeline = timeline
        self._process_state = process_state
        self._call = call
        self._answer_future = answer_future
        self._alter_answer = alter_answer
        self.return_latency_s = 0.0
        self.is_client_gone = False
        self.paused_until = -inf

    def finish_request(
        self, response: Response, ending: Delivery = Delivery.WHOLE_RESPONSE, cut_method: str = "close"
    ) -> None:
        """Send the response of the service back to the process."""
        if ending is not Delivery.SILENT:
            self._timeline.call_later(self.return_latency_s, partial(self._receive_response, response, ending))

    def close(self, ending: str) -> None:
        """Close the connection for the process, even if a response is still under way."""
        self.is_client_gone = True
        self._call.end(self._timeline.now_s, "killed" if self._process_state.has_ended else ending)

    def _receive_response(self, response: Response, ending: Delivery) -> None:
        if self.is_client_gone or self._process_state.has_ended:
            return
        raw_answer: RawAnswer | AmbiguousResult | None = _CUT_ANSWERS.get(ending)
        if raw_answer is None:
            headers = {"Content-Type": response.content_type, **dict(response.headers)}
            raw_answer = self._alter_answer(RawAnswer(response.status, headers, response.body))
        self._call.is_refusal = isinstance(raw_answer, RawAnswer) and _is_refusal(raw_answer)
        self.close("cut" if isinstance(raw_answer, AmbiguousResult) else str(raw_answer.status))
        if not self._answer_future.done():
            self._answer_future.set_result(raw_answer)


class Network:
    """The network of one process. If `send` is cancelled, the connection is closed, but the request may still
    arrive."""

    def __init__(
        self,
        timeline: Timeline,
        service: SimulatedService,
        process_state: ProcessState,
        record_call: Callable[[Request], Call],
        rng: Random,
        timeout_s: float,
    ) -> None:
        self.network_faults = NetworkFaults()
        self._timeline, self._service, self._process_state, self._record_call = (
            timeline,
            service,
            process_state,
            record_call,
        )
        self._rng, self._timeout_s = rng, timeout_s
        # The person number and the answer of the latest create that was answered with success.
        self._latest_answer: tuple[int, RawAnswer] | None = None

    async def send(self, request: Request) -> RawAnswer | NotSent | AmbiguousResult:
        """Make one attempt, as `connector.service.transport.Transport.send` does."""
        call, network_faults, rng = self._record_call(request), self.network_faults, self._rng
        request_latency_s, return_latency_s = (rng.uniform(0.1, 1.0) * network_faults.latency_s for _ in range(2))
        if network_faults.refused_share and rng.random() < network_faults.refused_share:
            call.end(self._timeline.now_s, "not sent")
            await asyncio.sleep(request_latency_s)
            return NotSent("no connection to the service: Connection refused")
        if call.operation == "create" and call.person_number in network_faults.person_numbers_with_lost_creates:
            await asyncio.sleep(request_latency_s)
            call.end(self._timeline.now_s, "cut")
            return _CUT_ANSWERS[Delivery.CUT]
        if network_faults.delayed_share and rng.random() < network_faults.delayed_share:
            request_latency_s += rng.uniform(0.3, 1.0) * network_faults.delay_s
        answer_future: asyncio.Future[RawAnswer | AmbiguousResult] = asyncio.get_running_loop().create_future()
        connection_to_service = Connection(
            self._timeline, self._process_state, call, answer_future, partial(self._alter_answer, call, network_faults)
        )
        connection_to_service.return_latency_s = return_latency_s
        self._timeline.call_later(
            request_latency_s, partial(self._service.receive, call, _encode_request(request), connection_to_service)
        )
        return await self._wait_for_answer(connection_to_service, answer_future)

    def _alter_answer(self, call: Call, network_faults: NetworkFaults, raw_answer: RawAnswer) -> RawAnswer:
        """Return the answer after the changes that the faults of the network make."""
        if network_faults.error_status and raw_answer.status in _SERVER_ERROR_STATUSES:
            return RawAnswer(network_faults.error_status, raw_answer.headers, raw_answer.body)
        if call.operation != "create" or raw_answer.status not in _CREATED_STATUSES:
            return raw_answer
        other_answer, self._latest_answer = self._latest_answer, (call.person_number, raw_answer)
        if (
            other_answer is None
            or other_answer[0] == call.person_number
            or self._rng.random() >= network_faults.mixed_up_share
        ):
            return raw_answer
        call.end(self._timeline.now_s, MIXED_UP_ENDING)
        return other_answer[1]

    async def _wait_for_answer(
        self, connection_to_service: Connection, answer_future: "asyncio.Future[RawAnswer | AmbiguousResult]"
    ) -> RawAnswer | AmbiguousResult:
        timeout_answer = AmbiguousResult(None, f"no complete answer within {self._timeout_s:g} s")

        def give_up() -> None:
            connection_to_service.close("time-out")
            if not answer_future.done():
                answer_future.set_result(timeout_answer)

        timer = asyncio.get_running_loop().call_later(self._timeout_s, give_up)
        try:
            return await answer_future
        finally:
            timer.cancel()
            connection_to_service.close("cancelled")


def _is_refusal(raw_answer: RawAnswer) -> bool:
    """Return whether the service refused the request. A refusal has a status from 400 to 499, except 408 and 409. An
    answer with `success: false` is a refusal, too, if its status is below 500. A redirect is not a refusal."""
    try:
        answer = orjson.loads(raw_answer.body)
    except orjson.JSONDecodeError:
        answer = None
    is_failure_in_body = isinstance(answer, dict) and answer.get("success") is False and raw_answer.status < 500
    is_definite_4xx = 400 <= raw_answer.status < 500 and raw_answer.status not in _UNCERTAIN_STATUSES
    return (is_definite_4xx or is_failure_in_body) and not 300 <= raw_answer.status < 400


def _encode_request(request: Request) -> connection.Request:
    body = request.body or b""
    headers = {"host": "localhost", "authorization": TOKEN}
    if request.body is None:
        headers["cache-control"] = "no-cache"
    else:
        headers["content-type"] = "application/json"
    query = urlencode(request.query, quote_via=quote)
    return connection.Request(request.method, request.path, query, headers, body)
