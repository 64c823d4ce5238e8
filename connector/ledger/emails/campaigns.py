"""The campaigns that emails belong to: an account's, by the name that the job gives. A recipient is mailed once in one.

Every function runs inside a transaction that its caller opened by `EmailLog.transaction`.
"""

from dataclasses import dataclass

from sqlalchemy import Connection

from connector.ledger.emails import statements as sql
from connector.ledger.store import keep_text


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign's line; `key` names it in this ledger alone."""

    key: int
    account: str
    name: str


def find_campaign(connection: Connection, account: str, name: str) -> Campaign | None:
    """The account's campaign of that name; None: nothing was ever sent in it."""
    found = connection.execute(sql.FIND_CAMPAIGN, _keep(account, name)).one_or_none()
    return Campaign(*found) if found else None


def find_campaign_or_add(connection: Connection, account: str, name: str) -> Campaign:
    """The account's campaign of that name, made if there is none yet."""
    connection.execute(sql.ADD_CAMPAIGN, _keep(account, name))
    return Campaign(*connection.execute(sql.FIND_CAMPAIGN, _keep(account, name)).one())


def list_campaigns(connection: Connection, account: str) -> list[Campaign]:
    """All of the account's campaigns, the oldest first."""
    return [Campaign(*row) for row in connection.execute(sql.LIST_CAMPAIGNS, {"account": keep_text(account)})]


def _keep(account: str, name: str) -> dict[str, str]:
    return {"account": keep_text(account), "name": keep_text(name)}
