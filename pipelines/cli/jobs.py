"""`connector init` and `schema`: a first job file, and the schema of job files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from connector.choices import FILE_FORMATS, IDENTITIES
from connector.errors import ConfigurationError
from connector.printable import is_unicode
from pipelines.cli.logs import say
from pipelines.cli.output import write_json_stdout, write_stdout

if TYPE_CHECKING:
    import pandas as pd

    from connector.jobs.draft import GuessedField
    from connector.rows import Source

_ROWS = 1000  # enough to see how a column is written; reading them takes no noticeable time

_SHOWN = 40  # characters of a sample

_REFERENCE = re.compile(r"\$\{(\w+)\}")

_PASSWORD = re.compile(r"://[^/@]*:[^@]+@")

_STYLES = {"sure": "green", "likely": "yellow", "unsure": "red"}


@click.command("init")
@click.argument("source", metavar="SOURCE", type=click.Path())
@click.option("--table", help="The table or view, if SOURCE is a database.")
@click.option("--base-id", type=click.IntRange(min=1), help="The base that the job loads into, by its id.")
@click.option("--base-name", help="The base that the job loads into, by its name.")
@click.option("--format", "file_format", type=click.Choice(["auto", *FILE_FORMATS]), help="What the file holds.")
@click.option("--sheet", metavar="SHEET", help="A workbook's sheet, by name or number; the first when not given.")
@click.option("--encoding", help="How the file's text is encoded, such as cp1252.")
@click.option("--delimiter", help="What stands between two cells: one character, or tab.")
@click.option("-o", "target", type=click.Path(path_type=Path), help="Write the job here (a new file).")
def init_command(
    source: str,
    table: str | None,
    base_id: int | None,
    base_name: str | None,
    file_format: str | None,
    sheet: str | None,
    encoding: str | None,
    delimiter: str | None,
    target: Path | None,
) -> None:
    """Look at a file or a table, guess what its columns are, and draft a job.

    SOURCE is a file, an object in a store (s3://bucket/key), a database URL, or '${NAME}' for a URL in the environment,
    where one with a password belongs. What was guessed, how surely and by which cells goes to stderr; the job goes to
    stdout or, with -o, to a new file. What is unsure is in it as a comment.
    """
    from connector.atomic_file import PartialFile
    from connector.clock import system_clock
    from connector.jobs.draft import draft_job, guess_fields, propose_cursor
    from connector.jobs.reader import load_job
    from connector.row_files import own_columns
    from connector.stores import is_store_url

    if target is not None and (target.exists() or not target.absolute().parent.is_dir()):
        raise ConfigurationError(f"-o {target}: name a new file, in a folder that exists; nothing is overwritten")
    if target is not None and target.suffix not in (".yaml", ".yml"):
        raise ConfigurationError(f"-o {target}: a job file's name ends in .yaml")
    if (base_id is None) == (base_name is None):
        raise ConfigurationError("name the base that the job loads into: either --base-id N or --base-name NAME")
    base = ("id", str(base_id)) if base_id is not None else ("name", base_name or "")
    given = {"format": file_format, "sheet": sheet, "encoding": encoding, "delimiter": delimiter}
    said = {key: word for key, word in given.items() if word is not None}
    is_table = ("://" in source and not is_store_url(source)) or _REFERENCE.fullmatch(source) is not None
    with _open_table(source, table) if is_table else _open_file(source, table, said) as opened:
        frame, columns = _read_beginning(opened), own_columns(opened.columns)
    guesses = guess_fields(frame[list(columns)], system_clock().now().date())
    _show(guesses, len(frame))
    path = target if target is not None else Path("job.yaml")
    if is_table:
        place = [("sql", ""), ("url", source), ("table", table or "")]
    else:
        place = [("file", ""), ("path", _shorten(source, path.absolute().parent)), *said.items()]
    name = path.stem if target is not None else table or Path(source).stem
    sure = [guess for guess in guesses if guess.sureness != "unsure"]
    identity = next((each for each in IDENTITIES if each in {guess.name for guess in sure}), None)
    if identity is None:
        raise ConfigurationError(
            "no column looks like email addresses or client_user_ids, and a job needs one of them to identify "
            "subscribers: no job was drafted"
        )
    used = {column for guess in sure for column in guess.rule.columns}
    unmapped = [column for column in columns if column not in used]
    cursor = propose_cursor(frame) if is_table else None
    text = draft_job(name, path.name, place, base, identity, guesses, unmapped, cursor)
    if target is None:
        write_stdout(text, is_file=True)
        return
    if not is_unicode(text):
        raise ConfigurationError(
            f"-o {target}: the name is not in UTF-8, and the job's name in the file is: write to another file"
        )
    with PartialFile(target, mode=0o644) as partial:  # one that finds no room leaves no half of a job behind
        partial.file.write(text.encode())
        partial.put_in_free_place()
    load_job(target, os.environ)  # to see that the job can be loaded
    say(f"connector: wrote {target}; try it: connector validate {target}")


def _shorten(source: str, folder: Path) -> str:
    """Return the path of a file as a job in the folder names it: relative if the file is in the folder."""
    from connector.stores import is_store_url

    if is_store_url(source):
        return source
    path = Path(source).absolute()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _open_file(source: str, table: str | None, said: Mapping[str, str]) -> Source:
    from connector.jobs.arguments import build_file_source, spell_option
    from connector.jobs.build import open_file_source
    from connector.sources.inputs import STANDARD_INPUT

    if table is not None:
        raise ConfigurationError("--table is for a database, and SOURCE is a file")
    if source == STANDARD_INPUT:
        raise ConfigurationError("a job reads its source again and again: name a file, not standard input")
    return open_file_source(build_file_source(source, said, spell=spell_option))


def _open_table(source: str, table: str | None) -> Source:
    from connector.sources.sql import open_sql

    found = _REFERENCE.fullmatch(source)
    if found is None and _PASSWORD.search(source):
        raise ConfigurationError(
            "SOURCE holds a password, which would show in process lists and stand in the job: put the URL into the "
            "environment, and write its name as SOURCE, such as '${CRM_URL}'"
        )
    if found is not None and found[1] not in os.environ:
        raise ConfigurationError(f"{source} is not set in the environment; set {found[1]} and run again")
    if table is None:
        raise ConfigurationError("name the table of the database: --table NAME")
    return open_sql(os.environ[found[1]] if found is not None else source, table=table)


def _read_beginning(source: Source) -> pd.DataFrame:
    """Up to a thousand rows; those that cannot be read as rows are left out. What there is to say of them is said."""
    for chunk in source.chunks():
        for message in chunk.messages:
            say(message)
        if len(chunk.frame):
            return chunk.frame.head(_ROWS)
    raise ConfigurationError(f"{source.name} has no rows: there is nothing to guess from")


def _show(guesses: Sequence[GuessedField], rows: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from connector.jobs.draft import write_rule
    from connector.plurals import count
    from pipelines.report.console import PlainConsole
    from pipelines.report.text import show_value

    table = Table("field", "how", "sure?", "why", "such as", title=f"guessed from {count(rows, 'row')}")
    for guess in guesses:
        samples = "\n".join(show_value(sample, _SHOWN) for sample in guess.samples)
        sureness = Text(guess.sureness, style=_STYLES[guess.sureness])
        table.add_row(guess.name, Text(write_rule(guess.rule)), sureness, Text(guess.reason), Text(samples))
    PlainConsole(stderr=True).print(table)


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of a job file, so that an editor completes and checks one.

    Write it beside your jobs (`connector schema > job.schema.json`) and begin them with
    `# yaml-language-server: $schema=job.schema.json`.
    """
    from connector.jobs.schema import build_schema

    write_json_stdout(build_schema())
