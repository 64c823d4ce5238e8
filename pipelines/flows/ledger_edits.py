"""What a person says to the ledger: to forget a subscriber, or to accept bad rows as they are.

Later runs count an accepted row, and are not partial for its sake. It is known by the digest that its run wrote into
the rejects file: of its base, the cells that are sent, and what is wrong. So a row that changes, that is for another
base, or that is wrong in another way, is judged again.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pandas as pd

from connector.atomic_file import GUARDED
from connector.errors import ConfigurationError
from connector.fields import normalise_identity
from connector.imports.base_loads import choose_bases, describe_bases
from connector.ledger.entries import Ledger
from connector.ledger.records import accept_rows, find_run, revoke_job, revoke_rows
from connector.ledger.store import Base
from connector.plurals import agree, count
from connector.report import CommandAnswer
from connector.row_files import is_rejects, own_columns, read_digest
from connector.run_log import list_runs
from connector.sources.files import open_file
from connector.states import State
from connector.subscribers.headers import guess_mapping
from connector.subscribers.identity import digest_identity
from pipelines.jobs.build import build_mapping
from pipelines.jobs.models import Job

_MAY_BE_THERE = (State.UNKNOWN, State.SENDING)


# To forget


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """The identity to forget, as which of `fields` (email, client_user_id), and where: in one base or in all."""

    account: str
    identity: str = field(repr=False)
    fields: tuple[str, ...]
    base_id: int | None = None
    base_name: str | None = None


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


# To accept


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """The rows of a rejects file that can be accepted: their digests, by the run that wrote them; `left` are the others
    by their outcome."""

    run_id: str
    digests: tuple[bytes, ...]
    left: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class AcceptPlan:
    """What is to be accepted, or revoked; `missing` is what was named and is in no rejects file of the job."""

    rows: Sequence[RejectedRows]
    missing: int = 0
    is_revoked: bool = False


def read_rejected(path: Path) -> RejectedRows:
    """Return what can be accepted of a rejects file. Raises ConfigurationError and SourceError."""
    return _choose(path, _read_rejects(path))


def find_rejected(job: Job, identities: Sequence[str], state_dir: Path) -> AcceptPlan:
    """Return the bad rows of these identities, each as the latest run of the job that rejected it has written it."""
    if job.subscriber is None:
        raise ConfigurationError(f"the job {job.name} loads no subscribers: there is no row of it to accept")
    identity = job.subscriber.identity
    wanted = {normalise_identity(identity, each) for each in identities}
    found: list[RejectedRows] = []
    for path in _list_rejects(job.name, state_dir):
        if not wanted:
            break
        frame = _read_rejects(path)
        own = own_columns([str(name) for name in frame.columns])
        mapping = build_mapping(job.subscriber) or guess_mapping(own)
        columns = [name for name in mapping.rules[identity].columns if name in own]
        names = frame[columns].map(lambda cell: normalise_identity(identity, cell))
        of_file = frame[names.isin(wanted).any(axis=1)]
        if len(of_file):
            found.append(_choose(path, of_file))
        wanted -= set(names.loc[of_file.index].to_numpy().ravel().tolist())
    return AcceptPlan(found, len(wanted))


def accept(ledger: Ledger, plan: AcceptPlan, at: datetime) -> CommandAnswer:
    """Accept the rows, or take that back; the answer's key `accepted` counts them. Raises ConfigurationError for a file
    of a run that the ledger does not know."""
    with ledger.transaction() as connection:
        number = 0
        for rows in plan.rows:
            run = find_run(connection, rows.run_id)
            if run is None or run.account is None:
                raise ConfigurationError(
                    f"the ledger knows no import or sync {rows.run_id}: give a rejects file that one of its runs wrote"
                )
            if plan.is_revoked:
                number += revoke_rows(connection, run.account, rows.digests)
            else:
                accept_rows(connection, run.account, run.job, rows.digests, at.timestamp())
                number += len(set(rows.digests))
    return CommandAnswer("partial" if plan.missing else "ok", tuple(_describe(plan, number)), {"accepted": number})


def revoke_all(ledger: Ledger, account: str, job: str) -> CommandAnswer:
    """Take back that any row of the job was accepted."""
    with ledger.transaction() as connection:
        number = revoke_job(connection, account, job)
    return CommandAnswer("ok", (_describe_revoked(number),), {"accepted": number})


def _describe(plan: AcceptPlan, number: int) -> Iterator[str]:
    if plan.is_revoked:
        yield _describe_revoked(number)
    else:
        yield (
            f"{count(number, 'row')} {agree(number, 'is', 'are')} accepted: later runs are not partial for "
            f"{agree(number, 'it', 'them')} until {agree(number, 'it changes', 'they change')}"
        )
    left = sum((rows.left for rows in plan.rows), Counter[str]())
    for outcome, of_outcome in sorted(left.items()):
        yield f"not accepted, since only invalid and rejected rows can be: {count(of_outcome, 'row')} ({outcome})"
    if plan.missing:
        named = count(plan.missing, "identity", "identities")
        yield f"{named} {agree(plan.missing, 'is', 'are')} in no rejects file of the job's runs"


def _describe_revoked(number: int) -> str:
    return f"{count(number, 'row')} {agree(number, 'is', 'are')} accepted no longer"


def _choose(path: Path, frame: pd.DataFrame) -> RejectedRows:
    """What can be accepted of some rows of a rejects file."""
    digests = [read_digest(text) for text in frame["_digest"]]
    left = Counter(str(outcome) for outcome, digest in zip(frame["_outcome"], digests, strict=True) if digest is None)
    runs = sorted(set(frame["_run_id"]))
    if len(runs) != 1:
        raise ConfigurationError(f"{path} holds rows of {len(runs)} runs: give the rejects file of one run")
    return RejectedRows(runs[0], tuple(each for each in digests if each is not None), left)


def _read_rejects(path: Path) -> pd.DataFrame:
    with open_file(path) as source:
        if not is_rejects(source.columns):
            raise ConfigurationError(f"{path} is no rejects file: give the one that an import or a sync has named")
        chunks = [chunk.frame for chunk in source.chunks()]
    whole = pd.concat(chunks, ignore_index=True) if chunks else pd.DataFrame(columns=list(source.columns))
    return whole.fillna("").replace(GUARDED, r"\1", regex=True)


def _list_rejects(job: str, state_dir: Path) -> Iterator[Path]:
    """The rejects files of the job's runs, the latest first."""
    for run in list_runs(state_dir):
        is_load = run["command"] in ("import", "sync")
        if run["job"] == job and is_load and (path := run.get("rejects_file")) and Path(path).is_file():
            yield Path(path)
