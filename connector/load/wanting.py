"""From what a run holds of somebody to whom it looks for: the identity as it was, or would be, sent."""

import orjson

from connector.ledger import Unfinished
from connector.load.candidates import Candidate, Planned
from connector.load.looks.sighting import Wanted
from connector.plan.digests import split_digests
from connector.protocol.wire import decode_subscriber


def read_body(entry: Unfinished) -> dict[str, object]:
    """The values of a kept body by field name; None where it has none."""
    return decode_subscriber(orjson.loads(entry.body)["Subscriber"])


def want_candidate(candidate: Candidate) -> Wanted:
    """Whoever a create is for."""
    field = candidate.intent.field
    return Wanted(candidate.intent.identity, field, str(candidate.sent[field]))


def want_unfinished(entry: Unfinished, *, in_any_spelling: bool = False) -> Wanted:
    """Whoever an entry is of, as its body names them."""
    return Wanted(entry.identity, entry.field, str(read_body(entry)[entry.field]), in_any_spelling)


def want_rows(planned: Planned, places: list[int], field: str) -> list[Wanted]:
    """The subscribers at these places of a chunk, by their identity's `field`, by whatever way they came."""
    identities = split_digests(planned.identities[places])
    values = planned.subscribers[field].iloc[places].tolist()
    pairs = zip(identities, values, strict=True)
    return [Wanted(identity, field, str(value), in_any_spelling=True) for identity, value in pairs]
