"""Makes the state of a sandbox anew from the events of its truth log."""

from typing import Any

import orjson

from connector.sandbox.crowd import Crowd
from connector.sandbox.outbox import Outbox
from connector.sandbox.store import Store


def replay(lines: list[bytes], store: Store, outbox: Outbox) -> int:
    """Applies all events to an empty store and outbox and returns the last sequence.

    Raises ValueError naming the line that is no event: the journal is then not to be trusted.
    """
    for number, line in enumerate(lines, start=1):
        try:
            event = orjson.loads(line)
            if event["sequence"] != number:
                raise ValueError(f"its sequence is {event['sequence']}")  # noqa: TRY301 - reported as the others are
            _apply(event, store, outbox)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} of the sandbox's journal is no event: {error}") from error
    return len(lines)


def _apply(event: dict[str, Any], store: Store, outbox: Outbox) -> None:
    match event["kind"]:
        case "created" | "churn_inserted":
            subscriber = event["subscriber"]
            store.bases.keep(subscriber["Base"]["Id"], subscriber["Base"]["Name"])
            store.add(
                event["id"],
                event["base_id"],
                subscriber.get("Email") or "",
                subscriber.get("ClientUserId") or "",
                orjson.dumps(subscriber),
            )
        case "updated":
            store.replace(event["id"], orjson.dumps(event["subscriber"]))
        case "churn_deleted":
            store.remove(event["id"])
        case "seeded":
            names = ("first_id", "count", "step", "base_id", "base_name")
            crowd = Crowd(**{name: event[name] for name in names})
            store.bases.keep(crowd.base_id, crowd.base_name)
            store.add_crowd(crowd)
        case "sent":
            outbox.restore(event["request_id"], event["message_id"], event["email"])
        case other:
            raise ValueError(f"its kind is {other!r}")
