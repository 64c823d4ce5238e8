"""The bases that a ledger speaks of. A base that was given by name is one with its Id as soon as that is known."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from connector.errors import ConfigurationError
from connector.fields import LARGEST_ID
from connector.ledger.schema import UNFINISHED
from connector.ledger.texts import keep_optional, keep_text
from connector.states import State


@dataclass(frozen=True, slots=True)
class Base:
    """A base of an account: `key` is the ledger's own, `service_id` the service's, None until it is known."""

    key: int
    account: str
    service_id: int | None
    name: str | None

    @property
    def is_known_whole(self) -> bool:
        """Whether Id and name are known: then no other line can turn out to be this base."""
        return self.service_id is not None and self.name is not None


def find_or_add_base(connection: Connection, account: str, service_id: int | None, name: str | None) -> Base:
    """The base with this Id, else the one with this name (with an Id if it has one), else a new line.

    Raises ConfigurationError when several bases are known by the name, or the Id is one that no base can have.
    """
    if service_id is not None and service_id > LARGEST_ID:
        raise ConfigurationError(f"no base has the id {service_id}: it is beyond 64 bits")
    values = {"account": keep_text(account), "id": service_id, "name": keep_optional(name)}
    rows = connection.execute(_BY_NAME if service_id is None else _BY_ID, values).all()
    ids = sorted({row.service_id for row in rows if row.service_id is not None})
    if len(ids) > 1:
        listed = ", ".join(map(str, ids))
        raise ConfigurationError(f"several bases are known by the name {name} (ids {listed}): give the base by its id")
    return Base(*(rows[0] if rows else connection.execute(_ADD, values).one()))


def list_bases(connection: Connection, account: str) -> list[Base]:
    """Every base of the account that the ledger knows, in the order in which it came to know them."""
    return [Base(*row) for row in connection.execute(_ALL, {"account": keep_text(account)})]


def count_doubts_elsewhere(connection: Connection, base: Base) -> int:
    """Unsettled entries of lines that may turn out to be this very base: one known by Id alone, the other by name."""
    if base.is_known_whole:
        return 0
    values = {"account": base.account, "key": base.key, "unknown": State.UNKNOWN, "held": State.HELD}
    half = _DOUBTS_BY_NAME if base.service_id is not None else _DOUBTS_BY_ID
    return int(connection.execute(half, values).scalar_one())


def learn_base(connection: Connection, base: Base, service_id: int, name: str) -> Base:
    """Now that the service has told both: one line for Id and name, with the entries of every line that was it."""
    whole = find_or_add_base(connection, base.account, service_id, name)
    kept = keep_text(name)
    connection.execute(_RENAME, {"key": whole.key, "name": kept})
    values = {"account": whole.account, "name": kept}
    for (key,) in connection.execute(_NAME_ONLY, values).all():
        _merge(connection, key, whole.key)
    return Base(whole.key, whole.account, service_id, kept)


def _merge(connection: Connection, old: int, new: int) -> None:
    """Move the entries of line `old` to `new`; where both have one, a confirmed one stays, then one that may be there
    (unknown), then one that is held."""
    values = {"old": old, "new": new, "confirmed": State.CONFIRMED, "rejected": State.REJECTED}
    values |= {"held": State.HELD, "unknown": State.UNKNOWN, "sending": State.SENDING}
    for statement in (_DROP_OLD, _DROP_REFUSED, _DROP_HELD, _DROP_NEW, _TAKE_OVER, _REFUSALS, _DROP_LINE):
        connection.execute(statement, values)


_COLUMNS = "base_key, account, service_id, name"
_ALL = text(f"SELECT {_COLUMNS} FROM base WHERE account = :account ORDER BY base_key")
_BY_ID = text(f"SELECT {_COLUMNS} FROM base WHERE account = :account AND service_id = :id")
_BY_NAME = text(
    f"SELECT {_COLUMNS} FROM base WHERE account = :account AND name = :name ORDER BY service_id IS NULL, base_key"
)
_DOUBTS = (
    "SELECT count(*) FROM entry JOIN base USING (base_key) "
    f"WHERE account = :account AND base_key <> :key AND state IN (:unknown, :held) AND {UNFINISHED} AND "
)
_DOUBTS_BY_NAME = text(_DOUBTS + "service_id IS NULL")
_DOUBTS_BY_ID = text(_DOUBTS + "name IS NULL")
_ADD = text(f"INSERT INTO base (account, service_id, name) VALUES (:account, :id, :name) RETURNING {_COLUMNS}")
_RENAME = text("UPDATE base SET name = :name WHERE base_key = :key")
_NAME_ONLY = text("SELECT base_key FROM base WHERE account = :account AND name = :name AND service_id IS NULL")
_DROP_OLD = text(
    "DELETE FROM entry WHERE base_key = :old AND identity IN "
    "(SELECT identity FROM entry WHERE base_key = :new AND state = :confirmed)"
)
_DROP_REFUSED = text(
    "DELETE FROM entry WHERE base_key = :old AND state = :rejected AND identity IN "
    "(SELECT identity FROM entry WHERE base_key = :new)"
)
_DROP_HELD = text(
    "DELETE FROM entry WHERE base_key = :old AND state = :held AND identity IN "
    "(SELECT identity FROM entry WHERE base_key = :new AND state IN (:unknown, :sending))"
)
_DROP_NEW = text(
    "DELETE FROM entry WHERE base_key = :new AND identity IN (SELECT identity FROM entry WHERE base_key = :old)"
)
_TAKE_OVER = text("UPDATE entry SET base_key = :new WHERE base_key = :old")
_REFUSALS = text("UPDATE refusal SET base_key = :new WHERE base_key = :old")
_DROP_LINE = text("DELETE FROM base WHERE base_key = :old")
