"""`connector schema`: the JSON Schema of a job file."""

import click

from pipelines.commands.stdout import write_json, write_stdout


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of a job file, so that an editor completes and checks one.

    Write it beside your jobs (`connector schema > job.schema.json`) and begin them with
    `# yaml-language-server: $schema=job.schema.json`.
    """
    from pipelines.jobs import build_schema

    write_stdout(write_json(build_schema()) + "\n")
