"""The flow of `connector forget`: the ledger forgets a subscriber that was erased in the service."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from connector.errors import LedgerError, LockedError
from connector.imports.base_loads import choose_bases, describe_bases
from connector.ledger.entries import Ledger
from connector.ledger.opening import open_ledger
from connector.ledger.problems import end_identity_problems
from connector.ledger.store import Base
from connector.states import State
from connector.subscribers.identity import digest_identity


class ForgottenBase(TypedDict):
    """A base in the report of `forget`."""

    id: Annotated[int | None, "Id of the base. Null if it is not known."]
    name: Annotated[str | None, "Name of the base. Null if it is not known."]


class ForgetReport(TypedDict):
    """The report of `forget`."""

    status: Annotated[Literal["ok", "partial", "aborted", "locked"], "`partial`: no entry was deleted."]
    forgotten: Annotated[int, "Number of entries that were deleted from the ledger."]
    bases: Annotated[list[ForgottenBase], "Bases of these entries."]
    messages: Annotated[list[str], "Sentences: what happened, and what to do."]


def run_forget(
    ledger_url: str,
    account: str,
    identity: str,
    fields: Sequence[str],
    base_id: int | None,
    base_name: str | None,
    wait_s: float,
) -> ForgetReport:
    """Forget the identity as `forget` does; wait at most `wait_s` seconds for a run that has the ledger."""
    try:
        with open_ledger(ledger_url, wait_s=wait_s, may_make=False) as ledger:
            return forget(ledger, account, identity, fields, base_id, base_name)
    except (LockedError, LedgerError) as error:
        return {
            "status": "locked" if isinstance(error, LockedError) else "aborted",
            "forgotten": 0,
            "bases": [],
            "messages": [str(error)],
        }


def forget(
    ledger: Ledger,
    account: str,
    identity: str,
    fields: Sequence[str],
    base_id: int | None = None,
    base_name: str | None = None,
) -> ForgetReport:
    """Forget the identity, as each of `fields` (email, client_user_id), in one base or in all; or nowhere if its create
    may be on its way to the service somewhere. Return the JSON of the command.

    Raises ConfigurationError when the ledger does not know the base.
    """
    with ledger.transaction():
        bases = choose_bases(ledger, account, base_id, base_name)
        digests = [digest_identity(name, identity) for name in fields]
        found = [(base, *each) for base in bases for each in ledger.find_entries(base, digests).items()]
        doubtful = [base for base, _, entry in found if entry.state in (State.UNKNOWN, State.SENDING)]
        forgotten: list[Base] = []
        if not found:
            message = f"the ledger has no entry of that identity in the account {account}"
        elif doubtful:
            message = (
                "no subscriber was forgotten: a create of that identity may be in the service "
                f"({describe_bases(doubtful)}), and its answer is not known. Run `connector retry` first"
            )
        else:
            for base, digest, entry in found:
                ledger.mark_forgotten(base, entry.state, [digest])
            end_identity_problems(ledger, account, digests)
            forgotten = [base for base, _, _ in found]
            message = (
                f"Deleted from the ledger in {describe_bases(list(dict.fromkeys(forgotten)))}. The next run that reads "
                "a row of this subscriber creates the subscriber again. A job with a cursor needs sync --full"
            )
    return {
        "status": "ok" if forgotten else "partial",
        "forgotten": len(forgotten),
        "bases": [{"id": base.service_id, "name": base.name} for base in dict.fromkeys(forgotten)],
        "messages": [message],
    }
