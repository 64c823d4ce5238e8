"""`connector forget` and `ledger`: what is kept in the ledger."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from connector.choices import IDENTITIES
from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.plurals import count
from pipelines.cli.logs import say
from pipelines.cli.options import Duration
from pipelines.cli.output import Output, end, output_options

if TYPE_CHECKING:
    from pipelines.flows import ForgetPlan, Forgotten

_FROM_STDIN = "-"


@click.command("forget")
@click.argument("identity")
@click.option("--identity", "field", type=click.Choice(IDENTITIES), help="What IDENTITY is.  [default: either]")
@click.option("--base-id", type=click.IntRange(min=1), help="Only in this base, by its id.  [default: every base]")
@click.option("--base-name", help="Only in this base, by its name.")
@click.option("--job", "job_path", type=click.Path(path_type=Path), help="Use this job's account.")
@click.option("--wait", "wait_s", type=Duration(), default=0.0, help="Wait so long for another run to end.")
@output_options
def forget_command(
    identity: str,
    field: str | None,
    base_id: int | None,
    base_name: str | None,
    job_path: Path | None,
    wait_s: float,
    output: Output,
) -> None:
    """Forget a subscriber that was erased in the service: the next row of IDENTITY is new.

    IDENTITY is an email address or a client_user_id; `-` reads it from standard input, since arguments show in process
    lists. Nothing is sent, and no token is needed. An entry whose create may be under way is kept.
    """
    from connector.settings import SettingOptions, read_state
    from pipelines.flows import ForgetPlan
    from pipelines.jobs import load_job, read_account

    job = load_job(job_path, os.environ) if job_path is not None else None
    options = SettingOptions()
    fields = (field,) if field is not None else IDENTITIES
    plan = ForgetPlan(read_account(os.environ, job, options), _read_identity(identity), fields, base_id, base_name)
    forgotten = _forget(read_state(os.environ, options).ledger_url, plan, wait_s)
    if not output.is_quiet or forgotten.status != "ok":
        say(forgotten.message)
    end(forgotten.as_json(), forgotten.exit_code, output)


def _forget(ledger_url: str, plan: ForgetPlan, wait_s: float) -> Forgotten:
    from connector.ledger import open_ledger
    from pipelines.flows import Forgotten, forget

    try:
        with open_ledger(ledger_url, wait_s=wait_s, may_make=False) as ledger:
            return forget(ledger, plan)
    except LockedError as error:
        return Forgotten("locked", str(error))
    except LedgerError as error:
        return Forgotten("aborted", str(error))


def _read_identity(given: str) -> str:
    identity = (sys.stdin.read() if given == _FROM_STDIN else given).strip()
    if not identity or "\n" in identity:
        raise ConfigurationError("IDENTITY must be one email address or client_user_id" + _whence(given))
    return identity


def _whence(given: str) -> str:
    return ", alone on standard input" if given == _FROM_STDIN else ""


@click.group("ledger")
def ledger_group() -> None:
    """Look after the ledger, which records every subscriber and email that was sent."""


@ledger_group.command("backup")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Take the place of a file that is there.")
@output_options
def backup_command(target: Path, force: bool, output: Output) -> None:
    """Copy the ledger to the file TARGET, whole and as it is at one moment, also while a run goes on.

    The emails that were sent are copied, too, to a file beside it: copy-emails.db for copy.db. Put a copy
    back by `connector ledger restore`: it knows nothing of what was sent since.
    """
    from connector.ledger import find_emails
    from connector.report import EXIT_CODES

    for path in (target, find_emails(target)):
        if os.path.lexists(path) and not force:
            raise ConfigurationError(f"{path} is there already: name another file, or replace it with --force")
        output.refuse_to_overwrite(path, "the copy itself")
    answer = _back_up(target, force)
    if not output.is_quiet or answer["status"] != "ok":
        say("\n".join(answer["messages"]))
    end(answer, EXIT_CODES[answer["status"]], output)


def _back_up(target: Path, force: bool) -> dict[str, Any]:
    """The answer as plain JSON values. Raises ConfigurationError when there can be no copy at `target`."""
    from connector.ledger import back_up_ledger, find_emails
    from connector.settings import SettingOptions, read_state

    where = str(target.absolute())
    try:
        copied = back_up_ledger(read_state(os.environ, SettingOptions()).ledger_url, target, is_replacing=force)
    except LedgerError as error:
        return {"status": "aborted", "target": None, "entries": 0, "emails": 0, "messages": [str(error)]}
    messages = [
        f"{path}: {count(number, *what)}"
        for path, number, what in (
            (where, copied.entries, ("entry", "entries")),
            (find_emails(target.absolute()), copied.emails, ("email",)),
        )
        if number is not None
    ]
    return {
        "status": "ok",
        "target": where,
        "entries": copied.entries or 0,
        "emails": copied.emails or 0,
        "messages": messages,
    }


@ledger_group.command("restore")
@click.argument("source", type=click.Path(path_type=Path))
@output_options
def restore_command(source: Path, output: Output) -> None:
    """Put the backup SOURCE, and the emails beside it, in the place of the ledger, while no run has it.

    What is there is overwritten. A backup knows nothing of what was sent since. A subscriber that was created meanwhile
    is found by the look-up before creating. For emails there is no such look-up: campaigns are closed, and
    `connector mail` refuses each of them, and any that the backup does not know, until it is run with --reopen.
    """
    from connector.clock import system_clock
    from connector.ledger import restore_ledger
    from connector.report import EXIT_CODES
    from connector.settings import SettingOptions, read_state

    state = read_state(os.environ, SettingOptions())
    answer: dict[str, Any] = {"status": "ok", "source": str(source.absolute()), "entries": 0, "emails": 0}
    try:
        restored = restore_ledger(state.ledger_url, source, at=system_clock().now())
    except LedgerError as error:
        answer |= {"status": "locked" if isinstance(error, LockedError) else "aborted", "messages": [str(error)]}
    else:
        answer |= {"entries": restored.entries or 0, "emails": restored.emails or 0}
        found = f"{count(restored.entries or 0, 'entry', 'entries')}, {count(restored.emails or 0, 'email')}"
        answer["messages"] = [f"restored: {found}"]
        if restored.campaigns:
            answer["messages"].append(
                f"campaigns that are closed now: {restored.campaigns:,}. The ledger does not know which "
                "emails were sent after the backup was made. `connector mail JOB --reopen` continues one"
            )
    if not output.is_quiet or answer["status"] != "ok":
        say("\n".join(answer["messages"]))
    end(answer, EXIT_CODES[answer["status"]], output)
