"""The command line: `connector COMMAND`. It parses, calls a flow, shows its report and ends with its exit code."""

import sys

import click

import connector
from connector.errors import ConfigurationError, ConnectorError, LedgerError, LockedError, RunAborted, SourceError
from pipelines.commands.demo import demo_command
from pipelines.commands.export import export_command
from pipelines.commands.imports import import_command
from pipelines.commands.sandbox import sandbox_command
from pipelines.commands.sync import sync_command

_EXIT_CODES: tuple[tuple[type[ConnectorError], int], ...] = (
    (ConfigurationError, 2),
    (SourceError, 2),  # here it was found before anything started; in a run it is an aborted report
    (LockedError, 4),
    (LedgerError, 3),
    (RunAborted, 3),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(connector.__version__, prog_name="connector")
def cli() -> None:
    """Move subscribers into and out of an email-marketing service.

    Settings: CONNECTOR_BASE_URL, CONNECTOR_TOKEN or CONNECTOR_TOKEN_FILE, CONNECTOR_STATE_DIR, CONNECTOR_LEDGER.
    """


for command in (import_command, sync_command, export_command, sandbox_command, demo_command):
    cli.add_command(command)


def main() -> None:
    """The entry point: foreseen errors become one line on stderr and an exit code, never a traceback."""
    try:
        cli.main(prog_name="connector", standalone_mode=True)
    except ConnectorError as error:
        click.echo(f"connector: {error}", err=True)
        sys.exit(next(code for kind, code in _EXIT_CODES if isinstance(error, kind)))
