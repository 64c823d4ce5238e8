"""`connector ledger …`: looking after the ledger itself."""

import os
from pathlib import Path
from typing import Any

import click

from connector.errors import ConfigurationError, LedgerError
from connector.ledger import back_up_ledger
from connector.ledger.emails.place import find_emails
from pipelines.commands.options import Output, end, output_options
from pipelines.runs.report import EXIT_CODES
from pipelines.settings import SettingOptions, read_state


@click.group("ledger")
def ledger_group() -> None:
    """Look after the ledger, which remembers everybody who was sent."""


@ledger_group.command("backup")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Take the place of a file that is there.")
@output_options
def backup_command(target: Path, force: bool, output: Output) -> None:
    """Copy the ledger to the file TARGET, whole and as it is at one moment, also while a run goes on.

    The emails that were sent are copied, too, to a file beside it: copy-emails.db for copy.db. A copy that is put back
    knows nothing of what was sent since: whoever was created meanwhile is found by the look before creating, and not
    created again, but who was mailed meanwhile may be mailed again.
    """
    for path in (target, find_emails(target)):
        if os.path.lexists(path) and not force:
            raise ConfigurationError(f"{path} is there already: name another file, or replace it with --force")
        output.refuse_to_overwrite(path, "the copy itself")
    answer = _back_up(target, force)
    if not output.is_quiet or answer["status"] != "ok":
        click.echo("\n".join(answer["messages"]), err=True)
    end(answer, EXIT_CODES[answer["status"]], output)


def _back_up(target: Path, force: bool) -> dict[str, Any]:
    """The answer as plain JSON values. Raises ConfigurationError when there can be no copy at `target`."""
    where = str(target.absolute())
    try:
        copied = back_up_ledger(read_state(os.environ, SettingOptions()).ledger_url, target, is_replacing=force)
    except LedgerError as error:
        return {"status": "aborted", "target": None, "entries": 0, "emails": 0, "messages": [str(error)]}
    told = [
        f"{path}: {number:,} {what}"
        for path, number, what in (
            (where, copied.entries, "entries"),
            (find_emails(target.absolute()), copied.emails, "emails"),
        )
        if number is not None
    ]
    return {
        "status": "ok",
        "target": where,
        "entries": copied.entries or 0,
        "emails": copied.emails or 0,
        "messages": told,
    }
