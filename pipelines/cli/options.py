"""Options that several commands take: durations and shares, the cursor, a file with its mapping and base."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce, wraps
from pathlib import Path
from typing import Any, TypeGuard, cast

import click

from connector.choices import FILE_FORMATS, IDENTITIES, ZIP_POLICIES
from connector.errors import ConfigurationError
from connector.shards import Shard
from connector.units import parse_duration, parse_share

Command = Callable[..., Any]


class ParsedOption(click.ParamType[Any]):
    """A value that `parse` reads from a text. A ValueError of `parse` is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse, or fail as click does."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = ParsedOption("duration", parse_duration)  # seconds as a float
SHARE = ParsedOption("share", parse_share)  # `5%` as a share of one
SHARD = ParsedOption("shard", Shard.parse)

wait_option = click.option(
    "--wait",
    "wait_s",
    type=DURATION,
    default=0.0,
    help="Wait this long for the lock if another run holds it.  [default: 0s]",
)
ignore_total_count_option = click.option(
    "--ignore-total-count",
    is_flag=True,
    default=None,
    help="Accept the list even if its TotalCount is missing or disagrees.",
)
allow_truncated_option = click.option(
    "--allow-truncated", is_flag=True, default=None, help="Take a list that the service may cut off unseen."
)


def add_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Add these options to a command; the help shows them in this order."""
    return reduce(lambda decorated, option: option(decorated), reversed(options), command)


def sending_options(command: Command) -> Command:
    """Add the options that are keys of a job's load section, given to the command as arguments of the library."""
    return add_options(
        command,
        click.option(
            "--on-unknown", type=click.Choice(["resend", "hold"]), help="What becomes of an unknown proved absent."
        ),
        click.option(
            "--quiet-period",
            "quiet_period_s",
            metavar="DURATION",
            help="Wait before absence can be proved, such as 30s.",
        ),
        click.option("--max-concurrency", type=click.IntRange(1, 1000), help="Creates in flight at once, at most."),
        click.option("--max-rate", type=click.FloatRange(0, 100_000, min_open=True), help="Creates a second, at most."),
    )


class SourcePath(click.Path):
    """A path as a Path, and a URL as the str that it is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """Leave a URL alone: a path would lose one of its slashes."""
        return value if isinstance(value, str) and "://" in value else Path(str(super().convert(value, param, ctx)))


def cursor_options(command: Command) -> Command:
    """Add `--full` and `--since`, given to the command as `is_full` and `since`."""
    return add_options(
        command,
        click.option("--full", "is_full", is_flag=True, help="Read everything, from the cursor's start on."),
        click.option("--since", metavar="VALUE", help="Read from this value of the cursor on."),
    )


def refuse_both(is_full: bool, since: str | None) -> None:
    """Raise ConfigurationError when both of the cursor's options were given."""
    if is_full and since is not None:
        raise ConfigurationError("--full reads everything, and --since a part: give one of them")


dry_run_option = click.option("--dry-run", "is_dry", is_flag=True, help="Only say what would be done, as plan does.")


def _refuse_zero(_context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value == 0:
        raise click.BadParameter("must be more than nothing: no run ends in 0 s", param=parameter)
    return value


time_limit_option = click.option(
    "--time-limit",
    "time_limit_s",
    type=DURATION,
    callback=_refuse_zero,
    help="End a run in order that takes longer, such as 6h; the next one goes on.",
)


def refuse_empty(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty value: it comes from a variable that was not set, and is never meant."""
    if value is not None and not value.strip():
        raise click.BadParameter("must not be empty", param=parameter)
    return value


_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option("--base-id", type=click.IntRange(min=1), help="The base of the subscribers, by its id."),
    click.option("--base-name", help="The base of the subscribers, by its name."),
    click.option("--map", "mapped", multiple=True, metavar="FIELD=COLUMN", help="Map a column to a field. Repeatable."),
    click.option(
        "--ignore",
        "ignore",
        multiple=True,
        metavar="COLUMN",
        help="A column that seems to say who wants no email, and means something else. Repeatable.",
    ),
    click.option("--identity", type=click.Choice(IDENTITIES), help="What makes two rows the same subscriber."),
    click.option("--active/--inactive", "active", default=None, help="All rows as active, or as inactive."),
    click.option("--zip", type=click.Choice(ZIP_POLICIES), help="What becomes of a zip that is no number."),
    click.option("--job", "job_path", type=click.Path(path_type=Path), help="Use this job's mapping, base and rules."),
    click.option("--format", type=click.Choice(["auto", *FILE_FORMATS]), help="What the file holds."),
    click.option("--sheet", metavar="SHEET", help="A workbook's sheet, by name or number; the first when not given."),
    click.option("--encoding", help="How the file's text is encoded, such as cp1252."),
    click.option("--delimiter", help="What stands between two cells: one character, or tab."),
    click.option(
        "--limit",
        type=click.IntRange(min=1),
        help="Use only the first N rows. The rest is read if rows say who is inactive.",
    ),
)


def file_options(command: Command) -> Command:
    """Add the options of a file, given to the command as `rows`: their values by the names of the library's arguments,
    and `limit` and `job_path`."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        names = ("base_id", "base_name", "ignore", "identity", "active", "zip", "job_path", "format", "sheet",
                 "encoding", "delimiter", "limit")  # fmt: skip
        rows = {name: kwargs.pop(name) for name in names}
        rows["mapping"] = _parse_mapping(kwargs.pop("mapped")) or None
        return command(*args, rows=rows, **kwargs)

    return add_options(cast("Command", wrapped), *_OPTIONS)


def is_job(target: Path | str) -> TypeGuard[Path]:
    """Return whether a command's argument is a job file, by its suffix."""
    return isinstance(target, Path) and target.suffix in (".yaml", ".yml")


def _parse_mapping(mapped: tuple[str, ...]) -> dict[str, str]:
    """What `--map FIELD=COLUMN` says, by field. Raises ConfigurationError."""
    parsed: dict[str, str] = {}
    for each in mapped:
        field, separator, column = each.partition("=")
        if not separator or not field.strip():
            raise ConfigurationError(
                f"--map {each}: write --map FIELD=COLUMN, such as --map email='E-mail address', or FIELD= for none"
            )
        if field.strip() in parsed:
            raise ConfigurationError(f"--map {each}: {field.strip()} is mapped twice")
        parsed[field.strip()] = column
    return parsed
