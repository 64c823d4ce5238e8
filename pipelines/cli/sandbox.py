"""`connector sandbox` and `demo`: an imitation of the service on loopback, and a demonstration against it."""

from __future__ import annotations

import errno
import sys
import tempfile
from pathlib import Path

import click

from connector.errors import ConfigurationError
from pipelines.cli.help import Command, option
from pipelines.cli.output import Output, run_flow


@click.command("sandbox", cls=Command)
@option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=8080,
    group="Sandbox",
    default_text="8080",
    help="Port on this machine. 0 selects a free port.",
)
@option(
    "--token",
    metavar="TOKEN",
    envvar="CONNECTOR_SANDBOX_TOKEN",
    default="sandbox",
    group="Sandbox",
    default_text="CONNECTOR_SANDBOX_TOKEN, or sandbox",
    help="Token that clients must send.",
)
@option(
    "--data",
    "data_folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    group="Sandbox",
    default_text="in memory",
    help="Folder that stores the subscribers and emails.",
)
@option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    group="Sandbox",
    default_text="none",
    help="Set a switch, for example latency_ms=200. docs/reference/sandbox.md lists all switches. Repeatable.",
)
def sandbox_command(port: int, token: str, data_folder: Path | None, settings: tuple[str, ...]) -> None:
    """Run an imitation of the service, to try jobs.

    The sandbox answers on 127.0.0.1 like the real service, until you press Ctrl-C. Open its address in a browser to see
    the subscribers and to switch faults on.
    """
    from connector.sandbox.server import serve

    try:
        serve(port, token, data_folder, settings)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.ENOSPC):  # standard output is closed, or the disk is full
            raise
        if error.filename is not None:
            raise ConfigurationError(f"--data {error.filename}: {error.strerror}. Name another folder") from None
        raise ConfigurationError(
            f"cannot serve on port {port}: {error.strerror}. Choose another port with --port"
        ) from None


@click.command("demo", cls=Command)
@option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    group="Demo",
    default_text="a temporary folder",
    help="New folder for the files of the demo.",
)
@option(
    "--people",
    "row_count",
    type=click.IntRange(min=200),
    metavar="N",
    default=3000,
    group="Demo",
    default_text="3000",
    help="Number of rows, at least 200.",
)
@option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    default=7,
    group="Demo",
    default_text="7",
    help="Seed of the random people. The same seed makes the same rows.",
)
def demo_command(folder: Path | None, row_count: int, seed: int) -> None:
    """Import, sync and export made-up people in a sandbox.

    The sandbox of the demo loses answers and limits the rate of requests. At the end, the demo compares the service,
    the ledger and the exported table.
    """
    from pipelines.demo import run_demo
    from pipelines.report.console import PlainConsole

    folder = _make_folder(folder)
    console, output = PlainConsole(), Output(is_json=False, is_quiet=False, report_path=None)
    checks = run_demo(folder, row_count, seed, lambda flow: run_flow(flow, output), console)
    for check in checks:
        answer_text = "[green]yes[/]" if check.is_true else "[red]NO[/] "
        console.print(f"{answer_text} {check.claim}: {check.details}", highlight=False, soft_wrap=True)
    are_all_true = all(check.is_true for check in checks)
    console.write_text(f"\nfiles: {folder}")
    agreement_text = "agree" if are_all_true else "DO NOT AGREE"
    console.print(f"verdict: service, ledger and warehouse {agreement_text}")
    sys.exit(0 if are_all_true else 1)


def _make_folder(path: Path | None) -> Path:
    """Create a folder that only its owner can enter, because its files would be personal data in real life."""
    if path is None:
        return Path(tempfile.mkdtemp(prefix="connector-demo-"))
    try:
        path.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise ConfigurationError(f"--folder {path}: {error.strerror}. Name a folder that does not exist") from None
    return path.absolute()
