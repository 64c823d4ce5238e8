"""`connector ledger …`: looking after the ledger itself."""

import os
from pathlib import Path
from typing import Any

import click

from connector.errors import ConfigurationError, LedgerError
from connector.ledger.backup import back_up_ledger
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

    A copy that is put back knows nothing of what was sent since: whoever was created meanwhile is found by the look
    before creating, and not created again.
    """
    if os.path.lexists(target) and not force:
        raise ConfigurationError(f"{target} is there already: name another file, or replace it with --force")
    output.refuse_to_overwrite(target, "the copy itself")
    answer = _back_up(target, force)
    if not output.is_quiet or answer["status"] != "ok":
        click.echo(answer["messages"][0], err=True)
    end(answer, EXIT_CODES[answer["status"]], output)


def _back_up(target: Path, force: bool) -> dict[str, Any]:
    """The answer as plain JSON values. Raises ConfigurationError when there can be no copy at `target`."""
    where = str(target.absolute())
    try:
        number = back_up_ledger(read_state(os.environ, SettingOptions()).ledger_url, target, is_replacing=force)
    except LedgerError as error:
        return {"status": "aborted", "target": None, "entries": 0, "messages": [str(error)]}
    return {"status": "ok", "target": where, "entries": number, "messages": [f"{where}: {number:,} entries"]}
