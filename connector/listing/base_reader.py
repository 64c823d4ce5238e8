"""Finds the subscribers of one base among all that the service lists, by base and by identity."""

from collections.abc import Mapping, Sequence
from typing import Any

from connector.errors import ConfigurationError, RunAborted
from connector.fields import BY_NAME, fold_base_name
from connector.ledger.store import Base
from connector.listing.access import IDENTITY_PATHS
from connector.subscribers.identity import digest_identity
from connector.subscribers.suppression import InactiveIdentities


def bears_identity(wire: Mapping[str, Any], identity: bytes) -> bool:
    """Return whether a listed subscriber bears this identity (a digest), by whichever field."""
    values = ((name, wire.get(path)) for name, path in IDENTITY_PATHS)
    return any(isinstance(value, str) and digest_identity(name, value) == identity for name, value in values)


class BaseReader:
    """Takes from pages of the list those of one base: the digests of the identities and the id of each.

    `fields` are the identities to read (email, client_user_id). Raises ConfigurationError when several bases bear
    the name that the job gave (trimmed and case-folded), RunAborted when another base bears it now than before.
    Subscribers of every base that are listed as inactive are noted in `inactive`.
    """

    def __init__(
        self,
        base: Base,
        asked_name: str | None,
        fields: Sequence[str],
        inactive: InactiveIdentities | None = None,
    ) -> None:
        self._inactive = inactive
        self._asked_name = asked_name
        self._folded = None if asked_name is None else fold_base_name(asked_name)
        self._paths = [(name, BY_NAME[name].path[0]) for name in fields]
        self.service_id = base.service_id

    def read(self, wire_objects: Sequence[dict[str, Any]]) -> list[tuple[bytes, int]]:
        """Return (identity, subscriber id) of those that are of the base and have an identity."""
        self.note_inactive(wire_objects)
        return [each for wire in wire_objects if self.is_of_base(wire.get("Base")) for each in self.read_one(wire)]

    def note_inactive(self, wire_objects: Sequence[dict[str, Any]]) -> None:
        """Note the identities of those that are listed as inactive, in whatever base."""
        if self._inactive is None:
            return
        for wire in wire_objects:
            if wire.get("IsActive") is False:
                for identity, _ in self.read_one(wire):
                    self._inactive.note(identity)

    def read_one(self, wire: dict[str, Any]) -> list[tuple[bytes, int]]:
        """Return (identity, subscriber id) for each identity of one subscriber, of whatever base."""
        values = [(name, wire.get(path)) for name, path in self._paths]
        return [
            (digest_identity(name, value), int(wire["Id"]))
            for name, value in values
            if isinstance(value, str) and value.strip()
        ]

    def is_of_base(self, base: object) -> bool:
        """Return whether a listed `Base` is this one; raises as the class says."""
        if not isinstance(base, dict):
            return False
        service_id, name = base.get("Id"), base.get("Name")
        if self._asked_name is None:
            return bool(service_id == self.service_id)
        if isinstance(name, str) and fold_base_name(name) == self._folded and isinstance(service_id, int):
            self._learn(service_id)
            return True
        if self.service_id is not None and service_id == self.service_id:
            raise RunAborted(f"the base {service_id} is no longer called {self._asked_name}: give the base by its id")
        return False

    def _learn(self, service_id: int) -> None:
        if self.service_id not in (None, service_id):
            raise ConfigurationError(
                f"several bases are called {self._asked_name} (ids {self.service_id}, {service_id}): give it by its id"
            )
        self.service_id = service_id
