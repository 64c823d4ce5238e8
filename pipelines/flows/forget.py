"""The flow of `connector forget`: deletes the ledger's entries of a subscriber who was erased in the service."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.imports.base_loads import choose_bases, describe_bases
from connector.ledger.opening import open_ledger
from connector.ledger.problems import end_identity_problems
from connector.ledger.store import Base
from connector.states import ENTRY_STATE_MACHINE, Event
from connector.subscribers.identity import digest_identity


class BaseOfDeletedEntries(TypedDict):
    """A base in the report of `forget`."""

    id: Annotated[int | None, "Id of the base. Null if the id is not known."]
    name: Annotated[str | None, "Name of the base. Null if the name is not known."]


class ForgetReport(TypedDict):
    """The report of `forget`."""

    status: Annotated[Literal["ok", "partial", "aborted", "locked"], "`partial`: no entry was deleted."]
    forgotten: Annotated[int, "Number of entries that were deleted from the ledger."]
    bases: Annotated[list[BaseOfDeletedEntries], "Bases of the deleted entries."]
    messages: Annotated[list[str], "Sentences about the result and the next step."]


def run_forget(
    ledger_url: str,
    account: str,
    identity: str,
    fields: Sequence[str],
    base_id: int | None,
    base_name: str | None,
    wait_s: float,
) -> ForgetReport:
    """Delete the entries of an identity in one base, or in all bases, and return the report. `fields` are the fields
    that may contain the identity. If a create of the identity has no known answer, nothing is deleted. If another run
    holds the ledger, wait at most `wait_s` seconds.

    Raises ConfigurationError when the ledger does not know the base.
    """
    forgotten_bases: list[Base] = []
    try:
        with open_ledger(ledger_url, wait_s=wait_s, may_create=False) as ledger, ledger.transaction():
            bases = choose_bases(ledger, account, base_id, base_name)
            digests = [digest_identity(name, identity) for name in fields]
            entries = [
                (base, digest, entry) for base in bases for digest, entry in ledger.find_entries(base, digests).items()
            ]
            unresolved_bases = [
                base for base, _, entry in entries if not ENTRY_STATE_MACHINE.allows(entry.state, Event.FORGOTTEN)
            ]
            if not entries:
                message = f"The ledger has no entry of this identity in the account {account}"
            elif unresolved_bases:
                message = (
                    "Nothing was deleted. The answer to a create of this identity is not known, so the subscriber may "
                    f"be in the service ({describe_bases(unresolved_bases)}). Run `connector retry` first"
                )
            else:
                for base, digest, entry in entries:
                    ledger.mark_forgotten(base, entry.state, [digest])
                end_identity_problems(ledger, account, digests)
                forgotten_bases = [base for base, _, _ in entries]
                message = (
                    f"Deleted from the ledger in {describe_bases(list(dict.fromkeys(forgotten_bases)))}. The next run "
                    "that reads a row of this subscriber creates the subscriber again, unless the service's list shows "
                    "the subscriber. A job with a cursor needs `connector sync --full`"
                )
    except ConfigurationError:
        raise
    except (LockedError, LedgerError) as error:
        status: Literal["aborted", "locked"] = "locked" if isinstance(error, LockedError) else "aborted"
        return {"status": status, "forgotten": 0, "bases": [], "messages": [str(error)]}
    return {
        "status": "ok" if forgotten_bases else "partial",
        "forgotten": len(forgotten_bases),
        "bases": [{"id": base.service_id, "name": base.name} for base in dict.fromkeys(forgotten_bases)],
        "messages": [message],
    }
