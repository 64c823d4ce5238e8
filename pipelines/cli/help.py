"""The help of commands: sections of commands, groups of options, and options that may precede the command.

The package `cloup` also has sections and groups, but needs click 8.5 and doubles the time of `connector --help`. The
package `rich-click` also slows the help, because it imports Rich.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

DecoratedFunction = TypeVar("DecoratedFunction", bound=Callable[..., Any])

_BREAKABLE_CHARACTERS, _UNBREAKABLE_CHARACTERS = " -", "\N{NO-BREAK SPACE}\N{NON-BREAKING HYPHEN}"
"""A line may break at a blank or a hyphen. While lines are wrapped, the text `[default: …]` has unbreakable blanks and
hyphens, so that the text stays on one line."""

_DEFAULT_SUFFIX_PATTERN = re.compile(r"\[default: [^]]*\]$")
_LAST_GROUPS = ("Run", "Output")
_MAX_FIRST_COLUMN_WIDTH = 28  # characters; the text of a longer option begins on the next line


class Option(click.Option):
    """An option with its group in the help, and with the text of its default ("" for a flag)."""

    def __init__(self, *args: Any, group: str, default_text: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.group = group
        self.default_text = default_text

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return only the default value. If a user needs the range of a value, the help text of the option has it."""
        return {"default": self.default_text} if self.default_text else {}


def option(
    *names: str, group: str, default_text: str = "", **attributes: Any
) -> Callable[[DecoratedFunction], DecoratedFunction]:
    """Return a decorator that adds an `Option` to a command."""
    return click.option(*names, cls=Option, group=group, default_text=default_text, **attributes)


def write_rows(formatter: click.HelpFormatter, sections: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    """Write each section under its title. The texts of all sections begin in the same column."""
    rows_by_title = {title: list(rows) for title, rows in sections.items()}
    name_lengths = [len(name) for rows in rows_by_title.values() for name, _ in rows]
    name_width = max(
        (length for length in name_lengths if length <= _MAX_FIRST_COLUMN_WIDTH), default=_MAX_FIRST_COLUMN_WIDTH
    )
    for title, rows in rows_by_title.items():
        with formatter.section(title):
            formatter.write_dl(
                [(name.ljust(name_width), _DEFAULT_SUFFIX_PATTERN.sub(_keep_on_one_line, text)) for name, text in rows],
                col_max=name_width,
            )
    formatter.buffer = [
        text.translate(str.maketrans(_UNBREAKABLE_CHARACTERS, _BREAKABLE_CHARACTERS)) for text in formatter.buffer
    ]


def _keep_on_one_line(default_match: re.Match[str]) -> str:
    return default_match[0].translate(str.maketrans(_BREAKABLE_CHARACTERS, _UNBREAKABLE_CHARACTERS))


def group_options(command: click.Command, context: click.Context) -> dict[str, list[tuple[str, str]]]:
    """Return the help records of a command's options by group, in the order of the command's options. The groups Run
    and Output are the last groups.

    An option without a group, such as --help, joins the group of the option before it.
    """
    records_by_group: dict[str, list[tuple[str, str]]] = {}
    group = "Options"
    for parameter in command.get_params(context):
        group = parameter.group if isinstance(parameter, Option) else group
        help_record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if help_record is not None:
            records_by_group.setdefault(group, []).append(help_record)
    titles = sorted(records_by_group, key=lambda title: _LAST_GROUPS.index(title) + 1 if title in _LAST_GROUPS else 0)
    return {title: records_by_group[title] for title in titles}


class Command(click.Command):
    """A command whose help shows the options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups of options."""
        write_rows(formatter, group_options(self, ctx))


class Group(click.Group):
    """A group of commands. The options of the group are also options of each command, and may precede the
    command's name."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the options before the command's name to the place after the name: `-v sync` becomes `sync -v`."""
        takes_value_by_option = {"-vv": False}
        for param in self.params:
            if isinstance(param, Option):
                takes_value_by_option |= dict.fromkeys(param.opts, not (param.is_flag or param.count))
        command_index = 0
        while command_index < len(args) and (name := args[command_index].partition("=")[0]) in takes_value_by_option:
            command_index += 2 if takes_value_by_option[name] and name == args[command_index] else 1
        command = args[command_index : command_index + 1]
        options = args[:command_index]
        arguments = args[command_index + 1 :]
        return super().parse_args(ctx, [*command, *options, *arguments] if command else [])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and then the options."""
        self.format_commands(ctx, formatter)
        write_rows(formatter, group_options(self, ctx))
