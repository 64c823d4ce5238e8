"""`connector probe`: what the service does that its interface document leaves unsaid."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from connector.errors import ConfigurationError
from pipelines.cli.logs import say
from pipelines.cli.options import Duration, record_option
from pipelines.cli.output import Output, end, output_options

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.flows import Probed

_RECENT_S = 60.0


@click.command("probe")
@click.option("--job", "job_path", type=click.Path(path_type=Path), help="Probe the service and account of this job.")
@click.option("--write", "is_writing", is_flag=True, help="Create marked subscribers, too; with --base-id and --yes.")
@click.option("--base-id", type=click.IntRange(min=1), help="Create them in this base.")
@click.option("--yes", "is_sure", is_flag=True, help="Yes, create them: no operation of the service removes them.")
@click.option("--wait", "wait_s", type=Duration(), default=0.0, help="Wait so long for a run to end.")
@record_option
@output_options
def probe_command(
    job_path: Path | None,
    is_writing: bool,
    base_id: int | None,
    is_sure: bool,
    wait_s: float,
    record_path: Path | None,
    output: Output,
) -> None:
    """Measure habits of the service: its page size, order, filters, window, and what else its document leaves unsaid.

    About twenty list requests are sent, and nothing is created. With --write --base-id N --yes up to four inactive
    subscribers are, at example.com, with the first name and the tag connector-probe: that shows what becomes of a
    duplicate, how an error looks, how soon a create is listed and how names of bases are compared, and may make a base
    whose name has other capitals. What was seen is kept in the ledger and shown with its age.
    """
    import uvloop

    from connector.clock import system_clock
    from connector.control import stop_on_signals
    from connector.settings import SettingOptions
    from pipelines.flows import ProbePlan, run_probe
    from pipelines.jobs import load_job, read_settings

    if is_writing != (base_id is not None) or is_writing != is_sure:
        raise ConfigurationError("--write creates subscribers: give it with --base-id N and --yes, or none of them")
    job = load_job(job_path, os.environ) if job_path is not None else None
    plan = ProbePlan(read_settings(os.environ, job, SettingOptions(record_path=record_path)), base_id, wait_s)

    async def run() -> Probed:
        with stop_on_signals() as stop:
            return await run_probe(plan, stop, system_clock())

    probed = uvloop.run(run())
    for message in probed.messages:
        say(message)
    is_shown = output.is_json or output.is_quiet or output.show(lambda console: _show(probed, console))
    end(probed.as_json(), probed.exit_code, output, is_shown=is_shown)


def _show(probed: Probed, console: Console) -> None:
    """One line a habit: its name, how sure it is, what was seen, and when, if that was not now."""
    for name, habit in probed.habits.items():
        seen_at = probed.seen_at.get(name)
        age = f" ({_describe_age(seen_at)})" if seen_at is not None else ""
        line = f"{name:15} {habit.sureness:9} {habit.words}{age}"
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _describe_age(seen_at: datetime) -> str:
    seconds = (datetime.now(seen_at.tzinfo) - seen_at).total_seconds()
    if seconds < _RECENT_S:
        return "now"
    return f"{seconds / 86_400:.0f} d ago" if seconds >= 86_400 else f"{seconds / 3600:.1f} h ago"
