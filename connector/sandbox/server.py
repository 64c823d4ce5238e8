"""Runs a sandbox: the socket on loopback, the event loop, the control address and the page. The sandbox ends after
a signal, or when its parent ends.

The control address is /_sandbox/ on the same port. Tests, benchmarks and `connector demo` use the control address:

- GET: truth (?after=SEQUENCE), stats, outbox, switches
- POST: switches {name: value}, reset, seed {count, base_id | base_name}

Each control request must have the plain token as its Authorization header, because other users of the machine can also
reach this address. The switch `authorization` does not change this header.
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
from uvloop import new_event_loop

from connector.sandbox.connection import Connection, Request, Response
from connector.sandbox.service import OPERATION_AND_METHOD_BY_PATH, Service, is_authorised
from connector.sandbox.state import Sandbox
from connector.sandbox.subscriber import build_rejection
from connector.sandbox.switches import SandboxSettings, format_value, list_switches, parse_settings

if TYPE_CHECKING:
    import jinja2


# The page


_HTML_CONTENT_TYPE = "text/html; charset=utf-8"
_MAX_SHOWN_ENTRIES = 50  # the page shows at most this many subscribers and emails, and can search for others
_HEADING_BY_FIRST_SWITCH = {
    "duplicates": "What a create does",
    "error_shape": "Errors and access",
    "filters": "The list",
    "latency_ms": "Pace",
    "blocked_from": "Refusals of all creates",
    "fault_operations": "Faults",
    "verified_domains": "Emails",
}
"""The headings of the page. The key is the first switch below the heading."""

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_PAGE_HEADERS = (
    ("Content-Security-Policy", _CONTENT_SECURITY_POLICY),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
)
_LOGIN_HEADERS = (
    *_PAGE_HEADERS,
    ("WWW-Authenticate", 'Basic realm="sandbox: any name, and its token as the password"'),
)


def answer_page(sandbox: Sandbox, request: Request) -> Response:
    """Return the page (GET), or set the switches of its form (POST) and redirect to the page."""
    scheme, _, encoded_credentials = request.headers.get("authorization", "").partition(" ")
    try:
        password = base64.b64decode(encoded_credentials, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        password = b""
    if scheme.lower() != "basic" or not hmac.compare_digest(password, sandbox.token.encode()):
        text = "Enter any name, and the sandbox's token as the password."
        return Response(401, text.encode(), "text/plain; charset=utf-8", _LOGIN_HEADERS)
    switch_values = {switch.name: format_value(getattr(sandbox.settings, switch.name)) for switch in list_switches()}
    if request.method == "GET":
        return _render_page(sandbox, dict(parse_qsl(request.query, keep_blank_values=True)), switch_values)
    if request.method != "POST":
        return Response(405, b"", _HTML_CONTENT_TYPE, (*_PAGE_HEADERS, ("Allow", "GET, POST")))
    if request.headers.get("origin") != f"http://{request.headers.get('host')}":
        return Response(403, b"Only the sandbox's own page can send this form.", _HTML_CONTENT_TYPE, _PAGE_HEADERS)
    form_values = dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True))
    changed_values = {name: value for name, value in form_values.items() if switch_values.get(name) != value}
    try:
        sandbox.change_switches(changed_values)
    except ValueError as error:  # the form keeps the values that the person has entered
        return _render_page(sandbox, {}, switch_values | form_values, problem=str(error))
    redirect_target = (
        "/?" + urlencode({"set": ", ".join(changed_values)}) + "#switches" if changed_values else "/#switches"
    )
    return Response(303, b"", _HTML_CONTENT_TYPE, (*_PAGE_HEADERS, ("Location", redirect_target)))


def _render_page(
    sandbox: Sandbox, query: Mapping[str, str], switch_values: Mapping[str, str], problem: str = ""
) -> Response:
    """Return the page. `switch_values` are the values that the form shows."""
    store, search_text = sandbox.store, query.get("q", "").strip()
    switches_by_heading: dict[str, list[dict[str, Any]]] = {}
    for switch in list_switches():
        switches = switches_by_heading.setdefault(
            _HEADING_BY_FIRST_SWITCH.get(switch.name) or next(reversed(switches_by_heading)), []
        )
        value = switch_values[switch.name]
        switches.append(
            {
                "name": switch.name,
                "value": value,
                "default": switch.default,
                "allowed": switch.allowed_values,
                "help": switch.help,
                "choices": switch.allowed_values.split(" | ") if " | " in switch.allowed_values else (),
                "is_changed": value != switch.default,
            }
        )
    started_at = sandbox.wall_clock() - sandbox.clock()
    requests = [
        {
            "time": datetime.fromtimestamp(started_at + received_at, UTC).strftime("%H:%M:%S.%f")[:-3],
            "operation": OPERATION_AND_METHOD_BY_PATH[request.path][0]
            if request.path in OPERATION_AND_METHOD_BY_PATH
            else f"{request.method} {request.path}",
            "subject": request.query or _describe_body(request.body),
            "answer": answer,
        }
        for received_at, request, answer in reversed(sandbox.recent_requests)
    ]
    page = _load_template().render(
        sandbox=sandbox,
        bases=[(base_id, name, store.count_by_base().get(base_id, 0)) for base_id, name in store.bases.items()],
        query=search_text,
        subscribers=[store.read(subscriber_id) for subscriber_id in store.search(search_text, _MAX_SHOWN_ENTRIES)],
        shown=_MAX_SHOWN_ENTRIES,
        requests=requests,
        emails=sandbox.outbox.read_last_emails(_MAX_SHOWN_ENTRIES, sandbox.wall_clock()),
        opened=_open_email(sandbox, query.get("email", "")),
        groups=switches_by_heading,
        changed=[switch for switches in switches_by_heading.values() for switch in switches if switch["is_changed"]],
        problem=problem,
        were_set=query.get("set", ""),
        is_following="follow" in query,
    )
    return Response(400 if problem else 200, page.encode("utf-8", "replace"), _HTML_CONTENT_TYPE, _PAGE_HEADERS)


@cache
def _load_template() -> "jinja2.Template":
    """Import Jinja2 only for the first page, because a sandbox for tests does not need Jinja2."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))


def _describe_body(body: bytes) -> str:
    """Return the subscriber of a create or the recipients of an email, or "" if the body cannot be read."""
    try:
        root = orjson.loads(body)
        subscriber = root.get("Subscriber")
        if subscriber is None:
            return ", ".join(mailbox["Email"] for mailbox in root["SendEmail"]["Email"]["To"])
        return str(subscriber.get("Email") or subscriber.get("ClientUserId") or "")
    except (ValueError, AttributeError, KeyError, TypeError):
        return ""


def _open_email(sandbox: Sandbox, email_number: str) -> dict[str, Any] | None:
    """Return the email with this number for a frame of the page. Without a number, return the last email. Return None
    if there is no email."""
    request_id = (
        int(email_number)
        if email_number.isascii() and email_number.isdigit() and len(email_number) < 10
        else sandbox.outbox.last_id
    )
    eml = sandbox.outbox.read_eml(request_id)
    if not eml:
        return None
    message = message_from_bytes(eml, policy=policy.default)
    page, text = message.get_body(("html",)), message.get_body(("plain",))
    html = page.get_content() if page is not None else ""
    for message_part in message.walk():
        # The images of the email become a part of the page, because the page may not fetch anything.
        content_id = str(message_part.get("Content-ID", "")).strip("<>")
        if content_id and message_part.get_content_maintype() == "image":
            encoded_image = base64.b64encode(message_part.get_payload(decode=True) or b"").decode()  # type: ignore[arg-type]  # a leaf
            html = html.replace(f"cid:{content_id}", f"data:{message_part.get_content_type()};base64,{encoded_image}")
    return {
        "id": request_id,
        "headers": [(name, str(message[name])) for name in ("From", "To", "Cc", "Bcc", "Subject") if message[name]],
        "html": html,
        "text": text.get_content() if text is not None else "",
        "files": [message_part.get_filename() for message_part in message.walk() if message_part.get_filename()],
    }


_BACKLOG = 1024
_KEEPALIVE_S = 1e9  # seconds for which an idle connection stays open; 0 would close the connection immediately
_CONTROL_PATH = "/_sandbox/"
_SWITCHES_ADAPTER = TypeAdapter(dict[str, object])
_HOST_PATTERN = re.compile(
    r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9.]+))(?::[0-9]{0,5})?", re.IGNORECASE | re.ASCII
)


def serve(
    port: int,
    token: str,
    data_folder: Path | None,
    settings: Sequence[str],
    *,
    host: str = "127.0.0.1",
    stops_at_end_of_stdin: bool = False,
) -> None:
    """Serve service-api.md on loopback until SIGINT or SIGTERM, or until stdin ends (`stops_at_end_of_stdin`).
    Port 0 takes a free port. Print `sandbox listening on http://HOST:PORT` to stdout when the sandbox is ready.

    Raises ValueError for a setting, a token, a host or a directory that cannot be used, and OSError for a port in use.
    """
    parsed_settings = parse_settings(settings)
    if not token or not token.isascii() or not token.isprintable() or token != token.strip():
        raise ValueError("the token must be printable ASCII without blanks around it")
    if not _is_loopback(host):
        raise ValueError(f"the sandbox serves loopback only, not {host!r}: give 127.0.0.1, ::1 or localhost")
    if not 0 <= port <= 65535:  # uvloop would use port 4464 for 70000
        raise ValueError(f"the port must be 0 (a free port) to 65535, not {port}")
    # With the default of CPython (700 or 2,000), the garbage collector searches the growing store too often.
    # The objects of the store have no cycles, so the garbage collector finds nothing in the store.
    gc.set_threshold(50_000, 20, 50)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(
            _serve_sandbox(port, token, data_folder, parsed_settings, host, stops_at_end_of_stdin=stops_at_end_of_stdin)
        )


async def _serve_sandbox(
    port: int,
    token: str,
    data_folder: Path | None,
    settings: SandboxSettings,
    host: str,
    *,
    stops_at_end_of_stdin: bool,
) -> None:
    loop = asyncio.get_running_loop()
    sandbox = Sandbox(settings, token, data_folder, time.monotonic, time.time)
    service = Service(sandbox, loop.call_later)

    def receive_request(request: Request, connection: Connection) -> None:
        if not is_loopback_header(request.headers.get("host", "")):
            connection.finish_request(_FOREIGN_HOST_RESPONSE)
        elif request.path.startswith(_CONTROL_PATH):
            connection.finish_request(_answer_control_request(sandbox, service, request))
        elif request.path == "/":
            connection.finish_request(answer_page(sandbox, request))
        else:
            service.receive(request, connection)

    def create_protocol() -> asyncio.Protocol:
        # With handler_cancellation, a request that gets no answer ends when the client closes the connection.
        return web.Server(
            Connection(receive_request).answer,
            handler_cancellation=True,
            keepalive_timeout=_KEEPALIVE_S,
            access_log=None,
        )()

    try:
        stop_event = asyncio.Event()
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_number, stop_event.set)
        if stops_at_end_of_stdin:  # stdin, a pipe, ends when the parent ends, even if the parent is killed
            loop.add_reader(sys.stdin.fileno(), stop_event.set)
        server = await loop.create_server(create_protocol, host, port, backlog=_BACKLOG)
        shown_host = f"[{host}]" if ":" in host else host
        sys.stdout.write(f"sandbox listening on http://{shown_host}:{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        await stop_event.wait()
        server.close()
    finally:
        sandbox.event_log.close()


# The check that a request was sent to a loopback address


def _is_loopback(host: str) -> bool:
    """Return whether `host` is `localhost`, in 127.0.0.0/8 or ::1, without asking a name server."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=64)  # cached, because a client sends the same Host header with every request
def is_loopback_header(host: str) -> bool:
    """Return whether a Host header (RFC 9110, 7.2) names this machine. Return False for an empty header and for a
    header with two names."""
    host_match = _HOST_PATTERN.fullmatch(host)
    if host_match is None:
        return False
    ipv6_address = host_match["v6"]
    if ipv6_address is None:
        return _is_loopback(host_match["name"])
    return ":" in ipv6_address and _is_loopback(ipv6_address)


# Requests that read or change the sandbox itself


class _SeedRequest(BaseModel):
    """The body of a seed request: `count` subscribers for one base. The default is the base with the Id 1."""

    model_config = ConfigDict(strict=True, extra="forbid")

    count: Annotated[int, Field(ge=1, le=20_000_000)]
    base_id: Annotated[int, Field(ge=1)] | None = None
    base_name: Annotated[str, Field(min_length=1)] | None = None


def _build_json_response(value: object, status: int = 200) -> Response:
    return Response(status, orjson.dumps(value))


_FOREIGN_HOST_RESPONSE = _build_json_response(
    {"error": "the Host must be localhost, an address in 127.0.0.0/8, or [::1]"}, 403
)
"""The response to a request whose Host header does not name this machine. This prevents DNS rebinding: in
this attack, the host name of a web page gets the address of this machine, so that the page can read answers of the
sandbox."""


def _answer_control_request(sandbox: Sandbox, service: Service, request: Request) -> Response:
    """Return the answer to a request under /_sandbox/. The answer is always JSON. A wrong request is answered with 400
    and changes nothing. A request without the token is answered with 401."""
    if not is_authorised(request, sandbox.token.encode()):
        return _build_json_response(
            {"error": "the sandbox's token is missing or wrong: send the token in the Authorization header"}, 401
        )
    try:
        match request.method, request.path.removeprefix(_CONTROL_PATH):
            case "GET", "truth":
                after_sequence = parse_qs(request.query).get("after", ["0"])[0]
                if not (after_sequence.isascii() and after_sequence.isdigit()):
                    raise ValueError("after must be a sequence number, 0 or more")  # noqa: TRY301 - answered like other errors
                log_state = {
                    "sequence": sandbox.event_log.last_sequence_number,
                    "subscribers": len(sandbox.store),
                    "bases": [{"id": base_id, "name": name} for base_id, name in sandbox.store.bases.items()],
                    "duplicates": sandbox.store.list_duplicates(sandbox.settings.identity),
                }
                events = sandbox.event_log.read_events(int(after_sequence))
                return Response(200, b'{"events":' + events + b"," + orjson.dumps(log_state)[1:])
            case "GET", "stats":
                return _build_json_response(
                    sandbox.stats.read() | {"subscribers": len(sandbox.store), "emails": len(sandbox.outbox)}
                )
            case "GET", "outbox":
                return _build_json_response({"emails": sandbox.outbox.read_entries(sandbox.wall_clock())})
            case "POST", "switches":
                sandbox.change_switches(_SWITCHES_ADAPTER.validate_json(request.body))
                return _build_json_response(sandbox.settings.model_dump())
            case "GET", "switches":
                return _build_json_response(sandbox.settings.model_dump())
            case "POST", "reset":
                service.reset()
                return _build_json_response({"reset": True})
            case "POST", "seed":
                seed_request = _SeedRequest.model_validate_json(request.body)
                has_base = seed_request.base_id is not None or seed_request.base_name is not None
                base_id = seed_request.base_id if has_base else 1
                return _build_json_response(asdict(sandbox.seed(seed_request.count, base_id, seed_request.base_name)))
            case _:
                return _build_json_response(
                    {"error": "there is no such control request; see connector/sandbox/server.py"}, 404
                )
    except ValidationError as error:
        return _build_json_response({"error": build_rejection(error).message}, 400)
    except ValueError as error:
        return _build_json_response({"error": str(error)}, 400)
