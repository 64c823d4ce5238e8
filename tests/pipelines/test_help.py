"""The help of each command fits 80 columns, and the text of each option is complete. Options may precede a command."""

import re
from collections.abc import Iterator

import click
import pytest

from pipelines.cli import COMMANDS, cli
from pipelines.cli.help import Option
from pipelines.cli.options import ParsedType
from tests.pipelines.conftest import ROOT, Connector


def list_all_commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield each command and its subcommands by the path that a user types."""
    yield context.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from list_all_commands(subcommand, click.Context(subcommand, info_name=name, parent=context))


COMMAND_BY_PATH = dict(list_all_commands(cli, click.Context(cli, info_name="connector", **cli.context_settings)))
OPTION_BY_NAME = {
    f"{path} {parameter.opts[-1]}": parameter
    for path, command in COMMAND_BY_PATH.items()
    for parameter in command.params
    if isinstance(parameter, click.Option) and parameter.name != "version"
}


def test_the_help_of_each_command_fits_80_columns() -> None:
    """tests/docs/test_pages.py compares the reference with the code."""
    page = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    help_by_path = dict(re.findall(r"^## ([^\n]*)\n\n```text\n(.*?)```$", page, re.M | re.S))
    lines = [line for help_text in help_by_path.values() for line in help_text.splitlines()]
    assert [line for line in lines if len(line) > 80 or not line.isascii()] == []
    assert list(help_by_path) == list(COMMAND_BY_PATH)


def test_the_help_shows_each_command_once_with_a_complete_sentence(connector: Connector) -> None:
    help_text = connector.run("--help", environ={"COLUMNS": "80"}).stdout
    sections = re.findall(r"^(\w+):\n((?:  [a-z].*\n)+)", help_text, re.MULTILINE)
    assert [title for title, _ in sections] == ["Load", "Export", "Email", "Look", "Repair", "Start"]
    lines = [line for _, body in sections for line in body.splitlines()]
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


def test_the_help_explains_the_words_that_all_commands_use(connector: Connector) -> None:
    help_text = connector.run("--help").stdout
    (words_text,) = re.findall(r"^  Words:\n((?:    .*\n)+)", help_text, re.MULTILINE)
    assert re.findall(r"^    (\w+) +\S", words_text, re.MULTILINE) == ["create", "base", "list", "TotalCount", "ledger"]


def find_fault(option: click.Option) -> str:
    """Return the first fault of the help of an option, or "" if the help is complete."""
    if not isinstance(option, Option):
        return "is not declared by pipelines.cli.help.option"
    if not re.fullmatch(r"(?s)[A-Za-z-].*\.", option.help or ""):
        return "the help is not a sentence"
    if not (
        option.is_bool_flag or option.count or option.metavar or isinstance(option.type, click.Choice | ParsedType)
    ):
        return "the help does not show the type of the value"
    is_flag = (option.is_bool_flag and not option.secondary_opts) or option.count
    return "" if is_flag or option.default_text else "the help has no default"


def test_the_help_of_each_option_is_complete() -> None:
    faults = {name: find_fault(option) for name, option in OPTION_BY_NAME.items()}
    assert {name: fault for name, fault in faults.items() if fault} == {}


@pytest.mark.parametrize(
    "option_name", ["--wait", "--time-limit", "--json", "--report", "--metrics", "--limit", "--held"]
)
def test_a_shared_option_has_one_help_text(option_name: str) -> None:
    texts = {option.help for name, option in OPTION_BY_NAME.items() if name.endswith(f" {option_name}")}
    assert len(texts) == 1


def test_options_of_the_output_may_precede_the_command(connector: Connector) -> None:
    for arguments in ("--json status", "--output=json status", "--quiet --json status"):
        result = connector.run(*arguments.split())
        assert (result.exit_code, result.report["runs"]) == (0, []), arguments
    assert connector.run("--report", "status", "-vv", "status").exit_code == 0
    assert (connector.folder / "status").read_text(encoding="utf-8").startswith("{")
    second_result = connector.run("--quiet", "ledger", "--json", "backup", "copy.db")
    assert (second_result.exit_code, second_result.report["status"]) == (2, "usage")
    refused_result = connector.run("--json", "sync", "nowhere.yaml")
    assert (refused_result.is_refused, refused_result.report["status"]) == (True, "usage")


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    [("--json schema", "--json"), ("--metrics a.prom status", "--metrics"), ("--wait 5m sync job.yaml", "--wait")],
)
def test_an_option_that_the_command_does_not_have_is_refused(
    connector: Connector, arguments: str, expected_text: str
) -> None:
    result = connector.run(*arguments.split())
    assert (result.exit_code, expected_text in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("arguments", ["", "--json", "--report", "--report a.json"])
def test_options_without_a_command_show_the_help(connector: Connector, arguments: str) -> None:
    result = connector.run(*arguments.split())
    assert result.exit_code == 2
    assert "Load:" in result.stderr
