"""One connection of a client: bytes in, answers out, one request at a time and in order (so pipelining is safe).

It knows HTTP and how to break off; what a request means is the service's to say.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from math import inf
from typing import cast

from connector.sandbox.answers import Answer, Ending, build_error, encode_answer
from connector.sandbox.request import BadRequestError, Request, RequestReader

_MAX_WAITING = 262_144  # bytes read ahead of the request being served; beyond it the socket is left to fill up
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 s: closing sends a reset


class Connection(asyncio.Protocol):
    """Serves one connection; `receive` gets each whole request and must call `finish` once for it."""

    def __init__(
        self,
        receive: Callable[[Request, "Connection"], None],
        connections: "set[Connection]",
        *,
        max_body: int,
        keep_alive_s: float,
    ) -> None:
        self._receive = receive
        self._connections = connections
        self.told_until = -inf
        self._reader = RequestReader(max_body)
        self._keep_alive_s = keep_alive_s
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._request: Request | None = None
        self._is_advancing = False
        self._is_paused = False
        self._is_held = False

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed, so that no answer can reach it."""
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._watch_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, by whichever side."""
        self._connections.discard(self)
        self._transport = None
        self._stop_watching()

    def data_received(self, data: bytes) -> None:
        """Bytes came; serves what is whole."""
        self._reader.feed(data)
        if self._reader.buffered > _MAX_WAITING and self._request is not None and self._transport is not None:
            self._is_held = True
            self._transport.pause_reading()
        self._advance()

    def pause_writing(self) -> None:
        """The client reads too slowly: nothing new is served until it has caught up."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_paused = False
        self._advance()

    def finish(self, answer: Answer, ending: Ending = Ending.WHOLE, cut_by: str = "close") -> None:
        """Ends the request being served; a client that is gone is no error."""
        request, transport = self._request, self._transport
        if transport is None or transport.is_closing() or request is None:
            self._request = None
            return
        if ending is Ending.SILENT:
            return  # `_request` stays, so that nothing behind it is served either
        self._request = None
        if ending is Ending.CUT:
            self._cut(transport, cut_by)
        elif ending is Ending.PART:
            encoded = encode_answer(answer, keep_alive=True)
            transport.write(encoded[: len(encoded) - len(answer.body) // 2 - 1])
            transport.close()  # what was written still leaves; a reset could overtake it
        else:
            transport.write(encode_answer(answer, keep_alive=request.keep_alive))
            self._continue(transport, request)

    def close(self) -> None:
        """Ends the connection at once, whatever is being served."""
        if self._transport is not None:
            self._transport.abort()

    def _continue(self, transport: asyncio.Transport, request: Request) -> None:
        if not request.keep_alive:
            transport.close()
            return
        if self._is_held:
            self._is_held = False
            transport.resume_reading()
        self._watch_idle()
        self._advance()

    def _advance(self) -> None:
        """Serves whole requests until one has to wait; `finish` calls back into it, the outer call goes on."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._request is None and not self._is_paused and not self.is_gone:
                request = self._reader.read_request()
                if request is None:
                    self._invite_body()
                    break
                self._stop_watching()
                self._request = request
                self._receive(request, self)
        except BadRequestError as error:
            self._refuse(error)
        finally:
            self._is_advancing = False

    def _invite_body(self) -> None:
        if self._transport is not None and self._reader.take_expectation():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _refuse(self, error: BadRequestError) -> None:
        if self._transport is not None:
            answer = build_error("plain", error.status, str(error))
            self._transport.write(encode_answer(answer, keep_alive=False))
            self._transport.close()

    def _cut(self, transport: asyncio.Transport, cut_by: str) -> None:
        if cut_by == "reset":
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
        else:
            transport.close()

    def _watch_idle(self) -> None:
        if self._keep_alive_s and self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(self._keep_alive_s, self._end_idle)

    def _stop_watching(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        if self._transport is not None:
            self._transport.close()
