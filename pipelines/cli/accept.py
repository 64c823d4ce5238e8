"""`connector accept`: bad rows that are known, and no news any more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from connector.errors import ConfigurationError, LedgerError, LockedError
from pipelines.cli.logs import say
from pipelines.cli.options import Duration
from pipelines.cli.output import Output, end, output_options

if TYPE_CHECKING:
    from connector.ledger import Ledger
    from pipelines.flows import Acceptance

_FROM_STDIN = "-"


@click.command("accept")
@click.argument("rows", metavar="[FILE|IDENTITY]...", nargs=-1, type=click.Path())
@click.option("--job", "job_path", type=click.Path(path_type=Path), help="Accept rows of this job, by IDENTITY.")
@click.option(
    "--revoke", "is_revoked", is_flag=True, help="Judge the rows again; without any, all accepted rows of --job."
)
@click.option("--wait", "wait_s", type=Duration(), default=0.0, help="Wait so long for another run to end.")
@output_options
def accept_command(
    rows: tuple[str, ...], job_path: Path | None, is_revoked: bool, wait_s: float, output: Output
) -> None:
    """Accept bad rows as they are: later runs are not partial (exit 1) for them, until they change.

    Give the rejects FILE of an import or a sync, or a --job and the IDENTITY of rows that its runs have rejected (`-`
    reads identities from standard input, one a line, since arguments show in process lists). Invalid and rejected rows
    can be accepted. They are still counted, and the report says how many were accepted; the rejects file leaves them
    out. A row that changes in a column that is used, or that is wrong in another way, is judged again.
    """
    from connector.clock import system_clock
    from connector.settings import SettingOptions, read_state
    from pipelines.flows import AcceptPlan, accept, find_rejected, read_rejected, revoke_all
    from pipelines.jobs import load_job, read_account

    options = SettingOptions()
    state = read_state(os.environ, options)
    job = load_job(job_path, os.environ) if job_path is not None else None
    if not rows and (job is None or not is_revoked):
        raise ConfigurationError("name what to accept: a rejects file, or --job JOB and identities")
    if not rows and job is not None:
        account = read_account(os.environ, job, options)
        work: Callable[[Ledger], Acceptance] = lambda ledger: revoke_all(ledger, account, job.name)  # noqa: E731
    else:
        if job is None:
            plan = AcceptPlan([read_rejected(Path(each)) for each in rows], is_revoked=is_revoked)
        elif is_revoked:
            raise ConfigurationError("--revoke takes a rejects file, or --job alone: leave out the identities")
        elif files := [each for each in rows if Path(each).is_file()]:
            raise ConfigurationError(f"{files[0]} is a file, and --job takes identities: give the file alone")
        else:
            plan = find_rejected(job, _read_identities(rows), state.state_dir)
        work = lambda ledger: accept(ledger, plan, system_clock().now())  # noqa: E731
    accepted = _work(state.ledger_url, work, wait_s)
    if not output.is_quiet or accepted.status != "ok":
        say("\n".join(accepted.messages))
    end(accepted.as_json(), accepted.exit_code, output)


def _work(ledger_url: str, work: Callable[[Ledger], Acceptance], wait_s: float) -> Acceptance:
    from connector.ledger import open_ledger
    from pipelines.flows import Acceptance

    try:
        with open_ledger(ledger_url, wait_s=wait_s, may_make=False) as ledger:
            return work(ledger)
    except LockedError as error:
        return Acceptance("locked", (str(error),))
    except LedgerError as error:
        return Acceptance("aborted", (str(error),))


def _read_identities(rows: tuple[str, ...]) -> list[str]:
    given = sys.stdin.read().splitlines() if rows == (_FROM_STDIN,) else list(rows)
    identities = [each.strip() for each in given if each.strip()]
    if not identities:
        raise ConfigurationError("no identity was given: write one on each line of standard input")
    return identities
