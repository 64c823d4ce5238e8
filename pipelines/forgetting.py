"""The flow of `connector forget`: entries that a person says are true no longer leave the ledger (architecture
4.10)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from connector.ledger import Base, Ledger
from connector.states import State
from connector.subscribers import digest_identity
from pipelines.loads.bases import choose_bases, describe_bases
from pipelines.runs.report import EXIT_CODES, Status

_MAY_BE_THERE = (State.UNKNOWN, State.SENDING)


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """Whom to forget, as which of `fields` (email, client_user_id), and where: one base or every one of the account."""

    account: str
    identity: str = field(repr=False)
    fields: tuple[str, ...]
    base_id: int | None = None
    base_name: str | None = None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How it ended (a status of a report), how many entries were forgotten, and where; `message` is for a person."""

    status: Status
    message: str
    number: int = 0
    bases: tuple[Base, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of architecture 8."""
        return EXIT_CODES[self.status]

    def as_json(self) -> dict[str, Any]:
        """The answer as plain JSON values."""
        return {
            "status": self.status,
            "forgotten": self.number,
            "bases": [{"id": base.service_id, "name": base.name} for base in self.bases],
            "messages": [self.message],
        }


@dataclass(frozen=True, slots=True)
class _Found:
    """One entry of the identity."""

    base: Base
    digest: bytes
    state: State


def forget(ledger: Ledger, plan: ForgetPlan) -> Forgotten:
    """Forget the identity wherever the plan says, or nowhere if it may be on its way to the service somewhere.

    Raises ConfigurationError when the ledger does not know the base.
    """
    with ledger.transaction():
        bases = choose_bases(ledger, plan.account, plan.base_id, plan.base_name)
        found = _find(ledger, bases, plan)
        doubtful = [each.base for each in found if each.state in _MAY_BE_THERE]
        if not found:
            return Forgotten("partial", f"the ledger knows nobody of that identity in the account {plan.account}")
        if doubtful:
            return Forgotten(
                "partial",
                "no subscriber was forgotten: a create of that identity may be in the service "
                f"({describe_bases(doubtful)}), and its answer is not known. Run `connector retry` first",
            )
        for each in found:
            ledger.mark_forgotten(each.base, each.state, [each.digest])
    forgotten = tuple(dict.fromkeys(each.base for each in found))
    message = (
        f"forgotten in {describe_bases(forgotten)}: the next run that reads its row creates it (a job with a cursor "
        "needs sync --full)"
    )
    return Forgotten("ok", message, len(found), forgotten)


def _find(ledger: Ledger, bases: Sequence[Base], plan: ForgetPlan) -> list[_Found]:
    digests = [digest_identity(name, plan.identity) for name in plan.fields]
    return [
        _Found(base, digest, entry.state)
        for base in bases
        for digest, entry in ledger.find_entries(base, digests).items()
    ]
