"""`connector init` and `schema`: write the job file of a source, and print the JSON Schema of job files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from connector.choices import IDENTITY_FIELDS
from connector.errors import ConfigurationError
from connector.texts import is_unicode
from pipelines.cli.help import Command, option
from pipelines.cli.logs import show_message
from pipelines.cli.options import OUTPUT_GROUP, PATH, base_options, format_options
from pipelines.cli.output import get_clock, write_json_stdout, write_stdout

if TYPE_CHECKING:
    import pandas as pd

    from connector.jobs.draft import GuessedField
    from connector.rows import Source

_MAX_ROWS = 1000  # rows that are read to guess the mapping; reading 1,000 rows takes no noticeable time

_SAMPLE_LENGTH = 40  # characters of a sample cell that the table of guesses shows

_VARIABLE_REFERENCE_PATTERN = re.compile(r"\$\{(\w+)\}")

_URL_PASSWORD_PATTERN = re.compile(r"://[^/@]*:[^@]+@")

_STYLE_BY_CONFIDENCE = {"sure": "green", "likely": "yellow", "unsure": "red"}


@click.command("init", cls=Command)
@click.argument("source", metavar="SOURCE", type=click.Path())
@format_options
@option(
    "--table",
    metavar="NAME",
    group="Database",
    default_text="none; required for a database",
    help="Table or view to read, if SOURCE is a database.",
)
@partial(base_options, default_text="use --base-id or --base-name")
@option(
    "-o",
    "job_path",
    type=PATH,
    metavar="FILE",
    group=OUTPUT_GROUP,
    default_text="standard output",
    help="Write the job to this new file. The name ends in .yaml.",
)
def init_command(
    source: str,
    table: str | None,
    base_id: int | None,
    base_name: str | None,
    job_path: Path | None,
    **file_options: str | None,
) -> None:
    """Write a job file that maps the columns of a source.

    SOURCE is a file, an object such as s3://bucket/people.csv, or a database URL. If the URL has a password, put the
    URL into an environment variable and write '${NAME}' as SOURCE.

    The command guesses which column fills which field, and shows its guesses and their reasons on standard error. In
    the job file, unsure guesses are comments. Check the job with `connector validate`.
    """
    from connector.atomic_file import PartialFile
    from connector.jobs.draft import draft_job, guess_fields, propose_cursor
    from connector.jobs.reader import load_job
    from connector.runs.rejects import select_source_columns
    from connector.stores import is_store_url

    if job_path is not None and (job_path.exists() or not job_path.absolute().parent.is_dir()):
        raise ConfigurationError(
            f"-o {job_path}: name a new file in a folder that exists. The command overwrites no file"
        )
    if job_path is not None and job_path.suffix not in (".yaml", ".yml"):
        raise ConfigurationError(f"-o {job_path}: name a file that ends in .yaml")
    if (base_id is None) == (base_name is None):
        problem_text = "No base given" if base_id is None else "Two bases given"
        raise ConfigurationError(f"{problem_text}. Use --base-id N or --base-name NAME")
    base = ("id", str(base_id)) if base_id is not None else ("name", base_name or "")
    option_values = {key: value for key, value in file_options.items() if value is not None}
    is_table_source = ("://" in source and not is_store_url(source)) or _VARIABLE_REFERENCE_PATTERN.fullmatch(
        source
    ) is not None
    with _open_table(source, table) if is_table_source else _open_file(source, table, option_values) as rows:
        frame, columns = _read_beginning(rows), select_source_columns(rows.columns)
    guesses = guess_fields(frame[list(columns)], get_clock().now().date())
    _show_guesses(guesses, len(frame))
    path = job_path if job_path is not None else Path("job.yaml")
    if is_table_source:
        source_keys = [("sql", ""), ("url", source), ("table", table or "")]
    else:
        source_path = _format_source_path(source, path.absolute().parent)
        source_keys = [("file", ""), ("path", source_path), *option_values.items()]
    job_name = path.stem if job_path is not None else table or Path(source).stem
    mapped_guesses = [guess for guess in guesses if guess.confidence != "unsure"]
    identity_field = next(
        (field for field in IDENTITY_FIELDS if field in {guess.name for guess in mapped_guesses}), None
    )
    if identity_field is None:
        raise ConfigurationError(
            "no job was written: no column seems to contain email addresses or client_user_ids, and a job needs such a "
            "column to identify subscribers"
        )
    used_columns = {column for guess in mapped_guesses for column in guess.rule.columns}
    unmapped_columns = [column for column in columns if column not in used_columns]
    cursor = propose_cursor(frame) if is_table_source else None
    job_text = draft_job(job_name, path.name, source_keys, base, identity_field, guesses, unmapped_columns, cursor)
    if job_path is None:
        write_stdout(job_text, is_file_content=True)
        return
    if not is_unicode(job_text):
        raise ConfigurationError(
            f"-o {job_path}: the name is not in UTF-8, and the job file would contain the name. Name another file"
        )
    with PartialFile(job_path, mode=0o644) as partial_file:  # leaves no incomplete file if the disk is full
        partial_file.file.write(job_text.encode())
        partial_file.publish(must_be_new=True)
    load_job(job_path, os.environ)  # raises an error if the new job file is not valid
    show_message(f"connector: wrote {job_path}. To check the job, run: connector validate {job_path}")


def _format_source_path(source: str, folder: Path) -> str:
    """Return the path of the source for a job file in this folder: relative if the source is in the folder, otherwise
    absolute."""
    from connector.stores import is_store_url

    if is_store_url(source):
        return source
    path = Path(source).absolute()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _open_file(source: str, table: str | None, option_values: Mapping[str, str]) -> Source:
    from connector.jobs.arguments import build_file_source, format_option
    from connector.jobs.build import open_file_source
    from connector.sources.inputs import STANDARD_INPUT

    if table is not None:
        raise ConfigurationError("--table is for a database, and SOURCE is a file. Leave out --table")
    if source == STANDARD_INPUT:
        raise ConfigurationError(
            "a job cannot read standard input, because each run reads the source again. Name a file"
        )
    return open_file_source(build_file_source(source, option_values, format_argument=format_option))


def _open_table(source: str, table: str | None) -> Source:
    from connector.sources.sql import open_sql

    variable_reference = _VARIABLE_REFERENCE_PATTERN.fullmatch(source)
    if variable_reference is None and _URL_PASSWORD_PATTERN.search(source):
        raise ConfigurationError(
            "SOURCE contains a password, which process lists and the job file would show. Put the URL into an "
            "environment variable, and write the variable as SOURCE, such as '${CRM_URL}'"
        )
    if variable_reference is not None and variable_reference[1] not in os.environ:
        raise ConfigurationError(f"{source} is not set in the environment; set {variable_reference[1]} and run again")
    if table is None:
        raise ConfigurationError("No table given. Name the table of the database with --table NAME")
    return open_sql(os.environ[variable_reference[1]] if variable_reference is not None else source, table=table)


def _read_beginning(source: Source) -> pd.DataFrame:
    """Return up to 1,000 rows, without records that cannot be read as rows. Show the messages of the source."""
    for chunk in source.read_chunks():
        for message in chunk.messages:
            show_message(message)
        if len(chunk.frame):
            return chunk.frame.head(_MAX_ROWS)
    raise ConfigurationError(f"{source.name} has no rows, so the mapping cannot be guessed. Name a source with rows")


def _show_guesses(guesses: Sequence[GuessedField], row_count: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from connector.jobs.draft import format_rule
    from connector.texts import count
    from pipelines.report.console import PlainConsole
    from pipelines.report.text import format_cell

    table = Table("field", "how", "sure?", "why", "such as", title=f"guessed from {count(row_count, 'row')}")
    for guess in guesses:
        samples = "\n".join(format_cell(sample, _SAMPLE_LENGTH) for sample in guess.samples)
        confidence = Text(guess.confidence, style=_STYLE_BY_CONFIDENCE[guess.confidence])
        table.add_row(guess.name, Text(format_rule(guess.rule)), confidence, Text(guess.reason), Text(samples))
    PlainConsole(stderr=True).print(table)


@click.command("schema", cls=Command)
def schema_command() -> None:
    """Print the JSON Schema of job files, for editors.

    With the schema, an editor completes and checks job files. In the folder of your jobs, run:

    \b
      connector schema > job.schema.json

    Then begin each job with this line:

    \b
      # yaml-language-server: $schema=job.schema.json
    """
    from connector.jobs.schema import build_schema

    write_json_stdout(build_schema())
