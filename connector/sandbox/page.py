"""The sandbox's page at `/`: its subscribers, the last requests, the outbox, and the switches to set by hand.

The server makes the page from `page.html`, without a script. The page asks for the token by HTTP Basic, since other
users of the machine reach the page too, and takes a form only from itself (`Origin`), not from another site's page.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from email import message_from_bytes, policy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import orjson

from connector.sandbox.connection import Request, Response
from connector.sandbox.service import OPERATIONS, Sandbox
from connector.sandbox.switches import list_switches, write_value

if TYPE_CHECKING:
    import jinja2

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
                "values": switch.values,
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
