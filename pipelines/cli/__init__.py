"""The command line: `connector COMMAND`. A command parses its arguments, calls a flow, shows the report of the flow,
and exits with the exit code of the report."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import click

import connector
from connector.errors import ConnectorError, find_exit_code
from connector.settings import raise_descriptor_limit
from pipelines.cli.help import Group, write_rows
from pipelines.cli.options import add_output_options, metrics_option

if TYPE_CHECKING:
    from connector.clock import Clock

SECTIONS = {
    "Load": {
        "import": "loads:import_command",
        "sync": "loads:sync_command",
        "plan": "loads:plan_command",
        "validate": "loads:validate_command",
        "retry": "loads:retry_command",
    },
    "Export": {"export": "exports:export_command", "reconcile": "exports:reconcile_command"},
    "Email": {"send": "mails:send_command", "mail": "mails:mail_command"},
    "Look": {
        "status": "runs:status_command",
        "explain": "ledger:explain_command",
        "check": "runs:check_command",
    },
    "Repair": {
        "forget": "ledger:forget_command",
        "ledger": "ledger:ledger_group",
        "prune": "runs:prune_command",
    },
    "Start": {
        "init": "jobs:init_command",
        "sandbox": "sandbox:sandbox_command",
        "demo": "sandbox:demo_command",
        "schema": "jobs:schema_command",
    },
}
"""The commands by the sections of the help. A value has the module of the command in this package, and the name of the
command's function."""

COMMANDS = {name: location for commands in SECTIONS.values() for name, location in commands.items()}

_STATUS_BY_EXIT_CODE = {2: "usage", 3: "aborted", 4: "locked"}
_LAST_STANDARD_DESCRIPTOR = 2  # the file descriptor of stderr


class CommandGroup(Group):
    """Imports the module of a command when the command is called. So `connector import` does not load DuckDB."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of the reference."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module_name, _, function_name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"pipelines.cli.{module_name}"), function_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, each with the first sentence of its help."""
        max_length = formatter.width - max(map(len, COMMANDS)) - 6
        rows_by_section: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for section, commands in SECTIONS.items():
            for name in commands:
                if (command := self.get_command(ctx, name)) is not None:
                    rows_by_section[section].append((name, command.get_short_help_str(max_length)))
        write_rows(formatter, rows_by_section)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. The error for an unknown name suggests similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # imported here, because only a wrong command needs this module

            similar_names = get_close_matches(args[0], COMMANDS)
            if not similar_names:
                raise
            raise click.UsageError(f"{error.message} Did you mean: {', '.join(similar_names)}?", ctx) from None


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@add_output_options
@metrics_option
@click.version_option(connector.__version__, prog_name="connector")
def cli(**_options: Any) -> None:
    """Move subscribers into and out of an email-marketing service.

    \b
    Settings are environment variables:
      CONNECTOR_BASE_URL    URL of the service
      CONNECTOR_TOKEN       token of the service
      CONNECTOR_TOKEN_FILE  file with the token, instead of CONNECTOR_TOKEN
      CONNECTOR_STATE_DIR   folder of ledger, reports and rejects files
                            [default: the user's state directory]
      CONNECTOR_LEDGER      database URL of the ledger
                            [default: SQLite in the state folder]

    \b
    Exit codes: 0 ok, 1 some rows need attention, 2 wrong usage or settings,
    3 ended early (run again), 4 another run holds the ledger, 130 or 143 stopped
    cleanly by a signal.

    \b
    Words:
      create                a request that creates one subscriber. The service
                            can neither change nor delete the subscriber.
      base                  a list of subscribers in the service
      list                  all subscribers that the service shows
      TotalCount            the service's own count of the subscribers on the list
      ledger                the connector's record of all creates and emails

    To see the options of a command, run: connector COMMAND --help. To see the
    connector at work, run: connector demo.

    You can write the options below before or after the command.
    """


def main() -> None:
    """Run the command line, and end the process at once, without waiting for a thread that still waits for its source.
    All results have been recorded and shown. Unloading the imported modules would take 50 ms, and 150 ms with
    DuckDB."""
    try:
        run()
    except SystemExit as system_exit:
        for stream in (sys.stdout, sys.stderr):
            # If the stream is closed or its disk is full, an earlier write has failed too, and the exit code is 3.
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(system_exit.code if isinstance(system_exit.code, int) else 3)


def run(clock: Clock | None = None) -> None:
    """Run the command of `sys.argv`, and raise SystemExit with its exit code. An expected error is shown as one line on
    stderr, and never as a traceback. Runs read the time from `clock`, by default the machine's clock."""
    # Closed standard streams are opened on /dev/null. Otherwise files and sockets would get the descriptor numbers of
    # the closed streams.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD_DESCRIPTOR:
        pass
    os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        # A character that the encoding of the stream lacks becomes an escape: \u0141.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    raise_descriptor_limit()
    # The connector does not use numpy's linear algebra, which would start a thread for each core. These threads took a
    # tenth of the processor time until the command began.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imported modules are never garbage. Searching them for garbage took a tenth of the time until the command began.
    gc.set_threshold(1_000_000, 20, 20)
    stdout = sys.stdout
    try:
        cli.main(prog_name="connector", standalone_mode=False, obj=clock)
    except click.ClickException as error:
        if is_option_value("--log-format", "json"):
            from pipelines.cli.logs import show_message, start_logging

            start_logging(0, "json")
            show_message(error.format_message())
        else:
            from connector.texts import make_visible
            from pipelines.cli.logs import write_stderr

            usage_buffer = io.StringIO()
            error.show(usage_buffer)
            write_stderr(make_visible(usage_buffer.getvalue()))
        _exit_with_message(error.exit_code, error.format_message(), is_message_already_shown=True)
    except SystemExit:
        if sys.stdout is not stdout:  # click replaces a stream whose reader has gone, and ends silently with 1
            _exit_with_message(3, "standard output is closed")
        raise
    except (click.Abort, KeyboardInterrupt):
        _exit_with_message(128 + signal.SIGINT, "stopped by a signal before the command ended")
    except ConnectorError as error:
        _exit_with_message(find_exit_code(error), str(error))
    except Exception as error:  # noqa: BLE001 - the last resort: an unexpected error must not exit with 1 (partial)
        from connector.runs.report import describe_fault

        _exit_with_message(3, describe_fault(error))


def is_option_value(option: str, value: str) -> bool:
    """Return whether the process arguments set the option to this value. The arguments may be invalid."""
    return f"{option}={value}" in sys.argv[1:] or (option, value) in pairwise(sys.argv[1:])


def _exit_with_message(exit_code: int, message: str, *, is_message_already_shown: bool = False) -> NoReturn:
    """End the process without a report. Write the message to stderr, and with `--output json` also a JSON object to
    stdout."""
    from pipelines.cli.logs import show_message
    from pipelines.cli.output import write_json_stdout

    if not is_message_already_shown:
        show_message(f"connector: {message}")
    if is_option_value("--output", "json") or "--json" in sys.argv[1:]:
        with suppress(ConnectorError):  # standard output cannot be written to; stderr and the exit code show the error
            write_json_stdout({"status": _STATUS_BY_EXIT_CODE.get(exit_code, "stopped"), "message": message})
    sys.exit(exit_code)
