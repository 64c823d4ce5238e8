"""The control address, /_sandbox/ on the same port, for tests and benchmarks; no client of the API goes there.

GET truth (?after=SEQUENCE) · stats · outbox · switches
POST switches {name: value} · reset · seed {count, base_id | base_name}
Each with the token itself as Authorization, whatever the switch `authorization` says: other users of the machine reach
this address too.
"""

from typing import Any
from urllib.parse import parse_qs

import orjson

from connector.sandbox.answers import Answer
from connector.sandbox.crowd import Crowd
from connector.sandbox.door import is_authorised
from connector.sandbox.request import Request
from connector.sandbox.state import State

PREFIX = "/_sandbox/"

_LARGEST_CROWD = 20_000_000  # some 2.5 GB; a mistyped count should not take the machine down


def answer_control(state: State, request: Request) -> Answer:
    """The answer to a request under /_sandbox/, always JSON; one that cannot be obeyed is answered 400 and changes
    nothing, one without the token 401."""
    if not is_authorised(request, state.token.encode()):
        return _json({"error": "the sandbox's token is missing or wrong: send it as Authorization"}, 401)
    action = (request.method, request.path.removeprefix(PREFIX))
    try:
        match action:
            case ("GET", "truth"):
                return _read_truth(state, request.query)
            case ("GET", "stats"):
                return _json(state.stats.read() | {"subscribers": len(state.store), "emails": len(state.outbox)})
            case ("GET", "outbox"):
                return _json({"emails": state.outbox.read_entries(state.wall())})
            case ("GET", "switches"):
                return _read_switches(state)
            case ("POST", "switches"):
                state.change(_parse_object(request.body))
                return _read_switches(state)
            case ("POST", "reset"):
                state.reset()
                return _json({"reset": True})
            case ("POST", "seed"):
                return _json(_seed(state, _parse_object(request.body)))
            case _:
                return _json({"error": "there is no such control; see connector/sandbox/control.py"}, 404)
    except ValueError as error:
        return _json({"error": str(error)}, 400)


def _json(value: object, status: int = 200) -> Answer:
    return Answer(status, orjson.dumps(value))


def _parse_object(body: bytes) -> dict[str, Any]:
    value = orjson.loads(body)
    if type(value) is not dict:
        raise ValueError("the body must be a JSON object")
    return value


def _read_truth(state: State, query: str) -> Answer:
    """All events, and what follows from them now: how many exist, the bases, and who is there more than once."""
    after = parse_qs(query).get("after", ["0"])[0]
    if not (after.isascii() and after.isdigit()):
        raise ValueError("after must be a sequence, 0 or more")
    rest = orjson.dumps(
        {
            "sequence": state.truth.sequence,
            "subscribers": len(state.store),
            "bases": [{"id": base_id, "name": name} for base_id, name in state.store.bases.items()],
            "duplicates": state.store.duplicates(state.settings.identity),
        }
    )
    return Answer(200, b'{"events":' + state.truth.read_events(int(after)) + b"," + rest[1:])


def _read_switches(state: State) -> Answer:
    settings = state.settings
    return _json({name: getattr(settings, name) for name in type(settings).__dataclass_fields__})


def _seed(state: State, given: dict[str, Any]) -> dict[str, Any]:
    """Adds a crowd: `count` plausible subscribers of one base (by default base_id 1), visible at once."""
    unknown = given.keys() - {"count", "base_id", "base_name"}
    if unknown:
        raise ValueError(f"seed takes count and base_id or base_name, not {sorted(unknown)[0]!r}")
    count, base_id, base_name = given.get("count"), given.get("base_id"), given.get("base_name")
    if type(count) is not int or not 0 < count <= _LARGEST_CROWD:
        raise ValueError(f"count must be a whole number, 1 to {_LARGEST_CROWD}")
    if base_id is not None and (type(base_id) is not int or base_id < 1):
        raise ValueError("base_id must be a whole number from 1")
    if base_name is not None and (type(base_name) is not str or not base_name):
        raise ValueError("base_name must be a text")
    base = state.store.bases.find_or_make(1 if base_id is None and base_name is None else base_id, base_name)
    step = state.settings.id_step
    crowd = Crowd(state.store.take_id(step), count, step, *base)
    state.truth.note_seeded(crowd)
    state.store.add_crowd(crowd)
    return {"first_id": crowd.first_id, "count": count, "step": step, "base_id": base[0], "base_name": base[1]}
