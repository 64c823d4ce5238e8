"""In which fields what a source says of somebody differs from what the service lists of them. Pure.

Two values are the same by the rule of `altered_fields` (design, 4.13). What the service lists of a field that was never
sent is not shown in api.md: null, nothing at all, an empty text or list, and for a flag its default, false.
"""

from collections.abc import Sequence

from connector.fields import BY_NAME, Kind, normalise_identity
from connector.protocol.wire import is_same

_IDENTITIES = frozenset({"email", "client_user_id"})


def differing_fields(names: Sequence[str], told: Sequence[object], listed: Sequence[object]) -> list[int]:
    """The places in `names` (fields) at which what is `told` differs from what is `listed`, both in that order.

    `told` are values as they would be sent, None where there is none; `listed` as the service wrote them. A zip that is
    told as a text is one that cannot be sent: a service that has none does not differ from it. Of an email and a
    client_user_id the normal forms are compared, as of an identity.
    """
    return [
        place
        for place, (value, other) in enumerate(zip(told, listed, strict=True))
        if not (value == other and type(value) is type(other)) and _do_differ(names[place], value, other)
    ]


def _do_differ(name: str, told: object, listed: object) -> bool:
    kind = BY_NAME[name].kind
    if _is_nothing(listed):
        return not _is_nothing(told) and not (kind is Kind.ZIP and isinstance(told, str))
    if _is_nothing(told):
        return True
    if name in _IDENTITIES and isinstance(told, str) and isinstance(listed, str):
        return normalise_identity(name, told) != normalise_identity(name, listed)
    return not is_same(kind, told, listed)


def _is_nothing(value: object) -> bool:
    return value is None or value is False or value in ("", [])
