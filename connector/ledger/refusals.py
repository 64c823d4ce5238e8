"""Kinds of refusal that an account's service has given (design 4.8), and whether one of them ever created somebody."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from connector.ledger.bases import Base
from connector.ledger.schema import HOW
from connector.ledger.texts import keep_text


@dataclass(frozen=True, slots=True)
class RefusalKind:
    """One kind: `identity` (a digest, of `base_key`) was the first that the last run met it with.

    `has_created`: somebody so refused was found in the service; `is_checked`: a later run has looked for `identity`,
    late enough. `is_found`: a listing has shown `identity` since, so its entry is CONFIRMED. `ended_at` is when the run
    that sent it last had ended, at the latest (Unix seconds; None: not told).
    """

    kind: str
    base_key: int
    identity: bytes
    has_created: bool
    is_checked: bool
    is_found: bool = False
    ended_at: float | None = None


def read_refusal_kinds(connection: Connection, account: str) -> list[RefusalKind]:
    """All kinds that the account is known by, in the order of their code points."""
    rows = connection.execute(_READ, {"account": keep_text(account), "found": HOW["found"]})
    kinds = [
        RefusalKind(kind, key, identity, bool(has_created), bool(is_checked), bool(is_found), ended_at)
        for kind, key, identity, has_created, is_checked, is_found, ended_at in rows
    ]
    return sorted(kinds, key=lambda each: each.kind)  # here: PostgreSQL's order is that of its locale


def record_refusal(connection: Connection, base: Base, kind: str, identity: bytes) -> None:
    """This run has met the kind, with this identity first: the next run is to look for it once more."""
    values = {"account": base.account, "kind": keep_text(kind), "base": base.key, "identity": identity, "no": False}
    connection.execute(_RECORD, values)


def mark_refusal_checked(connection: Connection, account: str, kind: str) -> None:
    """A later run has looked for its identity, late enough for it to show."""
    connection.execute(_CHECKED, {"account": keep_text(account), "kind": keep_text(kind), "yes": True})


def mark_refusal_created(connection: Connection, account: str, kind: str) -> None:
    """Somebody so refused was created: what is refused like that is unknown from now on."""
    connection.execute(_CREATED, {"account": keep_text(account), "kind": keep_text(kind), "yes": True})


_READ = text(
    "SELECT kind, refusal.base_key, refusal.identity, has_created, is_checked, how = :found, coalesce(run.finished_at, "
    "(SELECT min(later.started_at) FROM run AS later WHERE later.run_key > run.run_key)) "
    "FROM refusal LEFT JOIN entry ON entry.base_key = refusal.base_key AND entry.identity = refusal.identity "
    "LEFT JOIN run ON run.run_key = entry.run_key WHERE account = :account"
)
_RECORD = text(
    "INSERT INTO refusal (account, kind, base_key, identity, has_created, is_checked) "
    "VALUES (:account, :kind, :base, :identity, :no, :no) ON CONFLICT (account, kind) DO UPDATE "
    "SET base_key = :base, identity = :identity, is_checked = :no"
)
_CHECKED = text("UPDATE refusal SET is_checked = :yes WHERE account = :account AND kind = :kind")
_CREATED = text("UPDATE refusal SET has_created = :yes WHERE account = :account AND kind = :kind")
