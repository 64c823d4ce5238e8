"""The options that several commands share, each declared once, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce, wraps
from pathlib import Path
from typing import Any, TypeGuard, cast

import click

from connector.choices import CUSTOM_FIELDS_FOR_ZIPS, FILE_FORMATS, IDENTITY_FIELDS, ZIP_POLICIES, format_choices
from connector.errors import ConfigurationError
from connector.shards import Shard
from connector.units import parse_duration, parse_share
from pipelines.cli.help import option

CommandFunction = Callable[..., Any]


class ParsedType(click.ParamType[Any]):
    """The type of an option whose text `parse` turns into a value. A ValueError of `parse` is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the parsed value, or fail with a usage error."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = ParsedType("duration", parse_duration)  # seconds as a float
SHARE = ParsedType("share", parse_share)  # a number from 0 to 1: `5%` is 0.05
SHARD = ParsedType("shard", Shard.parse)


class FilePath(click.Path):
    """The type of an option that names a file. `-` is refused, because these options read and write no stream."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a Path."""
        if value == "-":
            self.fail("- is not the name of a file. Name a file, for example /tmp/NAME", param, ctx)
        return super().convert(value, param, ctx)


PATH = FilePath(path_type=Path)

FILE_GROUP, MAPPING_GROUP, SENDING_GROUP, RUN_GROUP, OUTPUT_GROUP = (
    "File", "Base and mapping", "Sending", "Run", "Output",
)  # fmt: skip
"""Groups of options in the help of several commands."""

wait_option = option(
    "--wait",
    "wait_s",
    type=DURATION,
    default=0.0,
    group=RUN_GROUP,
    default_text="0s; do not wait",
    help="If another run has locked the ledger or the campaign, wait at most this long for the end of the run, for "
    "example 10m.",
)
ignore_total_count_option = option(
    "--ignore-total-count",
    is_flag=True,
    default=None,
    group="Service's list",
    help="Accept the service's list of subscribers even if its stated total (TotalCount) is missing or wrong. Use this "
    "option only if the list is complete: an import may create a missing subscriber a second time.",
)
allow_truncated_option = option(
    "--allow-truncated",
    is_flag=True,
    default=None,
    group="Service's list",
    help="Treat the service's list as complete even if the list may be cut off, for example at 10,000 subscribers. A "
    "list that is proved incomplete stays incomplete. The command treats a subscriber who is not in the list as "
    "absent. An import may create an absent subscriber a second time, unless the ledger has the subscriber.",
)
receipts_option = option(
    "--receipts",
    metavar="PATH",
    group=OUTPUT_GROUP,
    default_text="receipts.to of the job; else none",
    help="Where to write receipts: the URL of a database, a Delta table such as delta://lake/receipts, or a folder. "
    "The name of the folder ends in .parquet, .csv or .jsonl, for example s3://bucket/receipts.parquet. A receipt is a "
    "row for a subscriber that is created, rejected, held (needs decision), unknown (no answer), or different in the "
    "service.",
)
dry_run_option = option(
    "--dry-run",
    "is_dry_run",
    is_flag=True,
    group=RUN_GROUP,
    help="Show what the command would do, and create nothing. A dry run reads the service's list.",
)
limit_option = option(
    "--limit",
    "row_limit",
    type=click.IntRange(min=1),
    metavar="N",
    group=RUN_GROUP,
    default_text="all rows",
    help="Use only the first N rows. If a column shows who is active, the command still reads all rows: a person with "
    "an inactive row anywhere is not created as active, and gets no email by default.",
)


def job_option(help_text: str, default_text: str) -> Callable[[CommandFunction], CommandFunction]:
    """Return the option `--job` of a command that can use a job file in addition to its argument."""
    return option(
        "--job", "job_path", type=PATH, metavar="JOB", group=MAPPING_GROUP, default_text=default_text, help=help_text
    )


def base_options(
    command: CommandFunction,
    *,
    default_text: str,
    id_help: str = "Id of the base that gets the subscribers. A base is a list in the service.",
    name_help: str = "Name of the base, instead of --base-id. Check the spelling: for an unknown name, the service may "
    "create a new base.",
) -> CommandFunction:
    """Add `--base-id` and `--base-name`. Without `id_help` and `name_help`, the help says that the base gets the
    subscribers."""
    shared_attributes: dict[str, Any] = {"group": MAPPING_GROUP, "default_text": default_text}
    return add_options(
        command,
        option("--base-id", type=click.IntRange(min=1), metavar="ID", help=id_help, **shared_attributes),
        option("--base-name", metavar="NAME", help=name_help, **shared_attributes),
    )


base_filter_options = partial(
    base_options,
    default_text="every base",
    id_help="Use only the base with this id.",
    name_help="Use only the base with this name.",
)
"""Adds `--base-id` and `--base-name`, which limit a command to one base."""


def format_options(command: CommandFunction) -> CommandFunction:
    """Add `--format`, `--sheet`, `--encoding` and `--delimiter`: the format of a source file."""
    return add_options(
        command,
        option(
            "--format",
            type=click.Choice(["auto", *FILE_FORMATS]),
            metavar="FORMAT",
            group=FILE_GROUP,
            default_text="auto",
            help=f"Format of the file: {format_choices(FILE_FORMATS)}. `auto`: detect the format.",
        ),
        option(
            "--sheet",
            metavar="SHEET",
            group=FILE_GROUP,
            default_text="the first visible sheet",
            help="Sheet of an Excel workbook: its name, or its number from 1.",
        ),
        option(
            "--encoding",
            metavar="NAME",
            group=FILE_GROUP,
            default_text="detected",
            help="Text encoding of the file, for example utf-8 or cp1252.",
        ),
        option(
            "--delimiter",
            metavar="CHAR",
            group=FILE_GROUP,
            default_text="detected",
            help="Character between two cells of a CSV file, or the word `tab`.",
        ),
    )


def add_options(command: CommandFunction, *options: Callable[[CommandFunction], CommandFunction]) -> CommandFunction:
    """Add these options to a command. The help shows the options in this order."""
    return reduce(lambda decorated_command, option: option(decorated_command), reversed(options), command)


def sending_options(command: CommandFunction) -> CommandFunction:
    """Add options for keys of the load section of a job. The command gets the values by the names of the library's
    arguments."""
    return add_options(
        command,
        option(
            "--on-unknown",
            type=click.Choice(["resend", "hold"]),
            group=SENDING_GROUP,
            default_text="resend",
            help="What to do if a create got no answer and look-ups prove that the subscriber does not exist. "
            "`resend`: send the create again; `hold`: send nothing until you run `connector retry --held`.",
        ),
        option(
            "--quiet-period",
            "quiet_period_s",
            metavar="DURATION",
            group=SENDING_GROUP,
            default_text="30s",
            help="Longest time that the service needs to list a new subscriber, such as 500ms, 30s or 2m. After a lost "
            "answer, the connector waits this long twice. If the time is too short, the connector may create a "
            "subscriber a second time.",
        ),
        option(
            "--max-concurrency",
            type=click.IntRange(1, 1000),
            metavar="N",
            group=SENDING_GROUP,
            default_text="512",
            help="Maximum number of creates that are sent and not answered yet, from 1 to 1000.",
        ),
        option(
            "--max-rate",
            type=click.FloatRange(0, 100_000, min_open=True),
            metavar="N",
            group=SENDING_GROUP,
            default_text="no maximum",
            help="Maximum number of requests per second, creates and look-ups together. Without this option, the "
            "connector finds the rate that the service accepts.",
        ),
    )


class SourcePath(click.Path):
    """The type of a path or URL. A path is returned as a Path, and a URL as a str."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """Return a Path, or a URL unchanged, because a Path would remove one slash of the URL."""
        return value if isinstance(value, str) and "://" in value else Path(str(super().convert(value, param, ctx)))


def cursor_options(command: CommandFunction) -> CommandFunction:
    """Add `--full` and `--since`. The command gets their values as `is_full` and `since`."""
    return add_options(
        command,
        option(
            "--full",
            "is_full",
            is_flag=True,
            group="Source",
            help="Read all rows from the cursor's start value on, not only rows that are newer than the last finished "
            "run.",
        ),
        option(
            "--since",
            metavar="VALUE",
            group="Source",
            default_text="where the last finished run ended",
            help="Read the rows from this value of the cursor column on, for example 2026-11-20.",
        ),
    )


def refuse_full_with_since(is_full: bool, since: str | None) -> None:
    """Raise ConfigurationError if both `--full` and `--since` are set."""
    if is_full and since is not None:
        raise ConfigurationError("--full reads all rows, and --since reads only newer rows. Use one of the two")


def _refuse_zero(_context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value == 0:
        raise click.BadParameter("must be more than 0 s", param=parameter)
    return value


time_limit_option = option(
    "--time-limit",
    "time_limit_s",
    type=DURATION,
    callback=_refuse_zero,
    group=RUN_GROUP,
    default_text="no limit",
    help="Stop cleanly after this long, for example 6h. The next run continues.",
)


def refuse_empty_text(_context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value. Raises BadParameter for an empty value, which often comes from an unset script variable."""
    if value is not None and not value.strip():
        raise click.BadParameter("must not be empty", param=parameter)
    return value


_MAPPING_OPTIONS: tuple[Callable[[CommandFunction], CommandFunction], ...] = (
    job_option(
        "Use the base, the mapping and the rules of this job file for FILE. The other options of this group are then "
        "refused.",
        "none",
    ),
    option(
        "--map",
        "assignments",
        multiple=True,
        metavar="FIELD=COLUMN",
        group=MAPPING_GROUP,
        default_text="by column headers",
        help="Fill FIELD from COLUMN. Fields are, for example, email, first_name, address_zip and is_active. FIELD= "
        "leaves the field empty. Fields without this option are mapped by the column headers. Repeatable.",
    ),
    option(
        "--ignore",
        "ignore",
        multiple=True,
        metavar="COLUMN",
        group=MAPPING_GROUP,
        default_text="none",
        help="Ignore COLUMN. A column that looks like consents or opt-outs stops the import until you ignore or map "
        "the column. Repeatable.",
    ),
    option(
        "--identity",
        type=click.Choice(IDENTITY_FIELDS),
        metavar="FIELD",
        group=MAPPING_GROUP,
        default_text="email",
        help="Field that is different for each person: email, or client_user_id (your own id of the person). Rows with "
        "the same value are one subscriber.",
    ),
    option(
        "--active/--inactive",
        "active",
        default=None,
        group=MAPPING_GROUP,
        default_text="the column that shows who is active",
        help="Create every subscriber as active, or every subscriber as inactive. An import needs this option if no "
        "column shows who is active. With --active, a column with opt-outs stops the import.",
    ),
    option(
        "--zip",
        type=click.Choice(ZIP_POLICIES),
        metavar="ACTION",
        group=MAPPING_GROUP,
        default_text="omit",
        help="What to do with a zip code that has a letter, a hyphen or a leading 0, such as SW1A 1AA, 12345-6789 or "
        "01067. `omit`: leave the zip code empty; `reject`: count the row as invalid; "
        f"{format_choices(CUSTOM_FIELDS_FOR_ZIPS)}: put the zip code into this field.",
    ),
)


def file_options(command: CommandFunction, *, needs_base: bool = True) -> CommandFunction:
    """Add the options of a file. The command gets all values in one argument, the dict `row_options`. Its keys are the
    names of the library's arguments, except that the argument `job` has the key `job_path`. With `needs_base`, the
    help says that the command needs a base."""

    @wraps(command)
    def wrapped_command(*args: Any, **kwargs: Any) -> Any:
        names = ("base_id", "base_name", "ignore", "identity", "active", "zip", "job_path", "format", "sheet",
                 "encoding", "delimiter")  # fmt: skip
        row_options = {name: kwargs.pop(name) for name in names}
        row_options["limit"] = kwargs.pop("row_limit")
        row_options["mapping"] = _parse_mapping(kwargs.pop("assignments")) or None
        return command(*args, row_options=row_options, **kwargs)

    default_base_text = "use --base-id, --base-name or --job" if needs_base else "none"
    return add_options(
        cast("CommandFunction", wrapped_command),
        format_options,
        partial(base_options, default_text=default_base_text),
        *_MAPPING_OPTIONS,
        limit_option,
    )


def add_output_options(command: CommandFunction) -> CommandFunction:
    """Add the options for the report and the log of a command."""
    return add_options(
        command,
        option(
            "--output",
            "output_format",
            type=click.Choice(["text", "json"]),
            default="text",
            group=OUTPUT_GROUP,
            default_text="text",
            help="Format of the report on standard output.",
        ),
        option("--json", "is_json", is_flag=True, group=OUTPUT_GROUP, help="Short for --output json."),
        option(
            "--report",
            "report_path",
            type=PATH,
            metavar="FILE",
            group=OUTPUT_GROUP,
            default_text="no file",
            help="Also write the report to FILE: as an HTML page if the name ends in .html, otherwise as JSON.",
        ),
        option(
            "--quiet",
            "is_quiet",
            is_flag=True,
            group=OUTPUT_GROUP,
            help="Print no progress, and no report if the status is `ok`. Questions, --json output, and the answers of "
            "`connector status` and `connector explain` remain.",
        ),
        option(
            "-v",
            "--verbose",
            "verbosity",
            count=True,
            group=OUTPUT_GROUP,
            help="Log each run, look-up, refused request and pause that the service asked for. -vv adds "
            "requests, groups of requests, list pages and ledger writes. The log is on standard error.",
        ),
        option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            group=OUTPUT_GROUP,
            default_text="text",
            help="Format of the log on standard error.",
        ),
    )


metrics_option = option(
    "--metrics",
    "metrics_path",
    type=PATH,
    metavar="FILE",
    group=OUTPUT_GROUP,
    default_text="no file",
    help="Write the figures of the run to FILE for the monitoring tool Prometheus. The name of FILE must end in .prom.",
)


def is_job(target: Path | str) -> TypeGuard[Path]:
    """Return whether a command's argument is a job file, by its suffix."""
    return isinstance(target, Path) and target.suffix in (".yaml", ".yml")


def _parse_mapping(assignments: tuple[str, ...]) -> dict[str, str]:
    """Return the columns of the options `--map FIELD=COLUMN`, by field. Raises ConfigurationError."""
    column_by_field: dict[str, str] = {}
    for assignment in assignments:
        field, separator, column = assignment.partition("=")
        if not separator or not field.strip():
            raise ConfigurationError(
                f"--map {assignment}: write FIELD=COLUMN, for example --map email='E-mail address'. FIELD= leaves "
                "the field empty"
            )
        if field.strip() in column_by_field:
            raise ConfigurationError(f"--map {assignment}: {field.strip()} is mapped twice")
        column_by_field[field.strip()] = column
    return column_by_field
