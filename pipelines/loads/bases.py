"""The bases that a command is about, among those that the ledger knows: chosen by id or name, and told to people."""

from collections.abc import Sequence

from connector.errors import ConfigurationError, RunAborted
from connector.fields import fold_base_name
from connector.ledger import Base, Ledger, list_bases
from connector.subscribers import BaseColumn

_MOST_BASES = 1000  # that cells name by themselves: a column of something else names another in nearly every row


def choose_bases(ledger: Ledger, account: str, base_id: int | None, base_name: str | None) -> list[Base]:
    """Those of the account with this id, or this name, or all; raises ConfigurationError if a named one is not known.

    To be called inside a transaction.
    """
    known = list_bases(ledger.connection, account)
    chosen = [
        base
        for base in known
        if (base_id is None or base.service_id == base_id)
        and (base_name is None or (base.name is not None and fold_base_name(base.name) == fold_base_name(base_name)))
    ]
    if not chosen and (base_id is not None or base_name is not None):
        raise ConfigurationError(
            f"the ledger knows no such base of the account {account}; it knows: {describe_bases(known) or 'none'}"
        )
    return chosen


def describe_base(base: Base) -> str:
    """`News (id 7)`, `News`, `base 7`."""
    if base.service_id is None:
        return str(base.name)
    return f"base {base.service_id}" if base.name is None else f"{base.name} (id {base.service_id})"


def describe_bases(bases: Sequence[Base]) -> str:
    """Several, with commas between."""
    return ", ".join(map(describe_base, bases))


def refuse_too_many(column: BaseColumn, number: int) -> None:
    """Raise RunAborted if the cells of a column have named so many bases by themselves that they are none."""
    if column.values is None and number > _MOST_BASES:
        raise RunAborted(
            f"the column {column.column} names more than {_MOST_BASES:,} bases: is it the one that says the base? If "
            "it is, list what its cells mean under subscriber.base.values"
        )
