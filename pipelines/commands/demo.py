"""`connector demo`: everything at work, in under a minute, on this machine alone."""

import sys
import tempfile
from pathlib import Path

import click

from connector.errors import ConfigurationError
from pipelines.commands.options import Output, run_flow


@click.command("demo")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Leave the files here (must be new).")
@click.option("--people", type=click.IntRange(min=200), default=3000, show_default=True, help="Rows of the file.")
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True, help="Another seed, other rows.")
def demo_command(folder: Path | None, people: int, seed: int) -> None:
    """Import, sync and export made-up people, over a made-up service that loses answers; then check everything."""
    from rich.console import Console

    from pipelines.demo import tell_story

    folder = _make_folder(folder)
    console, output = Console(), Output(is_json=False, is_quiet=False, report_path=None)
    checks = tell_story(folder, people, seed, lambda flow: run_flow(flow, output), console)
    for check in checks:
        mark = "[green]yes[/]" if check.is_so else "[red]NO[/] "
        console.print(
            f"{mark} {check.claim}{': ' if check.found else ''}{check.found}", highlight=False, soft_wrap=True
        )
    is_right = all(check.is_so for check in checks)
    console.print(f"\nfiles: {folder}", soft_wrap=True)
    console.print("verdict: service, ledger and warehouse agree" if is_right else "verdict: THEY DO NOT AGREE")
    sys.exit(0 if is_right else 1)


def _make_folder(given: Path | None) -> Path:
    """A new folder that only its owner can enter: what is in it is people's data in real life."""
    if given is None:
        return Path(tempfile.mkdtemp(prefix="connector-demo-"))
    try:
        given.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise ConfigurationError(f"--folder {given}: {error.strerror}; name a folder that is not there yet") from None
    return given.absolute()
