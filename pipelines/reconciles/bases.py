"""The bases that a job's rows are for, found among those that the service lists."""

from collections.abc import Callable, Iterable, Sequence

from connector.fields import BaseRef
from connector.ledger import Base, Ledger, find_or_add_base, learn_base, list_bases
from connector.listing import BaseReader
from connector.reconcile.listed import BaseOf
from connector.subscribers import BaseColumn


def list_asked(base: BaseRef | BaseColumn) -> list[BaseRef] | None:
    """The bases that the job itself names; None: the cells of a column name them."""
    if isinstance(base, BaseRef):
        return [base]
    return None if base.values is None else list(dict.fromkeys(base.values.values()))


def build_wanted(asked: Iterable[BaseRef] | None, ledger: Ledger, account: str) -> Callable[[BaseOf], bool]:
    """Whether a listed base may be one of those that are asked for; all may be if `asked` is None.

    One that the ledger knows by a name that is asked for is wanted by its id, too: it may be called otherwise by now.
    """
    if asked is None:
        return lambda _base: True
    asked = list(asked)
    names = {each.name for each in asked if each.service_id is None}
    with ledger.transaction() as connection:
        known = {base.service_id for base in list_bases(connection, account) if base.name in names}
    ids = ({each.service_id for each in asked} | known) - {None}
    return lambda base: base[0] in ids or base[1] in names


def find_base(
    ledger: Ledger, account: str, asked: BaseRef, identity: str, listed: Sequence[BaseOf]
) -> tuple[Base, list[BaseOf]]:
    """The ledger's base, with all that the list tells of it, and those of `listed` that are it.

    Raises RunAborted when a name is borne by several bases or by another than it was, ConfigurationError when the
    ledger knows several of that name.
    """
    with ledger.transaction() as connection:
        base = find_or_add_base(connection, account, asked.service_id, asked.name)
        reader = BaseReader(base, asked.name if asked.service_id is None else None, [identity])
        mine = [each for each in listed if reader.is_of_base({"Id": each[0], "Name": each[1]})]
        name = asked.name if asked.service_id is None else _find_name(mine, listed)
        if (
            reader.service_id is not None
            and name is not None
            and (base.service_id, base.name) != (reader.service_id, name)
        ):
            base = learn_base(connection, base, reader.service_id, name)
    return base, mine


def _find_name(mine: Sequence[BaseOf], listed: Sequence[BaseOf]) -> str | None:
    """The name of a base that was asked for by its id, if no other bears it."""
    names = {name for _, name in mine if isinstance(name, str)}
    others = {name for each in listed if each not in mine for name in each[1:]}
    return next(iter(names)) if len(names) == 1 and not names & others else None
