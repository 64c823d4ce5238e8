"""Helpers for tests of jobs with several bases, which a column names."""

from collections import Counter
from pathlib import Path

from connector.fields import normalise_email
from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import write_csv

BASE_COLUMN = "{column: list, values: {news: 7, shop: 9, club: 11}}"


def write_lists(
    folder: Path, *rows: str, base: str = BASE_COLUMN, job_keys: str = "", source_path: str = "people.csv"
) -> Path:
    """Write a job for people.csv, and the rows (`email,list`) if there are any. Return the path of the job."""
    if rows:
        write_csv(folder / "people.csv", "email,list", *rows)
    job_path = folder / "job.yaml"
    job_path.write_text(
        f"job: lists\nsource: {{file: {{path: '{source_path}'}}}}\nsubscriber:\n  base: {base}\n"
        f"  fields: {{email: email, is_active: {{value: true}}}}\nload: {{quiet_period: 200ms}}\n{job_keys}",
        encoding="utf-8",
    )
    return job_path


def count_by_base(sandbox: SandboxProcess) -> Counter[tuple[int, str]]:
    """Return the number of creates of each address in each base (by id), by the truth log of the sandbox."""
    create_events = [event for event in sandbox.truth()["events"] if event["kind"] == "created"]
    return Counter((event["base_id"], normalise_email(event["subscriber"]["Email"])) for event in create_events)


def write_parts(folder: Path, *files: tuple[str, ...]) -> Path:
    """Write a job that reads these files in turn. The rows of each file are one chunk."""
    for index, rows in enumerate(files):
        write_csv(folder / f"part{index}.csv", "email,list", *rows)
    return write_lists(folder, base="{column: list}", source_path="part*.csv")
