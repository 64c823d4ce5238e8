"""The reference at the end of the README: commands, job keys, fields, files and switches, each from its definition.

`python -m pipelines.reference README.md` writes it there; a test fails when the README is behind.
"""

import sys
from collections.abc import Iterator, Sequence
from inspect import cleandoc
from pathlib import Path

import click

from connector.fields import FIELDS, wire_name
from connector.row_files import COLUMNS
from connector.sandbox import SWITCHES
from pipelines.cli import cli
from pipelines.jobs import JobKey, MessageFile, list_keys
from pipelines.report import DIFFERENCE_COLUMNS

BEGINNING = "<!-- reference: written by `python -m pipelines.reference README.md` -->\n"


def build_reference() -> str:
    """Return all of it, as Markdown."""
    parts = [BEGINNING, "## Reference\n", "### Commands\n"]
    parts += _describe_commands(click.Context(cli, info_name="connector"), cli)
    parts += ["### Keys of a job file\n", _build_keys(list_keys())]
    parts += ["### Keys of a message file\n", _build_keys(list_keys(MessageFile))]
    fields = [(f"`{field.name}`", wire_name(field), field.kind.value, field.rule) for field in FIELDS]
    parts += ["### Fields of a subscriber\n", _build_table(("field", "in the service", "type", "rule"), fields)]
    columns = [(f"`{name}`", meaning) for name, meaning in COLUMNS.items()]
    parts += ["### Columns of the drift file\n", _build_table(("column", "what it says"), columns)]
    differences = [(f"`{name}`", meaning) for name, meaning in DIFFERENCE_COLUMNS.items()]
    parts += ["### Columns of the differences\n", _build_table(("column", "what it says"), differences)]
    switches = [(f"`{switch.name}`", f"`{switch.default}`", switch.values, switch.help) for switch in SWITCHES]
    parts += ["### Switches of the sandbox (`--set name=value`)\n"]
    parts += [_build_table(("switch", "default", "values", "what it does"), switches)]
    return "\n".join(parts)


def _build_keys(keys: Sequence[JobKey]) -> str:
    rows = [(f"`{key.key}`" + (" (required)" if key.is_required else ""), _sentence(key.description)) for key in keys]
    return _build_table(("key", "what it says"), rows)


def replace_reference(readme: str) -> str:
    """Return the README's text with the reference as it should be."""
    return readme.partition(BEGINNING)[0] + build_reference()


def _describe_commands(context: click.Context, group: click.Group) -> Iterator[str]:
    """Each command of a group; of a group within it, its commands."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _describe_commands(click.Context(command, info_name=name, parent=context), command)
        elif command is not None:
            yield _describe_command(context, command)


def _describe_command(parent: click.Context, command: click.Command) -> str:
    context = click.Context(command, info_name=command.name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    rows = [
        (f"`{record[0]}`", record[1])
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)) is not None
    ]
    return f"#### `{usage}`\n\n{cleandoc(command.help or '')}\n\n{_build_table(('option', 'what it does'), rows)}"


def _build_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(_build_lines(head, rows)) + "\n"


def _build_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(replace_reference(path.read_text(encoding="utf-8")), encoding="utf-8")
