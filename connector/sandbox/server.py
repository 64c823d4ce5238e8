"""Runs a sandbox: a socket on loopback, the loop, the control address, and an end by signal or with the parent.

The control address is /_sandbox/ on the same port, for tests and benchmarks; no client of the API goes there:
  GET truth (?after=SEQUENCE) · stats · outbox · switches
  POST switches {name: value} · reset · seed {count, base_id | base_name}
Each control request carries the token itself as Authorization, whatever the switch `authorization` says: other users of
the machine reach this address too.
"""

import asyncio
import gc
import ipaddress
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from connector.sandbox.connection import Connection, Request, Response
from connector.sandbox.page import answer_page
from connector.sandbox.service import Sandbox, Service, is_authorised
from connector.sandbox.subscriber import reject
from connector.sandbox.switches import SandboxSettings, parse_settings

if sys.platform != "win32":
    from uvloop import new_event_loop
else:
    from asyncio import new_event_loop

_BACKLOG = 1024
_NEVER_S = 1e9  # seconds; 0 would mean at once to aiohttp
_GC_THRESHOLD = 50_000  # CPython's 700 walks the growing store too often; what is kept per create has no cycles
_CONTROL = "/_sandbox/"
_SWITCHES = TypeAdapter(dict[str, object])
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9.]+))(?::[0-9]{0,5})?", re.IGNORECASE | re.ASCII)


def serve(
    port: int,
    token: str,
    data: Path | None,
    settings: Sequence[str],
    *,
    host: str = "127.0.0.1",
    stop_with_stdin: bool = False,
) -> None:
    """Serve service-api.md on loopback until SIGINT or SIGTERM (or, with `stop_with_stdin`, the end of stdin); port 0
    takes a free one. Prints `sandbox listening on http://HOST:PORT` to stdout once ready.

    Raises ValueError for a setting, a token, a host or a directory that cannot be used, OSError for a port in use.
    """
    parsed = parse_settings(settings)
    if not token or not token.isascii() or not token.isprintable() or token != token.strip():
        raise ValueError("the token must be printable ASCII without blanks around it")
    if not _is_loopback(host):
        raise ValueError(f"the sandbox serves loopback only, not {host!r}: give 127.0.0.1, ::1 or localhost")
    if not 0 <= port <= 65535:  # uvloop would take 70000 for 4464
        raise ValueError(f"the port must be 0 (a free one) to 65535, not {port}")
    gc.set_threshold(_GC_THRESHOLD, 20, 50)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(port, token, data, parsed, host, stop_with_stdin=stop_with_stdin))


async def _serve(
    port: int, token: str, data: Path | None, settings: SandboxSettings, host: str, *, stop_with_stdin: bool
) -> None:
    loop = asyncio.get_running_loop()
    sandbox = Sandbox(settings, token, data, time.monotonic, time.time)
    service = Service(sandbox, loop.call_later)

    def receive(request: Request, connection: Connection) -> None:
        if not is_loopback_header(request.headers.get("host", "")):
            connection.finish(_FOREIGN_HOST)
        elif request.path.startswith(_CONTROL):
            connection.finish(_answer_control(sandbox, service, request))
        elif request.path == "/":
            connection.finish(answer_page(sandbox, request))
        else:
            service.receive(request, connection)

    def accept() -> asyncio.Protocol:
        # a request without an answer ends with its client (handler_cancellation)
        return web.Server(
            Connection(receive).answer, handler_cancellation=True, keepalive_timeout=_NEVER_S, access_log=None
        )()

    try:
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        if stop_with_stdin:  # the parent holds the other end: it closes even when the parent is killed
            loop.add_reader(sys.stdin.fileno(), stopped.set)
        server = await loop.create_server(accept, host, port, backlog=_BACKLOG)
        shown = f"[{host}]" if ":" in host else host
        sys.stdout.write(f"sandbox listening on http://{shown}:{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        await stopped.wait()
        server.close()
    finally:
        sandbox.truth.close()


# loopback: what the sandbox listens on, and what its clients may call it


def _is_loopback(host: str) -> bool:
    """Return whether `host` is `localhost`, in 127.0.0.0/8 or ::1, without asking a name server."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=64)  # a client sends the same one with every request
def is_loopback_header(host: str) -> bool:
    """Return whether a Host header (RFC 9110, 7.2) names this machine; "" and two names in one do not."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    literal = found["v6"]
    return _is_loopback(found["name"]) if literal is None else ":" in literal and _is_loopback(literal)


# control


class _Seed(BaseModel):
    """The body of a seed: `count` subscribers of one base, by default base_id 1."""

    model_config = ConfigDict(strict=True, extra="forbid")

    count: Annotated[int, Field(ge=1, le=20_000_000)]
    base_id: Annotated[int, Field(ge=1)] | None = None
    base_name: Annotated[str, Field(min_length=1)] | None = None


def _json(value: object, status: int = 200) -> Response:
    return Response(status, orjson.dumps(value))


_FOREIGN_HOST = _json({"error": "the Host must be localhost, an address in 127.0.0.0/8, or [::1]"}, 403)
"""For a request that calls the sandbox by another name, at every address: a web page whose own name was made to lead
here (DNS rebinding) calls the sandbox by that name, and could read the answer."""


def _answer_control(sandbox: Sandbox, service: Service, request: Request) -> Response:
    """Return the answer to a request under /_sandbox/, always JSON. A wrong request is answered 400 and changes
    nothing; a request without the token is answered 401."""
    if not is_authorised(request, sandbox.token.encode()):
        return _json({"error": "the sandbox's token is missing or wrong: send it as Authorization"}, 401)
    try:
        match request.method, request.path.removeprefix(_CONTROL):
            case "GET", "truth":
                after = parse_qs(request.query).get("after", ["0"])[0]
                if not (after.isascii() and after.isdigit()):
                    raise ValueError("after must be a sequence, 0 or more")  # noqa: TRY301 - answered as the others are
                state = {
                    "sequence": sandbox.truth.sequence,
                    "subscribers": len(sandbox.store),
                    "bases": [{"id": base_id, "name": name} for base_id, name in sandbox.store.bases.items()],
                    "duplicates": sandbox.store.duplicates(sandbox.settings.identity),
                }
                events = sandbox.truth.read_events(int(after))
                return Response(200, b'{"events":' + events + b"," + orjson.dumps(state)[1:])
            case "GET", "stats":
                return _json(sandbox.stats.read() | {"subscribers": len(sandbox.store), "emails": len(sandbox.outbox)})
            case "GET", "outbox":
                return _json({"emails": sandbox.outbox.read_entries(sandbox.wall())})
            case "POST", "switches":
                sandbox.change(_SWITCHES.validate_json(request.body))
                return _json(sandbox.settings.model_dump())
            case "GET", "switches":
                return _json(sandbox.settings.model_dump())
            case "POST", "reset":
                service.reset()
                return _json({"reset": True})
            case "POST", "seed":
                seed = _Seed.model_validate_json(request.body)
                base_id = 1 if seed.base_id is None and seed.base_name is None else seed.base_id
                return _json(asdict(sandbox.seed(seed.count, base_id, seed.base_name)))
            case _:
                return _json({"error": "there is no such control; see connector/sandbox/server.py"}, 404)
    except ValidationError as error:
        return _json({"error": reject(error).message}, 400)
    except ValueError as error:
        return _json({"error": str(error)}, 400)
