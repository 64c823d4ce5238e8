"""The flow of `connector forget`: the ledger forgets a subscriber that was erased in the service."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from connector.errors import LedgerError, LockedError
from connector.imports.base_loads import choose_bases, describe_bases
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.store import Base
from connector.report import CommandAnswer, Status
from connector.states import State
from connector.subscribers.identity import digest_identity

_MAY_BE_THERE = (State.UNKNOWN, State.SENDING)


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """The identity to forget, as which of `fields` (email, client_user_id), and where: in one base or in all."""

    account: str
    identity: str = field(repr=False)
    fields: tuple[str, ...]
    base_id: int | None = None
    base_name: str | None = None


def run_forget(ledger_url: str, plan: ForgetPlan, wait_s: float) -> CommandAnswer:
    """Forget the identity as `forget` does; wait at most `wait_s` seconds for a run that has the ledger."""
    try:
        with open_ledger(ledger_url, wait_s=wait_s, may_make=False) as ledger:
            return forget(ledger, plan)
    except LockedError as error:
        return _describe_failure("locked", error)
    except LedgerError as error:
        return _describe_failure("aborted", error)


def forget(ledger: Ledger, plan: ForgetPlan) -> CommandAnswer:
    """Forget the identity wherever the plan says, or nowhere if it may be on its way to the service somewhere.

    Raises ConfigurationError when the ledger does not know the base.
    """
    with ledger.transaction():
        bases = choose_bases(ledger, plan.account, plan.base_id, plan.base_name)
        digests = [digest_identity(name, plan.identity) for name in plan.fields]
        found = [(base, *each) for base in bases for each in ledger.find_entries(base, digests).items()]
        doubtful = [base for base, _, entry in found if entry.state in _MAY_BE_THERE]
        if not found:
            return _describe_forgotten(f"the ledger has no entry of that identity in the account {plan.account}")
        if doubtful:
            return _describe_forgotten(
                "no subscriber was forgotten: a create of that identity may be in the service "
                f"({describe_bases(doubtful)}), and its answer is not known. Run `connector retry` first"
            )
        for base, digest, entry in found:
            ledger.mark_forgotten(base, entry.state, [digest])
    message = (
        f"forgotten in {describe_bases(list(dict.fromkeys(base for base, _, _ in found)))}: the next run that reads "
        "its row creates it (a job with a cursor needs sync --full)"
    )
    return _describe_forgotten(message, [base for base, _, _ in found])


def _describe_forgotten(message: str, bases: Sequence[Base] = ()) -> CommandAnswer:
    """`bases` are those of the forgotten entries, one for each entry."""
    named = [{"id": base.service_id, "name": base.name} for base in dict.fromkeys(bases)]
    return CommandAnswer("ok" if bases else "partial", (message,), {"forgotten": len(bases), "bases": named})


def _describe_failure(status: Status, error: LedgerError | LockedError) -> CommandAnswer:
    return CommandAnswer(status, (str(error),), {"forgotten": 0, "bases": []})
