"""Write the pages of the reference that come from the code: commands, job keys, fields, files, switches, library.

`python docs/generate_reference.py` writes them; a test fails when a page is behind.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path

import click

import connector
from connector.fields import FIELDS, wire_name
from connector.jobs import models
from connector.jobs.mail_models import MessageFile
from connector.jobs.schema import JobKey, list_keys
from connector.runs.row_files import COLUMNS
from connector.sandbox.switches import list_switches
from connector.warehouse.columns import RUN_MEANINGS, SCHEMA
from connector.warehouse.database import ColumnKind
from connector.warehouse.duckdb import DuckdbDatabase
from connector.warehouse.runs import RUNS, Mode
from connector.warehouse.servers import MysqlDatabase, PostgresDatabase
from connector.warehouse.sqlite import SqliteDatabase
from connector.warehouse.statements import MODE_COLUMNS, RUN_COLUMNS, Column, read_kinds
from pipelines.cli import cli
from pipelines.cli.help import group_options
from pipelines.report.differences import DIFFERENCE_COLUMNS

FOLDER = Path(__file__).parent / "reference"
_MODULE = re.compile(r"(?:\w+\.)+(?=\w)")
_NOTE = "<!-- written by docs/generate_reference.py -->"


def build_pages() -> dict[str, str]:
    """Return the text of each page, by its file's name."""
    fields = [(f"`{field.name}`", wire_name(field), field.kind.value, field.rule) for field in FIELDS]
    switches = [(f"`{switch.name}`", f"`{switch.default}`", switch.values, switch.help) for switch in list_switches()]
    return {
        "commands.md": _build_page(
            "Commands",
            "This page is for you if you want every option. `connector COMMAND --help` shows the same text, and "
            "`connector --version` the version. An option without a value is off by default. Durations have a unit: "
            "`500ms`, `30s`, `10m`, `2h`, `90d`. The options of the group Output may also precede the command: "
            "`connector --json status`.",
            *_describe_commands(click.Context(cli, info_name="connector"), cli),
        ),
        "job-file.md": _build_page(
            "Keys of a job file",
            "This page is for you if you write a job. A job is a YAML file. Paths are relative to the file. `${NAME}` "
            "comes from the environment. Durations are `500ms 30s 10m 2h`, shares are `5%`. `configs/annotated.yaml` "
            "of the checkout has each key with an example. `connector schema` prints a JSON Schema. With "
            "`# yaml-language-server: $schema=job.schema.json` as the first line of a job, an editor completes and "
            "checks the job.",
            _build_keys(list_keys()),
        ),
        "message-file.md": _build_page(
            "Keys of a message file",
            "This page is for you if you send a message from a file: `connector send message.yaml` (or JSON).",
            _build_keys(list_keys(MessageFile)),
        ),
        "fields.md": _build_page(
            "Fields of a subscriber",
            "This page is for you if you map columns. The names are those of DataFrames and tables, too.",
            _build_table(("field", "in the service", "type", "rule"), fields),
        ),
        "files.md": _build_page(
            "Files of a run",
            "This page is for you if you read the files that a run leaves. The rejects file has the source's "
            "columns and those of [correct rejected rows](../how-to/rejects.md).",
            "## The drift file\n",
            _build_columns(COLUMNS),
            "## Differences of `reconcile`\n",
            _build_columns(DIFFERENCE_COLUMNS),
        ),
        "tables.md": _build_page(
            "Tables of an export",
            "This page is for you if you query what an export wrote. A table has the columns of the "
            "[fields](fields.md), the columns of the run, and the columns of its mode. "
            "[Export](../how-to/export.md) explains the modes and their primary keys.",
            *_describe_tables(),
        ),
        "sandbox.md": _build_page(
            "Switches of the sandbox",
            "This page is for you if you want to see what a job does when the service misbehaves. Set a switch by "
            "`connector sandbox --set name=value`, or by hand on the sandbox's page in a browser.",
            _build_table(("switch", "default", "values", "what it does"), switches),
        ),
        "library.md": _build_page(
            "Library",
            "This page is for you if you work in Python: a script, a notebook, an orchestrator. It has all that is "
            "public; [Python](../how-to/library.md) shows how the parts go together. Each example runs as "
            "printed, with `CONNECTOR_BASE_URL` and `CONNECTOR_TOKEN` in the environment.",
            *_describe_library(),
        ),
    }


def _build_page(title: str, introduction: str, *parts: str) -> str:
    return "\n".join([_NOTE, f"# {title}\n", f"{introduction}\n", *parts])


def _build_keys(keys: Sequence[JobKey]) -> str:
    rows = [
        (f"`{key.key}`", key.type, "required" if key.is_required else _code(key.default), _sentence(key.description))
        for key in keys
    ]
    return _build_table(("key", "type", "default", "meaning"), rows)


def _code(text: str) -> str:
    return f"`{text}`" if text else "none"


def _describe_tables() -> Iterator[str]:
    """The columns of exported tables and of `_connector_runs`, with their types in each database."""
    dialects = [
        PostgresDatabase.dialect, MysqlDatabase.dialect, SqliteDatabase.dialect, DuckdbDatabase.dialect
    ]  # fmt: skip
    head = ("column", "PostgreSQL", "MySQL, MariaDB", "SQLite", "DuckDB")

    def write_row(name: str, kind: ColumnKind) -> list[str]:
        return [f"`{name}`", *(dialect.types[kind].partition(" CHARACTER SET")[0] for dialect in dialects)]

    kinds = {name: kind for name, kind in read_kinds(SCHEMA).items() if name not in RUN_MEANINGS}
    yield "## Fields\n"
    yield _build_table(
        (*head, "Parquet"), [[*write_row(name, kind), _write_type(name)] for name, kind in kinds.items()]
    )
    yield (
        "An empty field of the service is an empty text, and NULL where the service returns null. Times are in UTC. "
        "In SQLite a time is an ISO 8601 text and a list is a JSON array. In any other database, the types are those "
        "that SQLAlchemy has for it, and a list is a JSON text.\n"
    )
    yield "## Columns of the run\n"
    run_kinds = {name: kind for name, kind in read_kinds(SCHEMA).items() if name in RUN_MEANINGS}
    yield _build_table(
        (*head, "Parquet", "meaning"),
        [[*write_row(name, kind), _write_type(name), RUN_MEANINGS[name]] for name, kind in run_kinds.items()],
    )
    for mode in (Mode.UPSERT, Mode.HISTORY):
        yield f"## Further columns with `--mode {mode}`\n"
        yield _describe_columns(head, MODE_COLUMNS[mode], write_row)
    yield f"## {RUNS}\n"
    yield "The table has one row for each export, in the schema of the exported table.\n"
    yield _describe_columns(head, RUN_COLUMNS, write_row)


def _write_type(name: str) -> str:
    return str(SCHEMA.field(name).type).replace("list<item: string>", "list of string")


def _describe_columns(
    head: Sequence[str], columns: Mapping[str, Column], write_row: Callable[[str, ColumnKind], list[str]]
) -> str:
    rows = [[*write_row(name, column.kind), column.meaning] for name, column in columns.items()]
    return _build_table((*head, "meaning"), rows)


def _build_columns(columns: Mapping[str, str]) -> str:
    return _build_table(("column", "what it says"), [(f"`{name}`", meaning) for name, meaning in columns.items()])


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
    tables = [
        _build_table((group, "what it does"), [(f"`{name}`", text) for name, text in rows])
        for group, rows in group_options(command, context).items()
    ]
    text = inspect.cleandoc(command.help or "")
    return "\n\n".join([f"## {context.command_path}", f"`{usage}`", text, "\n".join(tables)])


def _describe_library() -> Iterator[str]:
    """`Connector` with its methods, each public function of `connector` with its docstring, and then the types."""
    facade = connector.Connector
    yield f"## connector.Connector\n\n```text\n{_write_signature(facade)}\n```\n\n{_show_examples(facade)}"
    public = {f"connector.{name}": getattr(connector, name) for name in sorted(connector.__all__)}
    public["connector.jobs.models.Job"] = models.Job
    functions = {f"Connector.{name}": value for name, value in vars(facade).items() if not name.startswith("_")}
    functions |= {name: value for name, value in public.items() if inspect.isfunction(value)}
    for name, value in functions.items():
        yield f"## {name}\n\n```text\n{_write_signature(value)}\n```\n\n{_show_examples(value)}"
    for name, value in public.items():
        if inspect.isclass(value) and value is not facade:
            yield f"## {name}\n\n{_describe_type(value)}"


def _write_signature(function: Callable[..., object]) -> str:
    """One parameter a line; keywords of a TypedDict are optional, and their docstring says what is meant by default."""
    signature = inspect.signature(function)
    names = vars(inspect.getmodule(function))
    lines, is_keyword = list[str](), False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        lines += ["*"] if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword else []
        is_keyword = parameter.kind is parameter.KEYWORD_ONLY
        if parameter.kind is parameter.VAR_KEYWORD:
            keywords = names[parameter.annotation.removeprefix("Unpack[").removesuffix("]")].__annotations__
            lines += [f"{name}: {kind.__forward_arg__} = ..." for name, kind in keywords.items()]
            continue
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"{parameter.name}: {parameter.annotation}{default}")
    indented = [f"    {line}," for line in lines]
    end = ")" if inspect.isclass(function) else f") -> {signature.return_annotation}"
    return "\n".join([f"{function.__name__}(", *indented, end])


def _show_examples(function: object) -> str:
    """Its docstring, with the example in a block of its own."""
    text, marker, example = (inspect.getdoc(function) or "").partition("\n>>> ")
    return f"{text.rstrip()}\n" + (f"\n```pycon\n{marker.lstrip()}{example}\n```\n" if marker else "")


def _describe_type(kind: type) -> str:
    """What it is, the fields of a dataclass, and the methods and properties that have a docstring."""
    parts = [_show_examples(kind)]
    if is_dataclass(kind):
        types = [_MODULE.sub("", inspect.formatannotation(field.type)) for field in fields(kind)]
        rows = [(f"`{item.name}`", f"`{text}`") for item, text in zip(fields(kind), types, strict=True)]
        parts.append(_build_table(("field", "type"), rows))
        members = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
        parts += [
            f"`{name}`: {inspect.getdoc(value)}\n"
            for name, value in members.items()
            if inspect.isfunction(value) or isinstance(value, property)
        ]
    return "\n".join(parts)


def _build_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    for name, text in build_pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
