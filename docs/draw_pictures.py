"""Draw the pictures of the pages from real runs: `python docs/draw_pictures.py` writes docs/demo.svg (the end of the
demo), docs/how-to/preview.svg (the question of an import) and docs/how-to/preview-answered.svg (the end after a yes).
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from connector.sandbox import SandboxProcess

_WIDTH = 118
_COMMAND = ("import", "people.csv", "--base-name", "Newsletter")
_PEOPLE = """\
E-Mail,Vorname,Nachname,Angemeldet,Stadt,Firma
ann@example.com,Ann,Lee,ja,Köln,Acme
bob@example.com,Bob,Ray,nein,Ulm,Acme
eve@example.com,Eve,Fox,ja,Bonn,Initech
jürgen@example.com,Jürgen,Groß,ja,Wien,Acme
zoe@example.com,Zoë,Blum,ja,Graz,Initech
max@example,Max,Ohm,ja,Ulm,Acme
EVE@example.com,Eve,Fox,ja,Bonn,Initech
"""
_QUESTION = b"[y/N]: "
_CONTROL = re.compile(r"\r\n|\n|\r|\x1b\[[0-9;?]*[A-Za-z]|[^\x1b\r\n]+")


def draw_demo() -> None:
    """Run the demo, and draw its end. Raise CalledProcessError when the demo fails."""
    command = [sys.executable, "-m", "pipelines", "demo"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    lines = ended.stdout.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("yes "))
    texts = []
    for line in (line for line in lines[first:] if not line.startswith("files: ")):
        text = Text(line, style="bold" if line.startswith("verdict") else "")
        text.highlight_regex("^yes", "green")
        texts.append(text)
    draw(texts, Path(__file__).parent / "demo.svg", title="connector demo")


def draw(lines: Iterable[Text], path: Path, *, title: str) -> None:
    """Write a picture of a terminal with these lines."""
    console = Console(record=True, width=_WIDTH, file=sys.stderr)
    for line in lines:
        console.print(line)
    path.write_text(console.export_svg(title=title), encoding="utf-8")


def draw_preview() -> None:
    """Draw the terminal of an import when the import asks, and after the answer yes."""
    with tempfile.TemporaryDirectory() as name, SandboxProcess() as sandbox:
        folder = Path(name)
        (folder / "people.csv").write_text(_PEOPLE, encoding="utf-8")
        settings = {"CONNECTOR_BASE_URL": sandbox.base_url, "CONNECTOR_TOKEN": sandbox.token}
        asked, answered = _run(folder, settings | {"CONNECTOR_STATE_DIR": str(folder / "state")})
    prompt = Text(f"$ connector {' '.join(_COMMAND)}", style="bold")
    pages = Path(__file__).parent / "how-to"
    for path, shown in ((pages / "preview.svg", asked), (pages / "preview-answered.svg", answered)):
        lines = read_screen(shown.replace(name, "/home/ann"))
        draw([prompt, *map(Text.from_ansi, lines)], path, title="connector import")


def _run(folder: Path, settings: dict[str, str]) -> tuple[str, str]:
    """Run the import on a terminal; return what it has written at the question, and all that it writes."""
    ours, theirs = pty.openpty()
    environ = os.environ | settings | {"COLUMNS": str(_WIDTH), "TERM": "xterm-256color"}
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "pipelines", *_COMMAND],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environ, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown, asked = b"", b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
            if not asked and _QUESTION in shown:
                asked = shown
                os.write(ours, b"y\n")
    except OSError:  # the command has closed the terminal
        pass
    os.close(ours)
    process.wait()
    return asked.decode(), shown.decode()


def read_screen(written: str) -> list[str]:
    """Return the lines that a terminal shows, with their colours: a progress line erases itself at the end."""
    lines, row = [""], 0
    for part in _CONTROL.findall(written):
        if part in ("\n", "\r\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b["):
            row = max(0, row - int(part[2:-1] or 1))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith(("\x1b", "\r")) or part.endswith("m"):
            lines[row] += part
    return lines


if __name__ == "__main__":
    draw_demo()
    draw_preview()
