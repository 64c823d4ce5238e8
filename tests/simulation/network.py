"""The way between a process and the service: latency, lost connections and time-outs, in place of sockets.

What it answers with is what the real transport answers with in the same case (tests/service holds that one to it).
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
from connector.sandbox.connection import Ending, Response
from connector.service.wire import Ambiguous, NotSent, RawAnswer, Request
from tests.simulation.calls import Call
from tests.simulation.far_end import TOKEN, FarEnd
from tests.simulation.process import Life
from tests.simulation.timeline import Timeline

_CUT = {
    Ending.CUT: Ambiguous(None, "the connection was cut before the answer"),
    Ending.PART: Ambiguous(None, "the connection was cut in the middle of the answer"),
}
_SERVER_ERRORS = range(500, 600)
_CREATED = (200, 201)
_UNCERTAIN_4XX = (408, 409)

MIXED_UP = "the answer to another"
"""What a process has seen of such a request."""


@dataclass(frozen=True, slots=True)
class Weather:
    """Faults of the network. `latency_s` is the largest latency of each way. The share `refused` of the requests finds
    no connection. The share `delayed` takes up to `delay_s`, so that the process may have given up. The share
    `mixed_up` of the creates gets the answer to another create. `error_as` replaces the status of a 5xx (0: none).
    A connection that carries a create of one of the persons `lost` is cut before the service reads the create."""

    latency_s: float = 0.05
    refused: float = 0.0
    delayed: float = 0.0
    delay_s: float = 0.0
    mixed_up: float = 0.0
    error_as: int = 0
    lost: frozenset[int] = frozenset()


class Way:
    """The connection that one request goes by; the service's side of it is a `Peer`."""

    def __init__(
        self,
        timeline: Timeline,
        life: Life,
        call: Call,
        answered: "asyncio.Future[RawAnswer | Ambiguous]",
        distort: Callable[[RawAnswer], RawAnswer],
    ) -> None:
        self._timeline = timeline
        self._life = life
        self._call = call
        self._answered = answered
        self._distort = distort
        self.back_s = 0.0
        self.is_gone = False
        self.quiet_until = -inf

    def finish(self, response: Response, ending: Ending = Ending.WHOLE, cut_by: str = "close") -> None:
        """The service has done with it; the end travels back."""
        if ending is not Ending.SILENT:
            self._timeline.call_later(self.back_s, partial(self._arrive, response, ending))

    def close(self, seen: str) -> None:
        """The process knows no more of it, whatever is still on its way."""
        self.is_gone = True
        self._call.end(self._timeline.now_s, "died" if self._life.is_over else seen)

    def _arrive(self, response: Response, ending: Ending) -> None:
        if self.is_gone or self._life.is_over:
            return
        raw: RawAnswer | Ambiguous | None = _CUT.get(ending)
        if raw is None:
            headers = {"Content-Type": response.content_type, **dict(response.headers)}
            raw = self._distort(RawAnswer(response.status, headers, response.body))
        self._call.is_refusal = isinstance(raw, RawAnswer) and _is_refusal(raw)
        self.close("cut" if isinstance(raw, Ambiguous) else str(raw.status))
        if not self._answered.done():
            self._answered.set_result(raw)


class Network:
    """Carries the requests of one process. Whoever lets go of `send`, dying or not, ends the connection; the request is
    on its way all the same."""

    def __init__(
        self,
        timeline: Timeline,
        far_end: FarEnd,
        life: Life,
        begin: Callable[[Request], Call],
        random: Random,
        timeout_s: float,
    ) -> None:
        self.weather = Weather()
        self._timeline, self._far_end, self._life, self._begin = timeline, far_end, life, begin
        self._random, self._timeout_s = random, timeout_s
        self._latest: tuple[int, RawAnswer] | None = None  # the latest create that was answered: whose, and how

    async def send(self, request: Request) -> RawAnswer | NotSent | Ambiguous:
        """One attempt, as `connector.service.transport.Transport.send` makes it."""
        call, weather, random = self._begin(request), self.weather, self._random
        out_s, back_s = (random.uniform(0.1, 1.0) * weather.latency_s for _ in range(2))
        if weather.refused and random.random() < weather.refused:
            call.end(self._timeline.now_s, "not sent")
            await asyncio.sleep(out_s)
            return NotSent("no connection to the service: Connection refused")
        if call.operation == "create" and call.person in weather.lost:
            await asyncio.sleep(out_s)
            call.end(self._timeline.now_s, "cut")
            return _CUT[Ending.CUT]
        if weather.delayed and random.random() < weather.delayed:
            out_s += random.uniform(0.3, 1.0) * weather.delay_s
        answered: asyncio.Future[RawAnswer | Ambiguous] = asyncio.get_running_loop().create_future()
        way = Way(self._timeline, self._life, call, answered, partial(self._distort, call, weather))
        way.back_s = back_s
        self._timeline.call_later(out_s, partial(self._far_end.receive, call, _encode(request), way))
        return await self._wait(way, answered)

    def _distort(self, call: Call, weather: Weather, raw: RawAnswer) -> RawAnswer:
        """What the way makes of an answer."""
        if weather.error_as and raw.status in _SERVER_ERRORS:
            return RawAnswer(weather.error_as, raw.headers, raw.body)
        if call.operation != "create" or raw.status not in _CREATED:
            return raw
        other, self._latest = self._latest, (call.person, raw)
        if other is None or other[0] == call.person or self._random.random() >= weather.mixed_up:
            return raw
        call.end(self._timeline.now_s, MIXED_UP)
        return other[1]

    async def _wait(self, way: Way, answered: "asyncio.Future[RawAnswer | Ambiguous]") -> RawAnswer | Ambiguous:
        timed_out = Ambiguous(None, f"no whole answer within {self._timeout_s:g} s")

        def give_up() -> None:
            way.close("time-out")
            if not answered.done():
                answered.set_result(timed_out)

        timer = asyncio.get_running_loop().call_later(self._timeout_s, give_up)
        try:
            return await answered
        finally:
            timer.cancel()
            way.close("cancelled")


def _is_refusal(raw: RawAnswer) -> bool:
    """A 429, a definite 4xx, or a JSON object whose `success` is false, below 500 and no redirect."""
    try:
        answer = orjson.loads(raw.body)
    except orjson.JSONDecodeError:
        answer = None
    is_stated = isinstance(answer, dict) and answer.get("success") is False and raw.status < 500
    is_definite = 400 <= raw.status < 500 and raw.status not in _UNCERTAIN_4XX
    return (is_definite or is_stated) and not 300 <= raw.status < 400


def _encode(request: Request) -> connection.Request:
    body = request.body or b""
    headers = {"host": "localhost", "authorization": TOKEN}
    if request.body is None:
        headers["cache-control"] = "no-cache"
    else:
        headers["content-type"] = "application/json"
    query = urlencode(request.query, quote_via=quote)
    return connection.Request(request.method, request.path, query, headers, body)
