"""`connector explain`, `forget`, `ledger backup` and `ledger restore`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from connector.choices import IDENTITIES
from connector.errors import ConfigurationError, LedgerError, LockedError
from connector.plurals import count
from pipelines.cli.logs import say
from pipelines.cli.options import wait_option
from pipelines.cli.output import Output, end, output_options

_FROM_STDIN = "-"


@click.command("explain")
@click.argument("identity")
@output_options
def explain_command(identity: str, output: Output) -> None:
    """Show what is known of one subscriber: its state in each base, the run that sent it, and what to do next.

    IDENTITY is an email address or a client_user_id; `-` reads it from standard input, since arguments show in process
    lists. The ledger is only read, also while a run goes on. Nothing is sent, and no token is needed. The exit code is
    1 if the ledger does not know the subscriber.
    """
    from connector.explanations import explain_identity
    from connector.report import EXIT_CODES
    from connector.settings import read_state
    from pipelines.report.text import show_explanation

    location = read_state(os.environ, is_writing=False)
    explanation = explain_identity(location, _read_identity(identity))
    is_shown = output.is_json or output.show(lambda console: show_explanation(explanation, console))
    end(explanation.as_json(), EXIT_CODES[explanation.status], output, is_shown=is_shown)


@click.command("forget")
@click.argument("identity")
@click.option("--identity", "field", type=click.Choice(IDENTITIES), help="What IDENTITY is.  [default: either]")
@click.option("--base-id", type=click.IntRange(min=1), help="Only in this base, by its id.  [default: every base]")
@click.option("--base-name", help="Only in this base, by its name.")
@click.option("--job", "job_path", type=click.Path(path_type=Path), help="Use this job's account.")
@wait_option
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
    from connector.jobs.reader import load_job
    from connector.settings import read_base_url, read_state
    from pipelines.flows.forget import run_forget

    job = load_job(job_path, os.environ) if job_path is not None else None
    service = job.service if job is not None else None
    account = service.account if service is not None else None
    account = account or read_base_url(os.environ, service.base_url if service is not None else None)
    fields = (field,) if field is not None else IDENTITIES
    ledger_url = read_state(os.environ).ledger_url
    _end(run_forget(ledger_url, account, _read_identity(identity), fields, base_id, base_name, wait_s), output)


def _end(answer: dict[str, Any], output: Output) -> NoReturn:
    """Show the messages of an answer and end the process with the exit code of the answer's status."""
    from connector.report import EXIT_CODES

    if not output.is_quiet or answer["status"] != "ok":
        say("\n".join(answer["messages"]))
    end(answer, EXIT_CODES[answer["status"]], output)


def _read_identity(given: str) -> str:
    identity = (sys.stdin.read() if given == _FROM_STDIN else given).strip()
    if not identity or "\n" in identity:
        where = ", alone on standard input" if given == _FROM_STDIN else ""
        raise ConfigurationError(f"IDENTITY must be one email address or client_user_id{where}")
    return identity


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
    from connector.ledger.backup import back_up_ledger
    from connector.ledger.sqlite import find_emails
    from connector.settings import read_state

    for path in (target, find_emails(target)):
        if os.path.lexists(path) and not force:
            raise ConfigurationError(f"{path} is there already: name another file, or replace it with --force")
        output.refuse_to_overwrite(path, "the copy itself")
    target = target.absolute()
    keys: dict[str, Any] = {"target": None, "entries": 0, "emails": 0}
    try:
        copied = back_up_ledger(read_state(os.environ).ledger_url, target, is_replacing=force)
    except LedgerError as error:
        _end({"status": "aborted", **keys, "messages": [str(error)]}, output)
    copies = ((target, copied.entries, "entry", "entries"), (find_emails(target), copied.emails, "email", "emails"))
    messages = [f"{path}: {count(number, *nouns)}" for path, number, *nouns in copies if number is not None]
    keys = {"target": str(target), "entries": copied.entries or 0, "emails": copied.emails or 0}
    _end({"status": "ok", **keys, "messages": messages}, output)


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
    from connector.ledger.backup import restore_ledger
    from connector.settings import read_state

    keys: dict[str, Any] = {"source": str(source.absolute()), "entries": 0, "emails": 0}
    try:
        ledger_url = read_state(os.environ).ledger_url
        restored = restore_ledger(ledger_url, source, at=system_clock().now())
    except (LockedError, LedgerError) as error:
        status = "locked" if isinstance(error, LockedError) else "aborted"
        _end({"status": status, **keys, "messages": [str(error)]}, output)
    keys |= {"entries": restored.entries or 0, "emails": restored.emails or 0}
    messages = [f"restored: {count(keys['entries'], 'entry', 'entries')}, {count(keys['emails'], 'email')}"]
    if restored.campaigns:
        messages.append(
            f"campaigns that are closed now: {restored.campaigns:,}. The ledger does not know which "
            "emails were sent after the backup was made. `connector mail JOB --reopen` continues one"
        )
    _end({"status": "ok", **keys, "messages": messages}, output)
