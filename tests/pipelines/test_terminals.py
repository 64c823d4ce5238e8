"""Terminals, pipes and locales other than UTF-8: characters that a stream lacks become escapes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.conftest import ROOT, Connector, write_csv

ASCII_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
FILE_STEM = "Kunden Łódź é 🎂"
BASE_NAME = "Łódź é 日本"
FIELDS = "email: email, first_name: Vorname, is_active: {value: true}"


def run_in_ascii_locale(connector: Connector, *arguments: str | Path) -> tuple[int, bytes, bytes]:
    """Run a command in a new process in the ASCII locale, with pipes as streams."""
    command = [sys.executable, "-W", "error", "-m", "pipelines", *map(str, arguments)]
    environ = os.environ | connector.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"} | ASCII_LOCALE
    result = subprocess.run(command, capture_output=True, cwd=connector.folder, env=environ, check=False, timeout=120)
    assert b"Traceback" not in result.stderr, result.stderr
    assert b"a fault of the program" not in result.stderr, result.stderr
    return result.returncode, result.stdout, result.stderr


def test_each_command_writes_in_the_encoding_of_its_streams(connector: Connector) -> None:
    people = "email,Vorname,Größe", "ann@example.com,Łukasz 🎂,a", "bob at x,Zoë,日本"
    connector.write_people(*people)
    people_path = write_csv(connector.folder / f"{FILE_STEM}.csv", *people)
    connector.write_job(job="Łódź é", base=f"name: '{BASE_NAME}'", fields=FIELDS)
    commands: tuple[tuple[tuple[str | Path, ...], int], ...] = (
        (("import", people_path, "--job", "job.yaml", "-vv", "--report", "run.html"), 1),
        (("init", people_path, "--base-id", "7"), 0),
        (("Łé",), 2),
    )
    for arguments, exit_code in commands:
        code, stdout, stderr = run_in_ascii_locale(connector, *arguments)
        assert code == exit_code, (arguments, stdout, stderr)
        assert stderr.isascii(), arguments
        assert stdout.isascii() or arguments[0] == "init", arguments  # the draft is written in UTF-8
    rejects_text = next((connector.folder / "state" / "rejects").glob("*.csv")).read_text(encoding="utf-8")
    assert "Zoë,日本" in rejects_text
    assert BASE_NAME in (connector.folder / "run.html").read_text(encoding="utf-8")


def test_json_has_all_characters_in_a_locale_with_ascii(connector: Connector) -> None:
    people_path = write_csv(
        connector.folder / "people é.csv", "email,Vorname,Größe Ł", "ann@example.com,a,b", "bob at x,b,c"
    )
    connector.write_job(job="Łódź é", base=f"name: '{BASE_NAME}'", fields=FIELDS)
    options = ("--job", "job.yaml", "--output", "json", "--log-format", "json", "-vv")
    code, stdout, stderr = run_in_ascii_locale(connector, "import", people_path, *options)
    assert (code, BASE_NAME in json.loads(stdout)["base"]) == (1, True)
    assert any("Größe Ł" in json.loads(line)["message"] for line in stderr.decode().splitlines())


NAME_NOT_IN_UTF8 = os.fsdecode(b"K\xfcnden")


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (("export", f"sqlite:///{NAME_NOT_IN_UTF8}.db"), {}),
        (("init", "people.csv", "--base-id", "7", "-o", f"{NAME_NOT_IN_UTF8}.yaml"), {}),
        (("import", "people.csv", "--base-name", NAME_NOT_IN_UTF8), {}),
        (("status",), {"CONNECTOR_STATE_DIR": NAME_NOT_IN_UTF8}),
        (("check",), {"CONNECTOR_LEDGER": f"postgresql://{NAME_NOT_IN_UTF8}/ledger"}),
    ],
    ids=str,
)
def test_a_name_that_must_be_utf8_is_refused_in_another_encoding(
    connector: Connector, arguments: tuple[str, ...], environ: dict[str, str]
) -> None:
    connector.write_people("email", "ann@example.com")
    result = connector.run(*arguments, environ=environ)
    assert result.exit_code == 2
    assert "UTF-8" in result.stdout + result.stderr or "printable" in result.stderr
