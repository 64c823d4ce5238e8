"""Runs a sandbox: a socket on loopback, the loop, the control address, and an end by signal or with the parent.

The control address is /_sandbox/ on the same port, for tests and benchmarks; no client of the API goes there:
  GET truth (?after=SEQUENCE) · stats · outbox · switches
  POST switches {name: value} · reset · seed {count, base_id | base_name}
Each control request carries the token itself as Authorization, whatever the switch `authorization` says: other users of
the machine reach this address too.
"""

import asyncio
import base64
import binascii
import gc
import hmac
import ipaddress
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from email import message_from_bytes, policy
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qs, parse_qsl, urlencode

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from connector.sandbox.connection import Connection, Request, Response
from connector.sandbox.service import OPERATIONS, Sandbox, Service, is_authorised
from connector.sandbox.subscriber import reject
from connector.sandbox.switches import SandboxSettings, list_switches, parse_settings, write_value

if TYPE_CHECKING:
    import jinja2


# The page


_HTML = "text/html; charset=utf-8"
_SHOWN = 50  # subscribers and emails; the page has a search for the others
_GROUPS = {
    "duplicates": "What a create does",
    "error_shape": "Errors and access",
    "filters": "The list",
    "latency_ms": "Pace",
    "blocked_from": "Refusals of all creates",
    "fault_operations": "Faults",
    "verified_domains": "Emails",
}
"""The headings of the switches, each by the first switch below the heading."""

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
)
_ASK = (*_HEADERS, ("WWW-Authenticate", 'Basic realm="sandbox: any name, and its token as the password"'))


def answer_page(sandbox: Sandbox, request: Request) -> Response:
    """Return the page (GET), or set the switches of its form (POST) and lead back to the page."""
    scheme, _, coded = request.headers.get("authorization", "").partition(" ")
    try:
        password = base64.b64decode(coded, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        password = b""
    if scheme.lower() != "basic" or not hmac.compare_digest(password, sandbox.token.encode()):
        text = "The sandbox's page asks for a name, which may be any, and a password, which is the sandbox's token."
        return Response(401, text.encode(), "text/plain; charset=utf-8", _ASK)
    positions = {switch.name: write_value(getattr(sandbox.settings, switch.name)) for switch in list_switches()}
    if request.method == "GET":
        return _show(sandbox, dict(parse_qsl(request.query, keep_blank_values=True)), positions)
    if request.method != "POST":
        return Response(405, b"", _HTML, (*_HEADERS, ("Allow", "GET, POST")))
    if request.headers.get("origin") != f"http://{request.headers.get('host')}":
        return Response(403, b"Only the sandbox's own page can send this form.", _HTML, _HEADERS)
    form = dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True))
    changed = {name: value for name, value in form.items() if positions.get(name) != value}
    try:
        sandbox.change(changed)
    except ValueError as error:  # the form comes back as the person filled it in
        return _show(sandbox, {}, positions | form, problem=str(error))
    target = "/?" + urlencode({"set": ", ".join(changed)}) + "#switches" if changed else "/#switches"
    return Response(303, b"", _HTML, (*_HEADERS, ("Location", target)))


def _show(sandbox: Sandbox, query: Mapping[str, str], positions: Mapping[str, str], problem: str = "") -> Response:
    """Return the page; `positions` are the values that the form shows."""
    store, wanted = sandbox.store, query.get("q", "").strip()
    groups: dict[str, list[dict[str, Any]]] = {}
    for switch in list_switches():
        group = groups.setdefault(_GROUPS.get(switch.name) or next(reversed(groups)), [])
        value = positions[switch.name]
        group.append(
            {
                "name": switch.name,
                "value": value,
                "default": switch.default,
                "allowed": switch.values,
                "help": switch.help,
                "choices": switch.values.split(" | ") if " | " in switch.values else (),
                "is_moved": value != switch.default,
            }
        )
    started_at = sandbox.wall() - sandbox.clock()
    requests = [
        {
            "at": datetime.fromtimestamp(started_at + at, UTC).strftime("%H:%M:%S.%f")[:-3],
            "what": OPERATIONS[request.path][0] if request.path in OPERATIONS else f"{request.method} {request.path}",
            "about": request.query or _describe_body(request.body),
            "answer": answer,
        }
        for at, request, answer in reversed(sandbox.recent)
    ]
    page = _load_template().render(
        sandbox=sandbox,
        bases=[(base_id, name, store.count_by_base().get(base_id, 0)) for base_id, name in store.bases.items()],
        query=wanted,
        subscribers=[store.read(subscriber_id) for subscriber_id in store.search(wanted, _SHOWN)],
        shown=_SHOWN,
        requests=requests,
        emails=sandbox.outbox.read_last(_SHOWN, sandbox.wall()),
        opened=_open_email(sandbox, query.get("email", "")),
        groups=groups,
        changed=[switch for group in groups.values() for switch in group if switch["is_moved"]],
        problem=problem,
        were_set=query.get("set", ""),
        is_following="follow" in query,
    )
    return Response(400 if problem else 200, page.encode("utf-8", "replace"), _HTML, _HEADERS)


@cache
def _load_template() -> "jinja2.Template":
    """Import Jinja2 with the first page only: a sandbox for tests does not need Jinja2."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))


def _describe_body(body: bytes) -> str:
    """Return the subscriber or the recipients of a create or an email, or "" if the body cannot be read."""
    try:
        root = orjson.loads(body)
        subscriber = root.get("Subscriber")
        if subscriber is None:
            return ", ".join(mailbox["Email"] for mailbox in root["SendEmail"]["Email"]["To"])
        return str(subscriber.get("Email") or subscriber.get("ClientUserId") or "")
    except (ValueError, AttributeError, KeyError, TypeError):
        return ""


def _open_email(sandbox: Sandbox, number: str) -> dict[str, Any] | None:
    """Return the email with this number, or else the last one, for a frame; None without an email."""
    wanted = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else sandbox.outbox.last_id
    eml = sandbox.outbox.read_eml(wanted)
    if not eml:
        return None
    message = message_from_bytes(eml, policy=policy.default)
    page, text = message.get_body(("html",)), message.get_body(("plain",))
    html = page.get_content() if page is not None else ""
    for part in message.walk():  # the page's own images are put into the page: nothing else may be fetched
        name = str(part.get("Content-ID", "")).strip("<>")
        if name and part.get_content_maintype() == "image":
            coded = base64.b64encode(part.get_payload(decode=True) or b"").decode()  # type: ignore[arg-type]  # a leaf
            html = html.replace(f"cid:{name}", f"data:{part.get_content_type()};base64,{coded}")
    return {
        "id": wanted,
        "headers": [(name, str(message[name])) for name in ("From", "To", "Cc", "Bcc", "Subject") if message[name]],
        "html": html,
        "text": text.get_content() if text is not None else "",
        "files": [part.get_filename() for part in message.walk() if part.get_filename()],
    }


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
