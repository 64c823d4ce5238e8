"""Write the pages of the reference that come from the code: commands, job keys, fields, files, switches, library.

`python docs/generate_reference.py` writes the pages. A test fails if a page is out of date.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import click

import connector
from connector.fields import FIELD_BY_NAME, FIELDS, find_wire_name
from connector.jobs import models
from connector.jobs.mail_models import MessageFile
from connector.jobs.schema import JobKey, list_keys
from connector.runs.explanations import Explanation
from connector.runs.report import OPTIONAL_REPORT_KEYS, Report
from connector.runs.report_keys import (
    CheckedRowCounts,
    ErrorReport,
    ExportRowCounts,
    LoadRowCounts,
    MailRowCounts,
)
from connector.runs.row_files import DRIFT_COLUMNS
from connector.sandbox.switches import list_switches
from connector.warehouse.columns import RUN_COLUMN_DESCRIPTIONS, SCHEMA
from connector.warehouse.database import ColumnKind
from connector.warehouse.duckdb import DuckdbDatabase
from connector.warehouse.receipts import RECEIPT_COLUMNS
from connector.warehouse.runs import RUNS_TABLE, WriteMode
from connector.warehouse.servers import MysqlDatabase, PostgresDatabase
from connector.warehouse.sqlite import SqliteDatabase
from connector.warehouse.statements import MODE_COLUMNS, RUN_COLUMNS, Column, read_kinds
from pipelines.cli import cli
from pipelines.cli.ledger import LedgerReport
from pipelines.cli.runs import PruneReport
from pipelines.flows.check import CheckReport
from pipelines.flows.forget import ForgetReport
from pipelines.flows.status import StatusReport
from pipelines.flows.validate import VALIDATION_KEYS, ValidationReport
from pipelines.report.differences import DIFFERENCE_COLUMNS, DifferencesReport

FOLDER = Path(__file__).parent / "reference"
_HELP_WIDTH = 78  # characters: click leaves two columns of a terminal empty
_MODULE_PREFIX_PATTERN = re.compile(r"(?:\w+\.)+(?=\w)")
_GENERATED_NOTE = "<!-- written by docs/generate_reference.py -->"


def build_pages() -> dict[str, str]:
    """Return the text of each page, by its file's name."""
    fields = [(f"`{field.name}`", find_wire_name(field), field.kind.value, field.valid_values_text) for field in FIELDS]
    switches = [
        (f"`{switch.name}`", f"`{switch.default}`", switch.allowed_values, switch.help) for switch in list_switches()
    ]
    return {
        "commands.md": _build_page(
            "Commands",
            "This page is for you if you want every option. It has the help of each command, as `connector COMMAND "
            "--help` shows it on a terminal of 80 columns. An option that takes no value is off by default. Durations "
            "have a unit: `500ms`, `30s`, `10m`, `2h`, `90d`. [Outputs](outputs.md) shows what the commands print.",
            *_describe_commands(
                click.Context(cli, info_name="connector", terminal_width=_HELP_WIDTH, **cli.context_settings)
            ),
        ),
        "job-file.md": _build_page(
            "Keys of a job file",
            "This page is for you if you write a job. A job is a YAML file. Paths are relative to the file. `${NAME}` "
            "stands for the environment variable `NAME`. A duration has a unit, such as `500ms`, `30s`, `10m` or `2h`. "
            "A share is a percentage, such as `5%`. `configs/annotated.yaml` of the checkout has each key with an "
            "example. `connector schema` prints a JSON Schema. With "
            "`# yaml-language-server: $schema=job.schema.json` as the first line of a job, an editor completes and "
            "checks the job.",
            _build_key_table(list_keys()),
        ),
        "message-file.md": _build_page(
            "Keys of a message file",
            "This page is for you if you send a message from a file: `connector send message.yaml` (or JSON).",
            _build_key_table(list_keys(MessageFile)),
        ),
        "fields.md": _build_page(
            "Fields of a subscriber",
            "This page is for you if you map columns. DataFrames and tables use the same names.",
            _build_table(("field", "in the service", "type", "rule"), fields),
        ),
        "files.md": _build_page(
            "Files of a run",
            "This page is for you if you read the files that a run leaves. The rejects file has the columns "
            "of the source, and the columns that [Correct rejected rows](../how-to/rejects.md) describes.",
            "## The drift file\n",
            _build_column_table(DRIFT_COLUMNS),
            "## Differences of `reconcile`\n",
            _build_column_table(DIFFERENCE_COLUMNS),
        ),
        "tables.md": _build_page(
            "Tables of exports and receipts",
            "This page is for you if you query exported tables or receipts. A table has the columns of the "
            "[fields](fields.md), the columns of the run, and the columns of its mode. "
            "[Export](../how-to/export.md) explains the modes and their primary keys.",
            *_describe_tables(),
        ),
        "report.md": _build_page(
            "Reports and exit codes",
            "This page is for you if a program or a dashboard reads the results of runs. `--output json`, or "
            "`--json` for short, prints the report as one JSON object. `--report FILE` writes the report to a file: as "
            "an HTML page if the name ends in `.html`, otherwise as JSON. Each run also keeps its report in "
            "`runs/` of the state folder.",
            *_describe_reports(),
        ),
        "sandbox.md": _build_page(
            "Switches of the sandbox",
            "This page is for you if you want to see what a job does when the service misbehaves. Set a switch by "
            "`connector sandbox --set name=value`, or by hand on the sandbox's page in a browser.",
            _build_table(("switch", "default", "values", "effect"), switches),
        ),
        "library.md": _build_page(
            "Library",
            "This page is for you if you work in Python: a script, a notebook, an orchestrator. The page lists all "
            "public classes and functions. [Python](../how-to/library.md) shows how to combine them. Each example runs "
            "as printed, with `CONNECTOR_BASE_URL` and `CONNECTOR_TOKEN` in the environment.",
            *_describe_library(),
        ),
    }


def _build_page(title: str, introduction: str, *parts: str) -> str:
    return "\n".join([_GENERATED_NOTE, f"# {title}\n", f"{introduction}\n", *parts])


def _build_key_table(keys: Sequence[JobKey]) -> str:
    rows = [(f"`{key.key}`", key.type, *describe_default(key)) for key in keys]
    return _build_table(("key", "type", "default", "meaning"), rows)


def describe_default(key: JobKey) -> tuple[str, str]:
    """Return the default of a key as a text, and the description of the key without the sentence about the default. If
    the models have no default, return "" as the default."""
    key_match = _DEFAULT_SENTENCE_REGEX.search(key.description)
    description = key.description.replace(key_match[0], "") if key_match else key.description
    if key.is_required:
        return "required", description
    if key.default:
        return f"`{key.default}`", description
    if key_match is None and _ALTERNATIVE_KEYS_REGEX.search(description):
        return "none", description
    return key_match[1] if key_match else "", description


_DEFAULT_SENTENCE_REGEX = re.compile(r" Without this key(?:,|:) (.*)\.$")
# Matches the description of a key that excludes other keys, such as `file` and `sql`. Such a key has no default.
_ALTERNATIVE_KEYS_REGEX = re.compile(r"\bSet (?:either|one of)\b")


def _describe_tables() -> Iterator[str]:
    """Yield the columns of exported tables and of `_connector_runs`, with their types in each database."""
    dialects = [
        PostgresDatabase.dialect, MysqlDatabase.dialect, SqliteDatabase.dialect, DuckdbDatabase.dialect
    ]  # fmt: skip
    column_titles = ("column", "PostgreSQL", "MySQL, MariaDB", "SQLite", "DuckDB")

    def format_row(name: str, kind: ColumnKind) -> list[str]:
        return [f"`{name}`", *(dialect.type_by_kind[kind].partition(" CHARACTER SET")[0] for dialect in dialects)]

    kind_by_field = {name: kind for name, kind in read_kinds(SCHEMA).items() if name not in RUN_COLUMN_DESCRIPTIONS}
    yield "## Fields\n"
    yield _build_table(
        (*column_titles, "Parquet", "meaning"),
        [
            [*format_row(name, kind), _format_type(name), FIELD_BY_NAME[name].valid_values_text]
            for name, kind in kind_by_field.items()
        ],
    )
    yield (
        "An empty field is an empty text if the service returns an empty text, and NULL if the service returns null. "
        "Times are in UTC. In SQLite, a time is an ISO 8601 text and a list is a JSON array. A database that is not in "
        "the table has the types of its SQLAlchemy dialect, and stores a list as a JSON text.\n"
    )
    yield "## Columns of the run\n"
    kind_by_run_column = {name: kind for name, kind in read_kinds(SCHEMA).items() if name in RUN_COLUMN_DESCRIPTIONS}
    yield _build_table(
        (*column_titles, "Parquet", "meaning"),
        [
            [*format_row(name, kind), _format_type(name), RUN_COLUMN_DESCRIPTIONS[name]]
            for name, kind in kind_by_run_column.items()
        ],
    )
    for mode in (WriteMode.UPSERT, WriteMode.HISTORY):
        yield f"## Further columns with `--mode {mode}`\n"
        yield _describe_columns(column_titles, MODE_COLUMNS[mode], format_row)
    yield f"## {RUNS_TABLE}\n"
    yield "The table has one row for each export. It is in the same database schema as the exported table.\n"
    yield _describe_columns(column_titles, RUN_COLUMNS, format_row)
    yield "## Receipts\n"
    yield (
        "The table of [receipts](../how-to/unattended.md#a-receipt-for-each-subscriber) has one row for each "
        "subscriber that a run created, found changed, rejected, held or left unknown. Files of receipts have the same "
        "columns.\n"
    )
    yield _describe_columns(column_titles, RECEIPT_COLUMNS, format_row)


def _format_type(name: str) -> str:
    return str(SCHEMA.field(name).type).replace("list<item: string>", "list of string")


def _describe_columns(
    column_titles: Sequence[str], columns: Mapping[str, Column], format_row: Callable[[str, ColumnKind], list[str]]
) -> str:
    rows = [[*format_row(name, column.kind), column.description] for name, column in columns.items()]
    return _build_table((*column_titles, "meaning"), rows)


def _build_column_table(columns: Mapping[str, str]) -> str:
    return _build_table(("column", "meaning"), [(f"`{name}`", description) for name, description in columns.items()])


def _describe_commands(context: click.Context) -> Iterator[str]:
    """Yield the help of a command for a terminal of 80 columns. If the command is a group, also yield the help of the
    commands in the group."""
    command = context.command
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        subcommand = command.get_command(context, name)
        if subcommand is not None:
            yield from _describe_commands(
                click.Context(subcommand, info_name=name, parent=context, terminal_width=_HELP_WIDTH)
            )


@dataclass(frozen=True)
class ReportKey:
    """One key of a report. In `key`, `[]` stands for an item of a list, and `*` for any name.

    `default` is "left out" if the key may be missing in the JSON, and "always" if the key always has content.
    Otherwise, `default` is the JSON value of a key without content, such as `null`.
    """

    key: str
    type: str
    default: str
    description: str


def list_report_keys(model: type, prefix: str = "") -> Iterator[ReportKey]:
    """Yield the report keys of a dataclass or TypedDict. The keys of a nested object follow the key of the object.

    Each field is annotated with the description of its key. If the JSON has another type than the field, the annotation
    also has the type in JSON.
    """
    type_hints = get_type_hints(model, include_extras=True)
    field_by_name = {item.name: item for item in fields(model)} if is_dataclass(model) else {}
    for name, type_hint in type_hints.items():
        if name == "scope":
            yield from list_report_keys(get_args(type_hint)[0])
        if name in _UNREPORTED_FIELDS:
            continue
        value_type, description = type_hint, ""
        if get_origin(type_hint) is Annotated:
            value_type, description, *json_types = get_args(type_hint)
            value_type = json_types[0] if json_types else value_type
        is_optional = name in _OPTIONAL_KEYS_BY_MODEL.get(model, ()) or name in vars(model).get("__optional_keys__", ())
        if get_origin(value_type) is NotRequired:
            value_type, is_optional = get_args(value_type)[0], True
        key, type_text = f"{prefix}{_JSON_KEY_BY_FIELD.get(name, name)}", _format_json_type(value_type)
        if is_optional:
            yield ReportKey(
                key, type_text.removesuffix(", or null") if model is Report else type_text, "left out", description
            )
        else:
            yield ReportKey(key, type_text, _format_default(field_by_name.get(name), value_type), description)
        path, object_model = _find_object(value_type)
        if object_model is not None:
            yield from list_report_keys(object_model, f"{key}{path}.")


_OPTIONAL_KEYS_BY_MODEL: Mapping[type, frozenset[str]] = {Report: frozenset((*OPTIONAL_REPORT_KEYS, "is_planned"))}
"""The fields of a class that have no key in the JSON of some reports."""
_UNREPORTED_FIELDS = ("scope", "reconciled", "signal", "unlisted_ids", "unshown_groups")
"""Fields that have no key of their own in a report."""

_JSON_KEY_BY_FIELD = {"is_planned": "planned"}
_JSON_TYPE_BY_TYPE = {
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    str: "text",
    datetime: "ISO 8601 time",
}


def _format_default(field: Any, value_type: Any) -> str:
    if field is None or (field.default is MISSING and field.default_factory is MISSING):
        return "always"
    value = field.default if field.default is not MISSING else field.default_factory()
    if isinstance(value, dict) and value:
        return "each number `0`"
    return "`{}`" if value == () and get_origin(value_type) is dict else f"`{json.dumps(value)}`"


def _format_json_type(value_type: Any) -> str:
    """Return a description of the type of a value, with the allowed texts."""
    value_types = (
        [part for part in get_args(value_type) if part is not NoneType]
        if NoneType in get_args(value_type)
        else [value_type]
    )
    if len(value_types) > 1:
        return " or ".join(
            map(_format_json_type, [*value_types, *([None] if NoneType in get_args(value_type) else [])])
        )
    non_null_type, origin = value_types[0], get_origin(value_types[0])
    if origin is Literal:
        type_text = ", ".join(f"`{json.dumps(value)}`".replace('"', "") for value in get_args(non_null_type))
    elif isinstance(non_null_type, type) and issubclass(non_null_type, StrEnum):
        type_text = ", ".join(f"`{value}`" for value in non_null_type)
    elif origin is list:
        type_text = f"list of {_format_plural(get_args(non_null_type)[0])}"
    elif origin in (dict, Mapping):
        type_text = f"object of {_format_plural(get_args(non_null_type)[1])}"
    elif is_typeddict(non_null_type) or is_dataclass(non_null_type):
        type_text = "object"
    else:
        type_text = _JSON_TYPE_BY_TYPE[non_null_type]
    return f"{type_text}, or null" if NoneType in get_args(value_type) else type_text


_PLURAL_BY_TYPE: dict[Any, str] = {
    int: "whole numbers",
    float: "numbers",
    float | None: "numbers and nulls",
    str: "texts",
    list[Any]: "lists",
    list[int]: "lists of whole numbers",
    Any: "values",
    object: "values",
    bool | None: "settings",
    bool | str | None: "settings",
}


def _format_plural(value_type: Any) -> str:
    is_object = is_typeddict(value_type) or is_dataclass(value_type) or get_origin(value_type) is dict
    return "objects" if is_object else _PLURAL_BY_TYPE[value_type]


def _find_object(value_type: Any) -> tuple[str, type | None]:
    """Return two facts about a type: the path from a value of this type to its innermost JSON objects, and the class
    that describes these objects.

    The path has `[]` for each list and `.*` for each mapping. If the value has no objects, the class is None.
    """
    if is_typeddict(value_type) or is_dataclass(value_type):
        return "", value_type
    origin, arguments = get_origin(value_type), get_args(value_type)
    if origin is list:
        inner_path, object_model = _find_object(arguments[0])
        return f"[]{inner_path}", object_model
    if origin in (dict, Mapping):
        inner_path, object_model = _find_object(arguments[1])
        return f".*{inner_path}", object_model
    return next((_find_object(part) for part in arguments if _find_object(part)[1] is not None), ("", None))


COUNTS_MODEL_BY_COMMANDS = {
    "`import`, `sync`, `plan` and `retry`, in the order in which the outcome is decided:": LoadRowCounts,
    "`mail` and `send`:": MailRowCounts,
    "`export`:": ExportRowCounts,
    "`validate` and `reconcile`:": CheckedRowCounts,
}
"""The keys of `rows` by the commands that have them."""

REPORTS: Mapping[str, tuple[type, str]] = {
    "Keys of a run": (
        Report,
        (
            "`import`, `sync`, `plan`, `retry`, `export`, `reconcile`, `mail` and `send` have these keys. In the "
            "names, `[]` stands for an item of a list, and `*` for any name. The default is the value of a key if "
            "the run has nothing to report under this key. Some keys are left out instead."
        ),
    ),
    "Further keys of `reconcile`": (
        DifferencesReport,
        "`reconcile` also has these keys if it compared the source with the list.",
    ),
    "`validate`": (
        ValidationReport,
        f"`validate` has these keys of a run: {', '.join(f'`{key}`' for key in VALIDATION_KEYS)}. It also has:",
    ),
    "`check`": (CheckReport, "The JSON of `check` has one item for each check."),
    "`status`": (
        StatusReport,
        "The JSON of `status` has the reports of runs, the open entries of the ledger, and the open problems.",
    ),
    "`explain`": (
        Explanation,
        "The JSON of `explain` has an entry for each base in which the ledger has the subscriber.",
    ),
    "`forget`": (ForgetReport, "The JSON of `forget` has the number of deleted entries."),
    "`ledger backup`, `ledger copy` and `ledger restore`": (LedgerReport, "The three commands have these keys:"),
    "`prune`": (PruneReport, "The JSON of `prune` lists the files that the command deleted."),
    "Errors": (
        ErrorReport,
        (
            "If a command could not begin, the JSON has these two keys. `connector status` also shows jobs that could "
            "not begin."
        ),
    ),
}
"""The reports by the titles of their sections, each with a sentence."""

_EXIT_CODES = {
    "0": "All is well.",
    "1": "Partial: rows are invalid, rejected or unknown; subscribers opted out and are still active; a certificate is "
    "incomplete; `validate` found invalid rows; or `reconcile` found differences. With `fail_on: new`, rows and "
    "opt-outs count only if their problem is new.",
    "2": "Wrong usage or configuration, found before any create, or a token that the service refused.",
    "3": "Aborted: a guard stopped the run, or the service or a database failed temporarily, for example because a "
    "server refuses connections. Run the command again.",
    "4": "Another run holds the lock.",
    "130, 143": "Stopped by SIGINT, SIGTERM or SIGHUP. The answers to all open requests are recorded.",
}


def _describe_reports() -> Iterator[str]:
    """Yield the parts of the page of reports."""
    for title, (model, text) in REPORTS.items():
        yield f"## {title}\n\n{text}\n"
        yield _build_report_keys(model)
        if model is Report:
            yield "## Outcomes of a row\n\nThe keys of `rows`, each with a number of rows.\n"
            for commands, rows_model in COUNTS_MODEL_BY_COMMANDS.items():
                yield f"{commands}\n"
                rows = [(f"`{key.key}`", key.description) for key in list_report_keys(rows_model)]
                yield _build_table(("key", "meaning"), rows)
    yield "## Exit codes\n"
    yield _build_table(("code", "meaning"), list(_EXIT_CODES.items()))


def _build_report_keys(model: type) -> str:
    rows = [(f"`{key.key}`", key.type, key.default, key.description) for key in list_report_keys(model)]
    return _build_table(("key", "type", "default", "meaning"), rows)


def _describe_library() -> Iterator[str]:
    """Yield `Connector` with its methods, each public function of `connector` with its docstring, and then the
    types."""
    facade = connector.Connector
    yield f"## connector.Connector\n\n```text\n{_format_signature(facade)}\n```\n\n{_format_examples(facade)}"
    public_objects = {f"connector.{name}": getattr(connector, name) for name in sorted(connector.__all__)}
    public_objects["connector.jobs.models.Job"] = models.Job
    functions = {f"Connector.{name}": method for name, method in vars(facade).items() if not name.startswith("_")}
    functions |= {name: function for name, function in public_objects.items() if inspect.isfunction(function)}
    for name, function in functions.items():
        yield f"## {name}\n\n```text\n{_format_signature(function)}\n```\n\n{_format_examples(function)}"
    for name, value in public_objects.items():
        if inspect.isclass(value) and value is not facade:
            yield f"## {name}\n\n{_describe_type(value)}"


def _format_signature(function: Callable[..., object]) -> str:
    """Return a signature with one parameter a line. Keywords that come from a TypedDict are optional and are shown as
    `= ...`, because only the docstring of the TypedDict has their defaults."""
    signature = inspect.signature(function)
    module_namespace = vars(inspect.getmodule(function))
    lines, is_keyword = list[str](), False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        lines += ["*"] if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword else []
        is_keyword = parameter.kind is parameter.KEYWORD_ONLY
        if parameter.kind is parameter.VAR_KEYWORD:
            keywords = module_namespace[parameter.annotation.removeprefix("Unpack[").removesuffix("]")].__annotations__
            lines += [f"{name}: {value_type.__forward_arg__} = ..." for name, value_type in keywords.items()]
            continue
        default_text = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"{parameter.name}: {parameter.annotation}{default_text}")
    indented_lines = [f"    {line}," for line in lines]
    signature_end = ")" if inspect.isclass(function) else f") -> {signature.return_annotation}"
    return "\n".join([f"{function.__name__}(", *indented_lines, signature_end])


def _format_examples(function: object) -> str:
    """Return the docstring of an object, with its example as a code block."""
    text, marker, example = (inspect.getdoc(function) or "").partition("\n>>> ")
    return f"{text.rstrip()}\n" + (f"\n```pycon\n{marker.lstrip()}{example}\n```\n" if marker else "")


def _describe_type(described_class: type) -> str:
    """Return the docstring of a class, the fields of a dataclass, and the methods and properties with a docstring."""
    parts = [_format_examples(described_class)]
    if is_dataclass(described_class):
        rows = []
        for item in fields(described_class):
            is_described = get_origin(item.type) is Annotated
            declared_type, description = get_args(item.type)[:2] if is_described else (item.type, "")
            rows.append(
                (
                    f"`{item.name}`",
                    f"`{_MODULE_PREFIX_PATTERN.sub('', inspect.formatannotation(declared_type))}`",
                    description,
                )
            )
        is_any_described = any(description for _, _, description in rows)
        width = 3 if is_any_described else 2
        parts.append(_build_table(("field", "type", "meaning")[:width], [row[:width] for row in rows]))
        members = {name: value for name, value in vars(described_class).items() if not name.startswith("_")}
        parts += [
            f"`{name}`: {inspect.getdoc(value)}\n"
            for name, value in members.items()
            if inspect.isfunction(value) or isinstance(value, property)
        ]
    return "\n".join(parts)


def _build_table(column_titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [column_titles, ["---"] * len(column_titles), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    for name, text in build_pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
