"""The sandbox's page at `/`: what it holds, the last requests, the outbox, and the switches to set by hand.

Made on the server from `page.html`, without a script. It asks for the token by HTTP Basic, since other users of the
machine reach it too, and takes a form only from itself (`Origin`): another site's page cannot fill it in.
"""

import base64
import binascii
import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
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

PATH = "/"

_HTML = "text/html; charset=utf-8"
_SHOWN = 50  # subscribers and emails: a person who looks for another one searches
_GROUPS = {
    "duplicates": "What a create does",
    "error_shape": "Errors and access",
    "filters": "The list",
    "latency_ms": "Pace",
    "fault_operations": "Faults",
    "verified_domains": "Emails",
}
"""The headings of the switches, each by the first below it."""

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
    """Return the page (GET), or set the switches of its form (POST) and lead back to it."""
    if not _has_token(request, sandbox.token):
        words = "The sandbox's page asks for a name, which may be any, and a password, which is the sandbox's token."
        return Response(401, words.encode(), "text/plain; charset=utf-8", _ASK)
    if request.method == "GET":
        return _show(sandbox, dict(parse_qsl(request.query, keep_blank_values=True)))
    if request.method != "POST":
        return Response(405, b"", _HTML, (*_HEADERS, ("Allow", "GET, POST")))
    if request.headers.get("origin") != f"http://{request.headers.get('host')}":
        return Response(403, b"This form is taken from the sandbox's own page alone.", _HTML, _HEADERS)
    given = dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True))
    positions = _read_positions(sandbox)
    changed = {name: value for name, value in given.items() if positions.get(name) != value}
    try:
        sandbox.change(changed)
    except ValueError as error:
        return _show(sandbox, {}, problem=str(error), wanted=given)
    leads_to = "/?" + urlencode({"set": ", ".join(changed)}) + "#switches" if changed else "/#switches"
    return Response(303, b"", _HTML, (*_HEADERS, ("Location", leads_to)))


def _has_token(request: Request, token: str) -> bool:
    """Whether the Authorization header is of HTTP Basic, with the token as the password."""
    scheme, _, coded = request.headers.get("authorization", "").partition(" ")
    try:
        given = base64.b64decode(coded, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return False
    return scheme.lower() == "basic" and hmac.compare_digest(given, token.encode())


def _show(
    sandbox: Sandbox, asked: Mapping[str, str], *, problem: str = "", wanted: Mapping[str, str] | None = None
) -> Response:
    store, query = sandbox.store, asked.get("q", "").strip()
    groups = list(_group_switches(sandbox, wanted or {}))
    page = _load_template().render(
        sandbox=sandbox,
        bases=[(base_id, name, store.count_by_base().get(base_id, 0)) for base_id, name in store.bases.items()],
        query=query,
        subscribers=[store.read_subscriber(each) for each in store.search(query, _SHOWN)],
        shown=_SHOWN,
        requests=list(_list_requests(sandbox)),
        emails=list(_list_emails(sandbox)),
        opened=_open_email(sandbox, asked.get("email", "")),
        groups=groups,
        changed=[switch for _, switches in groups for switch in switches if switch.is_moved],
        problem=problem,
        were_set=asked.get("set", ""),
        is_following="follow" in asked,
    )
    return Response(400 if problem else 200, page.encode("utf-8", "replace"), _HTML, _HEADERS)


@cache
def _load_template() -> "jinja2.Template":
    """Jinja2 is imported with the first page: a sandbox for tests does not pay for it."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))


# switches


@dataclass(frozen=True, slots=True)
class _Position:
    """A switch as the form shows it; `choices` are the words that it takes, if these are all."""

    name: str
    value: str
    default: str
    values: str
    help: str
    choices: Sequence[str]

    @property
    def is_moved(self) -> bool:
        """Whether it is not at its default."""
        return self.value != self.default


def _read_positions(sandbox: Sandbox) -> dict[str, str]:
    return {each.name: write_value(getattr(sandbox.settings, each.name)) for each in list_switches()}


def _group_switches(sandbox: Sandbox, wanted: Mapping[str, str]) -> Iterator[tuple[str, list[_Position]]]:
    """Yield each heading with its switches; a form that was not taken comes back as it was filled in."""
    positions = _read_positions(sandbox) | dict(wanted)
    group: list[_Position] = []
    heading = ""
    for each in list_switches():
        if each.name in _GROUPS:
            if group:
                yield heading, group
            heading, group = _GROUPS[each.name], []
        choices = each.values.split(" | ") if " | " in each.values else ()
        group.append(_Position(each.name, positions[each.name], each.default, each.values, each.help, choices))
    yield heading, group


# requests


def _list_requests(sandbox: Sandbox) -> Iterator[dict[str, Any]]:
    """Yield the last requests, the latest first."""
    since = sandbox.wall() - sandbox.clock()
    for at, request, answer in reversed(sandbox.recent):
        yield {
            "at": datetime.fromtimestamp(since + at, UTC).strftime("%H:%M:%S.%f")[:-3],
            "what": OPERATIONS[request.path][0] if request.path in OPERATIONS else f"{request.method} {request.path}",
            "about": request.query or _describe_body(request.body),
            "answer": answer,
            "is_well": answer.startswith("2"),
        }


def _describe_body(body: bytes) -> str:
    """Return the subscriber or recipient that a create or an email is for, as far as its body can be read."""
    try:
        given = orjson.loads(body)
        subscriber = given.get("Subscriber")
        if subscriber is None:
            to = given["SendEmail"]["Email"]["To"]
            return ", ".join(each["Email"] for each in to)
        return str(subscriber.get("Email") or subscriber.get("ClientUserId") or "")
    except (ValueError, AttributeError, KeyError, TypeError):
        return ""


# the outbox


def _list_emails(sandbox: Sandbox) -> Iterator[dict[str, Any]]:
    """Yield the last emails, the latest first."""
    for entry in sandbox.outbox.read_last(_SHOWN, sandbox.wall()):
        yield entry | {"to": ", ".join([*entry["to"], *entry["cc"], *entry["bcc"]])}


def _open_email(sandbox: Sandbox, asked: str) -> dict[str, Any] | None:
    """Return the email that was asked for, or else the last one, to be shown in a frame; None of an empty outbox."""
    wanted = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else sandbox.outbox.last_id
    eml = sandbox.outbox.read_eml(wanted)
    if not eml:
        return None
    message = message_from_bytes(eml, policy=policy.default)
    html, text = message.get_body(("html",)), message.get_body(("plain",))
    files = [part.get_filename() or "" for part in message.walk() if part.get_filename()]
    return {
        "id": wanted,
        "headers": [(name, str(message[name])) for name in ("From", "To", "Cc", "Bcc", "Subject") if message[name]],
        "html": _inline_images(html.get_content(), message) if html is not None else "",
        "text": text.get_content() if text is not None else "",
        "files": files,
    }


def _inline_images(html: str, message: EmailMessage) -> str:
    """Return the page with its own images in it: nothing else may be fetched."""
    for part in message.walk():
        name = str(part.get("Content-ID", "")).strip("<>")
        if name and part.get_content_maintype() == "image":
            coded = base64.b64encode(part.get_payload(decode=True) or b"").decode()  # type: ignore[arg-type]  # a leaf
            html = html.replace(f"cid:{name}", f"data:{part.get_content_type()};base64,{coded}")
    return html
