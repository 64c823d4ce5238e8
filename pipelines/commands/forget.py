"""`connector forget IDENTITY`: the next row of somebody is new, whatever the ledger knew."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from connector.choices import IDENTITIES
from connector.errors import ConfigurationError, LedgerError, LockedError
from pipelines.commands.options import Duration, Output, end, output_options

if TYPE_CHECKING:
    from pipelines.forgetting import ForgetPlan, Forgotten

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
    """Forget somebody who was erased in the service: the next row of IDENTITY is new.

    IDENTITY is an email address or a client_user_id; `-` reads it from standard input, since arguments show in process
    lists. Nothing is sent, and no token is needed. Who may be on the way to the service is not forgotten.
    """
    from pipelines.forgetting import ForgetPlan
    from pipelines.jobs import SettingOptions, load_job, read_account, read_state

    job = load_job(job_path, os.environ) if job_path is not None else None
    options = SettingOptions()
    fields = (field,) if field is not None else IDENTITIES
    plan = ForgetPlan(read_account(os.environ, job, options), _read_identity(identity), fields, base_id, base_name)
    forgotten = _forget(read_state(os.environ, options).ledger_url, plan, wait_s)
    if not output.is_quiet or forgotten.status != "ok":
        click.echo(forgotten.message, err=True)
    end(forgotten.as_json(), forgotten.exit_code, output)


def _forget(ledger_url: str, plan: ForgetPlan, wait_s: float) -> Forgotten:
    from connector.ledger import open_ledger
    from pipelines.forgetting import Forgotten, forget

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
