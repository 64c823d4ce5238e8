"""Compares a campaign's emails in the ledger with the reports of earlier mail runs (architecture 4.15).

An old copy of a ledger lacks the emails that were sent after the copy was made. `ledger restore` closes the campaigns
of a restored ledger. If a person copied the file back instead, only the reports in the state folder show the gap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from connector.errors import ConfigurationError
from connector.ledger.emails import Campaign, EmailLog


@dataclass(frozen=True, slots=True)
class History:
    """The ledger's records of a campaign: the number of sent emails by run id, the start of the latest run, and the
    time at which a run reopened the campaign (ISO 8601 in UTC, "": never)."""

    sent_by_run: Mapping[str, int] = field(default_factory=dict)
    last_began_at: str = ""
    reopened_at: str = ""


def check_history(
    log: EmailLog, campaign: Campaign, began_at: datetime, reports: Iterable[Mapping[str, Any]], *, is_reopening: bool
) -> None:
    """Record the start of this run. Raises ConfigurationError if the ledger lacks emails that an earlier run has
    reported as sent. `is_reopening` accepts those reports from now on."""
    with log.transaction():
        if is_reopening:
            log.mark_reopened(campaign, began_at.isoformat())
        refuse_older_ledger(log.name, campaign.account, campaign.name, reports, read_history(log, campaign))
        log.mark_begin(campaign, began_at.isoformat())


def read_history(log: EmailLog, campaign: Campaign) -> History:
    """Return the ledger's records of the campaign. Call this function inside a transaction of the log."""
    return History(log.count_sent(campaign), log.find_begin(campaign), log.find_reopen(campaign))


def refuse_older_ledger(
    ledger: str, account: str, campaign: str, reports: Iterable[Mapping[str, Any]], history: History
) -> None:
    """Raise ConfigurationError if a report counts more sent emails of the campaign than the ledger."""
    for report in reports:
        is_of_campaign = (report.get("account"), _read(report, "settings", "campaign")) == (account, campaign)
        if is_of_campaign and report["command"] == "mail" and _is_lost(report, history):
            raise ConfigurationError(
                f"the ledger {ledger} lacks emails that the run {report['run_id']} has sent in the campaign "
                f"{campaign}: an older copy of the ledger is in use. Nothing was sent. Put the newest ledger back. If "
                "it is lost, remove the recipients of that run from the source, and run with --reopen"
            )


def _is_lost(report: Mapping[str, Any], history: History) -> bool:
    run_id, began_at = str(report["run_id"]), str(report["started_at"])
    if began_at < history.reopened_at:
        return False
    is_known = run_id in history.sent_by_run
    if report["status"] == "killed":  # its report has no counts; the ledger recorded the run before it sent anything
        return not is_known and began_at > history.last_began_at
    sent, failed = _read_count(report, "rows", "sent"), _read_count(report, "requests", "send", "failed")
    return sent > history.sent_by_run.get(run_id, 0) or (failed > 0 and not is_known)


def _read_count(report: Mapping[str, Any], *keys: str) -> int:
    value = _read(report, *keys)
    return value if isinstance(value, int) else 0


def _read(report: Mapping[str, Any], *keys: str) -> object:
    value: object = report
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
