"""Who is let in: the checks before a request is served, in the order redirect, path, method, token, limit, form."""

import hmac
import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import format_datetime

import orjson

from connector.sandbox.answers import Answer, build_error
from connector.sandbox.faults import Fault
from connector.sandbox.request import Request
from connector.sandbox.state import State

OPERATIONS = {
    "/api/subscribers/create-subscriber/": ("create", "POST"),
    "/api/subscribers/subscribers-list/": ("list", "GET"),
    "/api/emails/send-instant-email/": ("send", "POST"),
}
"""Path to operation and method (api.md, section 4)."""

FOREIGN_HOST = Answer(403, orjson.dumps({"error": "the Host must be localhost, an address in 127.0.0.0/8, or [::1]"}))
"""To whoever calls the sandbox by another name, at every address: a web page whose own name was made to lead here (DNS
rebinding) calls it by that name, and can read what it is answered."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A request that was let in, with the fault that will befall it; or the answer that turns it away."""

    fault: Fault | None
    refusal: Answer | None


def admit(state: State, request: Request, operation: str | None, now: float, under_way: int = 0) -> Entry:
    """Decides at the moment `now` of arrival, when `under_way` others that were let in are not answered yet.

    `operation` None is a path that the API does not have.
    """
    refusal = _refuse_stranger(state, request, operation)
    if refusal is not None or operation is None:
        return Entry(None, refusal)
    settings = state.settings
    if settings.max_in_flight and under_way >= settings.max_in_flight:
        return Entry(None, refuse_for(state, settings.limit_status, settings.retry_after_s or 1, "Too many at once"))
    wait_s = state.limiter.admit(now)
    if wait_s > 0:
        wait_s = max(wait_s, settings.retry_after_s)
        return Entry(None, refuse_for(state, settings.limit_status, wait_s, "Too many requests"))
    fault = state.draw.draw(operation, state.random)
    if fault is not None:
        state.stats.faults[fault.value] += 1
    if fault is Fault.REFUSE:
        wait_s = settings.refuse_retry_after_s
        return Entry(fault, refuse_for(state, settings.limit_status, wait_s, "Too many requests, come back later"))
    return Entry(fault, _refuse_form(state, request, operation))


def _refuse_stranger(state: State, request: Request, operation: str | None) -> Answer | None:
    settings = state.settings
    if settings.redirect_to:
        target = settings.redirect_to.rstrip("/") + request.path + (f"?{request.query}" if request.query else "")
        return build_error(settings.error_shape, 307, "Moved", (("Location", target),))
    if operation is None:
        return build_error(settings.error_shape, 404, "There is nothing at this address")
    method = OPERATIONS[request.path][1]
    if request.method != method:
        return build_error(settings.error_shape, 405, f"Only {method} is possible here", (("Allow", method),))
    if not is_authorised(request, state.authorization):
        return build_error(settings.error_shape, 401, "The API token is missing or wrong")
    return None


def is_authorised(request: Request, authorization: bytes) -> bool:
    """Whether the Authorization header is exactly this."""
    return hmac.compare_digest(request.headers.get("authorization", "").encode("latin-1"), authorization)


def _refuse_form(state: State, request: Request, operation: str) -> Answer | None:
    shape = state.settings.error_shape
    if operation == "list":
        return build_error(shape, 400, "A list request has no body") if request.body else None
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        return build_error(shape, 415, "Content-Type must be application/json")
    return None


def refuse_for(state: State, status: int, wait_s: float, message: str) -> Answer:
    """A refusal that says in whole seconds, rounded up, how long to stay away (or does not say, by the switches)."""
    shape, wanted = state.settings.error_shape, state.settings.retry_after
    state.stats.limited += 1
    if wanted == "none":
        return build_error(shape, status, message)
    if wanted == "seconds":
        seconds = math.ceil(wait_s)
        return replace(build_error(shape, status, message, (("Retry-After", str(seconds)),)), wait_s=float(seconds))
    until = math.ceil(state.wall() + wait_s)  # a date has no fractions: never earlier than the wait asks for
    header = format_datetime(datetime.fromtimestamp(until, UTC), usegmt=True)
    return replace(build_error(shape, status, message, (("Retry-After", header),)), wait_until=float(until))
