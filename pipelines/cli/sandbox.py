"""`connector sandbox` and `demo`: the service imitated on loopback, and a whole story against it."""

from __future__ import annotations

import errno
import sys
import tempfile
from pathlib import Path

import click

from connector.errors import ConfigurationError
from pipelines.cli.output import Output, run_flow


@click.command("sandbox")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one.")
@click.option(
    "--token", envvar="CONNECTOR_SANDBOX_TOKEN", default="sandbox", show_default=True, help="The token it takes."
)
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Keep the data here; else in memory.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a switch or a fault. Repeatable.")
def sandbox_command(port: int, token: str, data: Path | None, settings: tuple[str, ...]) -> None:
    """Serve an imitation of the service on this machine, to try jobs without a token of your own."""
    from connector.sandbox.server import serve

    try:
        serve(port, token, data, settings)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.ENOSPC):  # where it says that it is ready, or keeps its data
            raise
        if error.filename is not None:
            raise ConfigurationError(f"--data {error.filename}: {error.strerror}; name another folder") from None
        raise ConfigurationError(f"cannot serve on port {port}: {error.strerror}") from None


@click.command("demo")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Leave the files here (must be new).")
@click.option("--people", type=click.IntRange(min=200), default=3000, show_default=True, help="Rows of the file.")
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True, help="Another seed, other rows.")
def demo_command(folder: Path | None, people: int, seed: int) -> None:
    """Import, sync and export made-up subscribers against a sandbox that loses answers; then check everything."""
    from pipelines.demo import run_story
    from pipelines.report.console import PlainConsole

    folder = _make_folder(folder)
    console, output = PlainConsole(), Output(is_json=False, is_quiet=False, report_path=None)
    checks = run_story(folder, people, seed, lambda flow: run_flow(flow, output), console)
    for check in checks:
        mark = "[green]yes[/]" if check.is_true else "[red]NO[/] "
        console.print(f"{mark} {check.claim}: {check.details}", highlight=False, soft_wrap=True)
    is_right = all(check.is_true for check in checks)
    console.print(f"\nfiles: {folder}", soft_wrap=True)
    console.print("verdict: service, ledger and warehouse agree" if is_right else "verdict: THEY DO NOT AGREE")
    sys.exit(0 if is_right else 1)


def _make_folder(given: Path | None) -> Path:
    """A new folder that only its owner can enter: it holds what would be personal data in real life."""
    if given is None:
        return Path(tempfile.mkdtemp(prefix="connector-demo-"))
    try:
        given.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise ConfigurationError(f"--folder {given}: {error.strerror}; name a folder that is not there yet") from None
    return given.absolute()
