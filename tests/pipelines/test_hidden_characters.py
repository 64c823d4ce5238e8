"""Escape sequences and other hidden characters of data: terminals, JSON and pages show escapes."""

import json
import re
from pathlib import Path

import pytest

from connector.texts import make_visible
from tests.pipelines.conftest import INTO_NEWS, CommandResult, Connector, write_csv

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
RED, TITLE, C1, TURNED = "\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\u202egpj"
NAME = f"people {RED}{TITLE}{C1}{TURNED}.csv"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    header = f"email,{RED}note{C1}{TURNED}\u2067"
    return write_csv(tmp_path / NAME, header, "ann@example.com,a", f"nobody{TITLE}{RED},b")


def is_clean(result: CommandResult) -> bool:
    return HIDDEN.search(result.stdout + result.stderr) is None


def test_no_command_writes_hidden_characters_to_the_terminal(connector: Connector, people: Path) -> None:
    imported = connector.run("import", people, *INTO_NEWS, "-vv")
    assert (imported.code, is_clean(imported)) == (1, True)
    assert "\\x1b[31mnote\\x9b2J\\u202egpj\\u2067" in imported.stderr
    run_id = next(iter((connector.folder / "state" / "runs").glob("*.json"))).stem
    commands: tuple[tuple[str | Path, ...], ...] = (
        ("status",),
        ("status", run_id),
        ("plan", people, *INTO_NEWS),
        ("validate", people, *INTO_NEWS),
        ("import", people, *INTO_NEWS, "--log-format", "json", "-vv"),
        ("import", people, *INTO_NEWS, "--map", f"email={RED}mail"),
        ("import", f"{RED}{C1}missing.csv", *INTO_NEWS),
        ("import", people, f"--{RED}option"),
        (f"{RED}{TURNED}",),
        ("sync", f"{RED}job.yaml"),
        ("init", people),
    )
    for command in commands:
        assert is_clean(connector.run(*command)), command


def test_json_and_pages_have_hidden_characters_as_escapes(connector: Connector, people: Path, tmp_path: Path) -> None:
    result = connector.run_json("import", people, *INTO_NEWS, "--report", tmp_path / "run.html")
    assert is_clean(result)
    assert json.loads(result.stdout)["job"] == make_visible(NAME.removesuffix(".csv"))
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert (HIDDEN.search(page), "\\x1b[31m" in page) == (None, True)
    connector.run("status", "--html", tmp_path / "health.html")
    for path in tmp_path.glob("*.html"):
        assert HIDDEN.search(path.read_text(encoding="utf-8")) is None


def test_messages_of_the_service_are_shown_with_escapes(connector: Connector, tmp_path: Path) -> None:
    people = write_csv(tmp_path / "people.csv", "email", f"ann{RED}@example.com", "bob@example.com")
    connector.sandbox.switch(blocked_from=1, blocked_creates=1, blocked_status=401, blocked_words=f"{RED}{TURNED} no")
    result = connector.run("import", people, *INTO_NEWS, "-v")
    assert (is_clean(result), "\\u202egpj no" in result.stderr) == (True, True)
