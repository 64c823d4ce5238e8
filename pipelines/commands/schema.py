"""`connector schema`: the JSON Schema of a job file."""

import json

import click

from pipelines.jobs.schema import build_schema


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of a job file, so that an editor completes and checks one.

    Write it beside your jobs (`connector schema > job.schema.json`) and begin them with
    `# yaml-language-server: $schema=job.schema.json`.
    """
    click.echo(json.dumps(build_schema(), ensure_ascii=False, indent=2))
