"""The bases that a ledger speaks of. A base that was given by name is one with its Id as soon as that is known."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from connector.states import State


@dataclass(frozen=True, slots=True)
class Base:
    """A base of an account: `key` is the ledger's own, `service_id` the service's, None until it is known."""

    key: int
    account: str
    service_id: int | None
    name: str | None


def find_or_add_base(connection: Connection, account: str, service_id: int | None, name: str | None) -> Base:
    """The base with this Id, else the one with this name (with an Id if any has one), else a new line."""
    values = {"account": account, "id": service_id, "name": name}
    row = connection.execute(_BY_NAME if service_id is None else _BY_ID, values).first()
    if row is None:
        row = connection.execute(_ADD, values).one()
    return Base(*row)


def learn_base(connection: Connection, base: Base, service_id: int, name: str) -> Base:
    """Now that the service has told both: one line for Id and name, with the entries of every line that was it."""
    whole = find_or_add_base(connection, base.account, service_id, name)
    connection.execute(_RENAME, {"key": whole.key, "name": name})
    values = {"account": base.account, "id": service_id, "name": name}
    for (key,) in connection.execute(_NAME_ONLY, values).all():
        _merge(connection, key, whole.key)
    return Base(whole.key, base.account, service_id, name)


def _merge(connection: Connection, old: int, new: int) -> None:
    """Move the entries of line `old` to `new`; where both have one, a confirmed one stays, else the old one."""
    values = {"old": old, "new": new, "confirmed": State.CONFIRMED}
    for statement in (_DROP_OLD, _DROP_NEW, _TAKE_OVER, _DROP_LINE):
        connection.execute(statement, values)


_COLUMNS = "base_key, account, service_id, name"
_BY_ID = text(f"SELECT {_COLUMNS} FROM base WHERE account = :account AND service_id = :id")
_BY_NAME = text(
    f"SELECT {_COLUMNS} FROM base WHERE account = :account AND name = :name ORDER BY service_id IS NULL, base_key"
)
_ADD = text(f"INSERT INTO base (account, service_id, name) VALUES (:account, :id, :name) RETURNING {_COLUMNS}")
_RENAME = text("UPDATE base SET name = :name WHERE base_key = :key")
_NAME_ONLY = text("SELECT base_key FROM base WHERE account = :account AND name = :name AND service_id IS NULL")
_DROP_OLD = text(
    "DELETE FROM entry WHERE base_key = :old AND identity IN "
    "(SELECT identity FROM entry WHERE base_key = :new AND state = :confirmed)"
)
_DROP_NEW = text(
    "DELETE FROM entry WHERE base_key = :new AND identity IN (SELECT identity FROM entry WHERE base_key = :old)"
)
_TAKE_OVER = text("UPDATE entry SET base_key = :new WHERE base_key = :old")
_DROP_LINE = text("DELETE FROM base WHERE base_key = :old")
