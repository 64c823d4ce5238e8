"""Runs a sandbox: a socket on loopback, the loop, and an end by signal or when the parent is gone."""

import asyncio
import gc
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from connector.sandbox.connection import Connection
from connector.sandbox.control import PREFIX, answer_control
from connector.sandbox.door import FOREIGN_HOST
from connector.sandbox.loopback import is_loopback, is_loopback_header
from connector.sandbox.request import Request
from connector.sandbox.service import Service
from connector.sandbox.state import State, open_state
from connector.sandbox.switches import Settings, parse_settings

if sys.platform != "win32":
    from uvloop import new_event_loop
else:
    from asyncio import new_event_loop

_BACKLOG = 1024
_GC_THRESHOLD = 50_000  # CPython's 700 walks the growing store too often; what is kept per create has no cycles


def serve(
    port: int,
    token: str,
    data: Path | None,
    settings: Sequence[str],
    *,
    host: str = "127.0.0.1",
    stop_with_stdin: bool = False,
) -> None:
    """Serves api.md on loopback until SIGINT or SIGTERM (or, with `stop_with_stdin`, the end of stdin); port 0 takes a
    free one. Prints `sandbox listening on http://HOST:PORT` to stdout once ready.

    Raises ValueError for a setting, a token, a host or a directory that cannot be used, OSError for a port in use.
    """
    parsed = parse_settings(settings)
    check_token(token)
    check_loopback(host)
    if not 0 <= port <= 65535:  # uvloop would take 70000 for 4464
        raise ValueError(f"the port must be 0 (a free one) to 65535, not {port}")
    gc.set_threshold(_GC_THRESHOLD, 20, 50)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(port, token, data, parsed, host, stop_with_stdin=stop_with_stdin))


def check_token(token: str) -> None:
    """Raises ValueError unless the token can stand in a header; it is not shown."""
    if not token or not token.isascii() or not token.isprintable() or token != token.strip():
        raise ValueError("the token must be printable ASCII without blanks around it")


def check_loopback(host: str) -> None:
    """Raises ValueError unless `host` is of this machine alone."""
    if not is_loopback(host):
        raise ValueError(f"the sandbox serves loopback only, not {host!r}: give 127.0.0.1, ::1 or localhost")


async def _serve(
    port: int, token: str, data: Path | None, settings: Settings, host: str, *, stop_with_stdin: bool
) -> None:
    loop = asyncio.get_running_loop()
    state = open_state(settings, token, data, time.monotonic, time.time)
    try:
        stopped = asyncio.Event()
        _watch_for_the_end(loop, stopped, stop_with_stdin=stop_with_stdin)
        connections: set[Connection] = set()
        accept = _build_acceptor(state, Service(state, loop.call_later), connections)
        server = await loop.create_server(accept, host, port, backlog=_BACKLOG)
        sys.stdout.write(f"sandbox listening on {_url(host, server.sockets[0])}\n")
        sys.stdout.flush()
        await stopped.wait()
        server.close()
        for connection in tuple(connections):
            connection.close()
    finally:
        state.close()


def _build_acceptor(state: State, service: Service, connections: set[Connection]) -> Callable[[], Connection]:
    def receive(request: Request, connection: Connection) -> None:
        if not is_loopback_header(request.headers.get("host", "")):
            connection.finish(FOREIGN_HOST)
        elif request.path.startswith(PREFIX):
            connection.finish(answer_control(state, request))
        else:
            service.receive(request, connection)

    def accept() -> Connection:
        settings = state.settings
        keep_alive_s = settings.keep_alive_ms / 1000
        return Connection(receive, connections, max_body=settings.max_body_bytes, keep_alive_s=keep_alive_s)

    return accept


def _watch_for_the_end(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event, *, stop_with_stdin: bool) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stopped.set)
        except NotImplementedError:  # Windows: Ctrl+C ends the loop by KeyboardInterrupt instead
            break
    if stop_with_stdin:  # the parent holds the other end: it closes even when the parent is killed
        loop.add_reader(sys.stdin.fileno(), stopped.set)


def _url(host: str, sock: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{sock.getsockname()[1]}"
