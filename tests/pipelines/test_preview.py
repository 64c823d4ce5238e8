"""On a terminal an import shows what it would create, and asks before it creates anything."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.conftest import ROOT, Connector, list_stored, write_csv

PEOPLE = ("email,first_name,is_active,Stadt", "ann@x.org,Ann,yes,Köln", "bob@x.org,Bob,no,Ulm", "nobody,Cem,yes,Bonn")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "people.csv", *PEOPLE)


def import_on_terminal(connector: Connector, people: Path, answer: str, *options: str) -> tuple[int, str]:
    """Run an import whose standard input, output and error are a terminal of 80 columns; return what it shows."""
    ours, theirs = pty.openpty()
    environ = os.environ | connector.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "TERM": "dumb"}
    command = [sys.executable, "-m", "pipelines", "import", str(people), "--base-name", "News", *options]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=connector.folder, env=environ, start_new_session=True
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
            if b"[y/N]" in shown and answer:
                os.write(ours, f"{answer}\n".encode())
                answer = ""
    except OSError:  # the other side has closed
        pass
    os.close(ours)
    return process.wait(60), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "")


QUESTION = "Create 2 subscribers in News (1 active, 1 inactive)? This cannot be undone. [y/N]"


def test_an_import_shows_what_it_would_create_and_a_no_sends_nothing(connector: Connector, people: Path) -> None:
    code, shown = import_on_terminal(connector, people, "n")
    assert code == 0, shown
    assert QUESTION in shown
    assert "Nothing was sent." in shown
    assert re.search(r"invalid\s+│\s+1 ", shown), shown
    assert re.search(r"email\s+│ ann@x.org\s+│ bob@x.org", shown), shown
    assert re.search(r"address_city\s+│ Köln\s+│ Ulm", shown), shown
    assert re.search(r"is_active\s+│ yes\s+│ no", shown), shown
    assert max(map(len, shown.splitlines())) <= 120
    assert list_stored(connector.sandbox) == {}
    assert not (connector.folder / "state").exists()


def test_a_yes_creates_what_was_shown(connector: Connector, people: Path) -> None:
    code, shown = import_on_terminal(connector, people, "y")
    assert code == 1, shown
    assert QUESTION in shown
    stored = list_stored(connector.sandbox)
    assert {email: subscriber["IsActive"] for email, subscriber in stored.items()} == {
        "ann@x.org": True,
        "bob@x.org": False,
    }
    code, shown = import_on_terminal(connector, people, "")  # all exist: there is nothing to ask
    assert (code, "[y/N]" in shown) == (1, False), shown


@pytest.mark.parametrize("options", [["--yes"], ["--output", "json"], ["--quiet"]])
def test_nothing_is_asked_where_a_person_has_said_so(connector: Connector, people: Path, options: list[str]) -> None:
    code, shown = import_on_terminal(connector, people, "", *options)
    assert (code, "[y/N]" in shown) == (1, False), shown
    assert len(list_stored(connector.sandbox)) == 2


def test_nothing_is_asked_without_a_terminal(connector: Connector, people: Path) -> None:
    ended = connector.run("import", people, "--base-name", "News")
    assert (ended.code, "[y/N]" in ended.stdout + ended.stderr) == (1, False)
    assert len(list_stored(connector.sandbox)) == 2


def test_a_plan_says_how_many_are_active(connector: Connector, people: Path) -> None:
    planned = connector.run_json("plan", people, "--base-name", "News")
    assert planned.report["activity"] == {"active": 1, "inactive": 1}
    ended = connector.run_json("import", people, "--base-name", "News")
    assert ended.report["activity"] == {"active": 1, "inactive": 1}
    assert "samples" not in ended.report
