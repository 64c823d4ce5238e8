"""Escape sequences and other hidden characters of data: terminals, JSON and pages show escapes."""

import json
import os
import re
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


def test_no_command_writes_hidden_characters_to_the_terminal(connector: Connector, people_path: Path) -> None:
    import_result = connector.run("import", people_path, *NEWS_IMPORT_OPTIONS, "-vv")
    assert (import_result.exit_code, has_no_hidden_characters(import_result)) == (1, True)
    assert "\\x1b[31mnote\\x9b2J\\u202egpj\\u2067" in import_result.stderr
    assert "K\\udcfcnden [red] " in import_result.stdout, "a name is not a markup of rich"
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
