"""Run the demo and draw its end: `python docs/draw_demo.py` writes docs/demo.svg."""

import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

_WIDTH = 118


def main() -> None:
    """Raise CalledProcessError when the demo fails."""
    command = [sys.executable, "-m", "pipelines", "demo"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    lines = ended.stdout.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("yes "))
    console = Console(record=True, width=_WIDTH, file=sys.stderr)
    for line in (line for line in lines[first:] if not line.startswith("files: ")):
        text = Text(line, style="bold" if line.startswith("verdict") else "")
        text.highlight_regex("^yes", "green")
        console.print(text)
    path = Path(__file__).parent / "demo.svg"
    path.write_text(console.export_svg(title="connector demo"), encoding="utf-8")


if __name__ == "__main__":
    main()
