"""Terminals, pipes and locales other than UTF-8: characters that a stream lacks become escapes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, ROOT, Connector, write_csv

ASCII_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN_1_LOCALE = {"PYTHONIOENCODING": "iso8859-1:strict"}
FILE_STEM = "Kunden Łódź é 🎂"
BASE_NAME = "Łódź é 日本"
JOB = (
    "job: Łódź é\nsource: {file: {path: 'people.csv'}}\n"
    f"subscriber:\n  base: {{name: '{BASE_NAME}'}}\n"
    "  fields: {email: email, first_name: Vorname, is_active: {value: true}}\n"
    "load: {quiet_period: 200ms}\n"
)


def run_with_locale(connector: Connector, locale: dict[str, str], *arguments: str | Path) -> tuple[int, bytes, bytes]:
    """Run a command in a new process with pipes as streams."""
    command = [sys.executable, "-W", "error", "-m", "pipelines", *map(str, arguments)]
    environ = os.environ | connector.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"} | locale
    result = subprocess.run(command, capture_output=True, cwd=connector.folder, env=environ, check=False, timeout=120)
    assert b"Traceback" not in result.stderr, result.stderr
    assert b"a fault of the program" not in result.stderr, result.stderr
    return result.returncode, result.stdout, result.stderr


def test_each_command_writes_in_the_encoding_of_its_streams(connector: Connector) -> None:
    people = "email,Vorname,Größe", "ann@example.com,Łukasz 🎂,a", "bob at x,Zoë,日本"
    write_csv(connector.folder / "people.csv", *people)
    file = write_csv(connector.folder / f"{FILE_STEM}.csv", *people)
    (connector.folder / "job.yaml").write_text(JOB, encoding="utf-8")
    commands: tuple[tuple[tuple[str | Path, ...], int], ...] = (
        (("import", file, "--job", "job.yaml", "-vv"), 1),
        (("sync", "job.yaml", "--report", "run.html"), 1),
        (("init", file, "--base-id", "7"), 0),
        (("export", f"{FILE_STEM}.export.csv"), 0),
        (("import", "Ł é.csv"), 2),
        (("Łé",), 2),
    )
    for arguments, exit_code in commands:
        code, stdout, stderr = run_with_locale(connector, ASCII_LOCALE, *arguments)
        assert code == exit_code, (arguments, stdout, stderr)
        assert stderr.isascii(), arguments
        assert stdout.isascii() or arguments[0] == "init", arguments  # the draft is written in UTF-8
    rejects_text = next((connector.folder / "state" / "rejects").glob("*.csv")).read_text(encoding="utf-8")
    assert "Zoë,日本" in rejects_text
    assert "Łukasz 🎂" in (connector.folder / f"{FILE_STEM}.export.csv").read_text(encoding="utf-8")
    assert BASE_NAME in (connector.folder / "run.html").read_text(encoding="utf-8")


def test_json_has_all_characters_in_a_locale_with_ascii(connector: Connector) -> None:
    file = write_csv(connector.folder / "people é.csv", "email,Vorname,Größe Ł", "ann@example.com,a,b", "bob at x,b,c")
    (connector.folder / "job.yaml").write_text(JOB, encoding="utf-8")
    options = ("--job", "job.yaml", "--output", "json", "--log-format", "json", "-vv")
    code, stdout, stderr = run_with_locale(connector, ASCII_LOCALE, "import", file, *options)
    assert (code, BASE_NAME in json.loads(stdout)["base"]) == (1, True)
    assert any("Größe Ł" in json.loads(line)["message"] for line in stderr.decode().splitlines())
    code, stdout, stderr = run_with_locale(connector, ASCII_LOCALE, "sync", "Łé.yaml", "--output", "json")
    assert (code, json.loads(stdout)["status"]) == (2, "usage")


def test_characters_that_a_stream_lacks_are_escapes(connector: Connector) -> None:
    file = write_csv(connector.folder / f"{FILE_STEM}.csv", "email", "ann@example.com")
    code, stdout, _ = run_with_locale(connector, LATIN_1_LOCALE, "plan", file, "--active", "--base-name", BASE_NAME)
    assert code == 0, stdout
    assert b"Kunden \\u0141\xf3d\\u017a \xe9 \\U0001f382" in stdout
    assert b"+-" in stdout  # a table's borders


NAME_NOT_IN_UTF8 = os.fsdecode(b"K\xfcnden")


def test_a_file_name_that_is_not_utf8_is_shown_as_an_escape_everywhere(connector: Connector) -> None:
    file = write_csv(connector.folder / f"{NAME_NOT_IN_UTF8}.csv", "email", "ann@example.com", "bob at x")
    page = connector.folder / f"{NAME_NOT_IN_UTF8}.html"
    result = connector.run_json("import", file, *NEWS_IMPORT_OPTIONS, "--report", page, "-vv")
    assert (result.exit_code, result.report["job"]) == (1, "K\\udcfcnden")
    assert "K\\udcfcnden" in result.stderr
    assert "K\\udcfcnden" in page.read_text(encoding="utf-8")
    assert "K\\udcfcnden" in connector.run("status").stdout
    rejects_path = Path(result.report["rejects_file"])
    assert "K\\udcfcnden" in rejects_path.read_text(encoding="utf-8")
    assert connector.run("export", f"{NAME_NOT_IN_UTF8}.out.csv").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (("export", f"sqlite:///{NAME_NOT_IN_UTF8}.db"), {}),
        (("export", f"duckdb:///{NAME_NOT_IN_UTF8}.duckdb"), {}),
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
    write_csv(connector.folder / "people.csv", "email", "ann@example.com")
    result = connector.run(*arguments, environ=environ)
    assert result.exit_code == 2
    assert "UTF-8" in result.stdout + result.stderr or "printable" in result.stderr
