"""Write docs/reference/outputs.md: the output of each command on a terminal of 80 columns, from real runs.

`python docs/capture_reports.py` runs the commands against a sandbox. A test fails if the page is out of date.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from connector.sandbox import SandboxProcess

PAGE_PATH = Path(__file__).parent / "reference" / "outputs.md"

CommandRunner = Callable[[Sequence[str]], str]
"""Runs a command in the folder with the files of `TEXT_BY_FILE`, and returns its standard error and output."""

TEXT_BY_FILE: Mapping[str, str] = {
    "people.csv": """\
email,first_name,last_name,is_active,company
ann@example.com,Ann,Lee,true,Acme
bob@example.com,Bob,Ray,false,Acme
eve@example.com,Eve,Fox,true,Initech
max@example,Max,Ohm,true,Acme
EVE@example.com,Eva,Fox,true,Initech
""",
    "crm.yaml": """\
job: crm
source: {file: {path: people.csv}}
subscriber: {base: {name: Newsletter}}
load: {quiet_period: 1s, max_concurrency: 1}
""",
    "news.yaml": """\
job: news
source: {file: {path: people.csv}}
mail:
  campaign: 2026-11
  to: email
  from: News <hello@example.com>
  subject: "Hello {{ first_name }}"
  text: {content: "Hello {{ first_name }}"}
""",
    "hello.txt": "Hello\n",
}
"""The files that the commands read."""

SENTENCE_BY_COMMAND: Mapping[str, str] = {
    "validate crm.yaml": "Two rows are not loaded: a row with an invalid address, and a second row of one subscriber.",
    "plan crm.yaml": "A plan shows what `sync` would do, and creates nothing.",
    "sync crm.yaml": "This is the first run of the job. It creates the three valid subscribers.",
    "import people.csv --base-name Newsletter": "The base has all valid subscribers of the file already.",
    "retry": "All creates succeeded, so there is nothing to retry.",
    "explain eve@example.com": "The command shows the ledger's entry in each base. This subscriber is in one base.",
    "export people.parquet": "The certificate `complete` says that no subscriber is missing.",
    "reconcile crm.yaml": "The source, the ledger and the service agree.",
    "send --to ann@example.com --from hello@example.com --subject Hello --text hello.txt --dry-run": (
        "A dry run shows the request, without the contents of attachments."
    ),
    "send --to ann@example.com --from hello@example.com --subject Hello --text hello.txt": (
        "This command sends one email."
    ),
    "mail news.yaml --preview 1": "A preview writes emails to files.",
    "mail news.yaml": "A campaign goes to active people only.",
    "check crm.yaml": "Each line of the output is one check.",
    "status": "The command shows the last runs, the newest first, and then the next steps.",
    "forget bob@example.com": "The command deletes the ledger's entries of this address.",
    "ledger backup copy.db": "A backup has two files: the ledger, and the record of sent emails.",
    "prune": "Nothing is deleted, because no file is older than 90 days.",
    "init people.csv --base-name Newsletter": "The guesses go to standard error, and the job to standard output.",
}
"""The commands in their order, each with a sentence about its output."""

_LOG_LINE_PATTERN = re.compile(r"^\d{4}-\d\d-\d\dT\S+ \w+ .*\n", re.MULTILINE)
_REPLACEMENT_BY_PATTERN = {
    r"\b20\d{6}T\d{6}-[0-9a-f]{6}\b": "20261126T080000-1a2b3c",
    r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC": "2026-11-26 08:00:00 UTC",
    r"(?<=UTC) +\d+(?:\.\d+)? m?s\b": "      1.2 s",
    r"http://127\.0\.0\.1:\d+": "https://api.example.com",
    r"(?<=<)[0-9a-f]{32}(?=@sandbox)": "1a2b3c4d5e6f708192a3b4c5d6e7f809",
    r"\bsince 20\d\d-\d\d-\d\d\b": "since 2026-11-26",
}
"""Patterns of texts that differ in each run, each with the text that the page shows instead."""


_INTRODUCTION = """\
<!-- written by docs/capture_reports.py -->
# Outputs of the commands

This page is for you if you want to see what a command prints before you run it. The commands ran in this order, with a
width of 80 columns and the files below in the folder. A terminal also wraps long lines. [Reports](report.md) describes
the same reports as JSON.
"""


def build_page(run_command: CommandRunner, folder: Path) -> str:
    """Run the commands in the folder, and return the page."""
    for name, text in TEXT_BY_FILE.items():
        (folder / name).write_text(text, encoding="utf-8")
    page_parts = [_INTRODUCTION, *(f"`{name}`:\n\n```text\n{text}```\n" for name, text in TEXT_BY_FILE.items())]
    for command, sentence in SENTENCE_BY_COMMAND.items():
        output = _LOG_LINE_PATTERN.sub("", run_command(command.split()))
        for pattern, replacement in _REPLACEMENT_BY_PATTERN.items():
            output = re.sub(pattern, replacement, output)
        output = output.replace(str(folder.resolve()), "/home/ann").rstrip()
        title = " ".join(command.split()[: 2 if command.startswith("ledger") else 1])
        page_parts.append(f"## {title}\n\n{sentence}\n\n```text\n$ connector {command}\n{output}\n```\n")
    return "\n".join(page_parts)


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as folder, SandboxProcess() as sandbox:
        settings = {
            "CONNECTOR_BASE_URL": sandbox.base_url,
            "CONNECTOR_TOKEN": sandbox.token,
            "CONNECTOR_STATE_DIR": f"{folder}/state",
            "COLUMNS": "80",
        }

        def run_command(arguments: Sequence[str]) -> str:
            command = [sys.executable, "-m", "pipelines", *arguments]
            completed_process = subprocess.run(  # noqa: S603
                command, cwd=folder, env=os.environ | settings, capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            return completed_process.stderr + completed_process.stdout

        PAGE_PATH.write_text(build_page(run_command, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
