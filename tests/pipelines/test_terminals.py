"""On terminals and pipes, hidden characters and characters outside the encoding of the stream become escapes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from connector.texts import make_visible
from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, CommandResult, Connector, write_csv

HIDDEN_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
RED_SEQUENCE, TITLE_SEQUENCE, C1_SEQUENCE, RIGHT_TO_LEFT = "\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\u202egpj"
NAME_NOT_IN_UTF8 = os.fsdecode(b"K\xfcnden")
FILE_NAME = f"{NAME_NOT_IN_UTF8} [red] {RED_SEQUENCE}{TITLE_SEQUENCE}{C1_SEQUENCE}{RIGHT_TO_LEFT}.csv"


@pytest.fixture
def people_path(tmp_path: Path) -> Path:
    header = f"email,{RED_SEQUENCE}note{C1_SEQUENCE}{RIGHT_TO_LEFT}\u2067"
    return write_csv(tmp_path / FILE_NAME, header, "ann@example.com,a", f"nobody{TITLE_SEQUENCE}{RED_SEQUENCE},b")


def has_no_hidden_characters(result: CommandResult) -> bool:
    return HIDDEN_CHARACTERS.search(result.stdout + result.stderr) is None


def test_commands_write_hidden_characters_to_the_terminal_only_as_escapes(
    connector: Connector, people_path: Path
) -> None:
    import_result = connector.run("import", people_path, *NEWS_IMPORT_OPTIONS, "-vv")
    assert (import_result.exit_code, has_no_hidden_characters(import_result)) == (1, True)
    assert "\\x1b[31mnote\\x9b2J\\u202egpj\\u2067" in import_result.stderr
    assert "K\\udcfcnden [red] " in import_result.stdout, "`rich` must not read the name of a base as markup"
    run_id = next(iter((connector.folder / "state" / "runs").glob("*.json"))).stem
    commands: tuple[tuple[str | Path, ...], ...] = (
        ("status",),
        ("status", run_id),
        ("plan", people_path, *NEWS_IMPORT_OPTIONS),
        ("validate", people_path, *NEWS_IMPORT_OPTIONS),
        ("import", people_path, *NEWS_IMPORT_OPTIONS, "--log-format", "json", "-vv"),
        ("import", f"{RED_SEQUENCE}{C1_SEQUENCE}missing.csv", *NEWS_IMPORT_OPTIONS),
        ("import", people_path, f"--{RED_SEQUENCE}option"),
        ("init", people_path),
    )
    for command in commands:
        assert has_no_hidden_characters(connector.run(*command)), command


def test_json_and_pages_have_hidden_characters_as_escapes(connector: Connector, people_path: Path) -> None:
    result = connector.run_json("import", people_path, *NEWS_IMPORT_OPTIONS, "--report", connector.folder / "run.html")
    assert has_no_hidden_characters(result)
    assert json.loads(result.stdout)["job"] == make_visible(FILE_NAME.removesuffix(".csv"))
    page = (connector.folder / "run.html").read_text(encoding="utf-8")
    assert (HIDDEN_CHARACTERS.search(page), "\\x1b[31m" in page) == (None, True)
    connector.run("status", "--html", connector.folder / "health.html")
    for path in connector.folder.glob("*.html"):
        assert HIDDEN_CHARACTERS.search(path.read_text(encoding="utf-8")) is None


def test_messages_of_the_service_are_shown_with_escapes(connector: Connector) -> None:
    people_path = connector.write_people("email", f"ann{RED_SEQUENCE}@example.com", "bob@example.com")
    connector.sandbox.switch(
        blocked_from=1, blocked_creates=1, blocked_status=401, blocked_words=f"{RED_SEQUENCE}{RIGHT_TO_LEFT} no"
    )
    result = connector.run("import", people_path, *NEWS_IMPORT_OPTIONS, "-v")
    assert (has_no_hidden_characters(result), "\\u202egpj no" in result.stderr) == (True, True)


ASCII_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
FILE_STEM = "Kunden Łódź é 🎂"
BASE_NAME = "Łódź é 日本"
FIELDS = "email: email, first_name: Vorname, is_active: {value: true}"


def run_in_ascii_locale(connector: Connector, *arguments: str | Path) -> tuple[int, bytes, bytes]:
    """Run a command in a new process in the ASCII locale, with pipes as streams."""
    command = [sys.executable, "-W", "error", "-m", "pipelines", *map(str, arguments)]
    environ = connector.build_environ(ASCII_LOCALE)
    result = subprocess.run(command, capture_output=True, cwd=connector.folder, env=environ, check=False, timeout=120)
    assert b"Traceback" not in result.stderr, result.stderr
    assert b"a fault of the program" not in result.stderr, result.stderr
    return result.returncode, result.stdout, result.stderr


def test_each_command_writes_in_the_encoding_of_its_streams(connector: Connector) -> None:
    people = "email,Vorname,Größe", "ann@example.com,Łukasz 🎂,a", "bob at x,Zoë,日本"
    connector.write_people(*people)
    people_path = connector.write_csv(f"{FILE_STEM}.csv", *people)
    connector.write_job(job="Łódź é", base=f"name: '{BASE_NAME}'", fields=FIELDS)
    commands: tuple[tuple[tuple[str | Path, ...], int], ...] = (
        (("import", people_path, "--job", "job.yaml", "-vv", "--report", "run.html"), 1),
        (("init", people_path, "--base-id", "7"), 0),
        (("Łé",), 2),
    )
    for arguments, exit_code in commands:
        actual_exit_code, stdout, stderr = run_in_ascii_locale(connector, *arguments)
        assert actual_exit_code == exit_code, (arguments, stdout, stderr)
        assert stderr.isascii(), arguments
        assert stdout.isascii() or arguments[0] == "init", arguments  # the draft is written in UTF-8
    rejects_text = next((connector.folder / "state" / "rejects").glob("*.csv")).read_text(encoding="utf-8")
    assert "Zoë,日本" in rejects_text
    assert BASE_NAME in (connector.folder / "run.html").read_text(encoding="utf-8")


def test_json_output_has_all_characters_in_an_ascii_locale(connector: Connector) -> None:
    people_path = connector.write_csv("people é.csv", "email,Vorname,Größe Ł", "ann@example.com,a,b", "bob at x,b,c")
    connector.write_job(job="Łódź é", base=f"name: '{BASE_NAME}'", fields=FIELDS)
    options = ("--job", "job.yaml", "--output", "json", "--log-format", "json", "-vv")
    exit_code, stdout, stderr = run_in_ascii_locale(connector, "import", people_path, *options)
    assert (exit_code, BASE_NAME in json.loads(stdout)["base"]) == (1, True)
    assert any("Größe Ł" in json.loads(line)["message"] for line in stderr.decode().splitlines())


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
def test_a_file_name_or_base_name_that_is_not_utf8_is_refused(
    connector: Connector, arguments: tuple[str, ...], environ: dict[str, str]
) -> None:
    connector.write_people("email", "ann@example.com")
    result = connector.run(*arguments, environ=environ)
    assert result.exit_code == 2
    assert "UTF-8" in result.stdout + result.stderr or "printable" in result.stderr
