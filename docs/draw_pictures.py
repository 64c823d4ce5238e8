"""Draw the pictures of the pages: `python docs/draw_pictures.py`.

The pictures show real runs. docs/demo.svg shows the end of the demo, docs/how-to/preview.svg shows the question of an
import, and docs/how-to/preview-answered.svg shows the report after the answer yes. For the page on Excel, the
program also writes two workbooks, a picture of each workbook, and pictures of the import of the first workbook.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import date
from html import escape
from itertools import accumulate
from pathlib import Path

from openpyxl import Workbook
from rich.console import Console
from rich.text import Text

from connector.sandbox import SandboxProcess

_TERMINAL_WIDTH = 118  # characters of a line in a picture of a terminal
_PREVIEW_COMMAND = ("import", "people.csv", "--base-name", "Newsletter")
_EXCEL_COMMAND = ("import", "contacts.xlsx", "--base-name", "Newsletter", "--map", "is_active=Newsletter")
_PEOPLE_CSV = """\
E-Mail,Vorname,Nachname,Angemeldet,Stadt,Firma
ann@example.com,Ann,Lee,ja,Köln,Acme
bob@example.com,Bob,Ray,nein,Ulm,Acme
eve@example.com,Eve,Fox,ja,Bonn,Initech
jürgen@example.com,Jürgen,Groß,ja,Wien,Acme
zoe@example.com,Zoë,Blum,ja,Graz,Initech
max@example,Max,Ohm,ja,Ulm,Acme
EVE@example.com,Eve,Fox,ja,Bonn,Initech
"""
Row = Sequence[str | int | date | None]
_CONTACT_ROWS: list[Row] = [
    ["E-mail", "First name", "Last name", "City", "Zip", "Phone", "Newsletter", "Birthday"],
    ["ann@example.com", "Ann", "Lee", "Boston", 2134, "+1 617 555 0101", "yes", date(1980, 2, 29)],
    ["bob@example.com", "Bob", "Ray", "Ulm", 89073, "+49 731 555 0102", "no", date(1975, 7, 1)],
    ["eve@example.com", "Eve", "Fox", "Bonn", 53111, None, "yes", None],
    ["zoe.example.com", "Zoë", "Blum", "Graz", 8010, "+43 316 555 0104", "yes", None],
    ["max@example.com", "Max", "Ohm", "Wien", 1010, None, "yes", date(1990, 12, 24)],
]
_CORRECTED_CONTACT_ROWS: list[Row] = [
    _CONTACT_ROWS[0],
    ["zoe@example.com", *_CONTACT_ROWS[4][1:4], "8010", *_CONTACT_ROWS[4][5:]],
]
_QUESTION_SUFFIX = b"[y/N]: "
_CONTROL_SEQUENCE_OR_TEXT_PATTERN = re.compile(r"\r\n|\n|\r|\x1b\[[0-9;?]*[A-Za-z]|[^\x1b\r\n]+")


def draw_demo() -> None:
    """Run the demo, and draw the last lines of its output. Raise CalledProcessError if the demo fails."""
    command = [sys.executable, "-m", "pipelines", "demo"]
    completed_process = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    lines = completed_process.stdout.splitlines()
    first_check_index = next(index for index, line in enumerate(lines) if line.startswith("yes "))
    styled_lines = []
    for line in (line for line in lines[first_check_index:] if not line.startswith("files: ")):
        styled_line = Text(line, style="bold" if line.startswith("verdict") else "")
        styled_line.highlight_regex("^yes", "green")
        styled_lines.append(styled_line)
    draw_picture(styled_lines, Path(__file__).parent / "demo.svg", title="connector demo")


def draw_picture(lines: Iterable[Text], path: Path, *, title: str) -> None:
    """Write a picture of a terminal with these lines."""
    console = Console(record=True, width=_TERMINAL_WIDTH, file=sys.stderr)
    for line in lines:
        console.print(line)
    path.write_text(console.export_svg(title=title, unique_id=path.stem), encoding="utf-8")


def draw_preview() -> None:
    """Draw two pictures of the terminal during an import: when the command asks its question, and when the import has
    ended."""
    page_folder = Path(__file__).parent / "how-to"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "people.csv").write_text(_PEOPLE_CSV, encoding="utf-8")
        _draw_import(Path(folder), _PREVIEW_COMMAND, page_folder / "preview.svg", page_folder / "preview-answered.svg")


def draw_excel() -> None:
    """Write the workbooks of the page about Excel, and draw each workbook. Draw two pictures of the
    terminal during an import: when the command asks its question, and when the import has ended."""
    page_folder = Path(__file__).parent / "how-to"
    for name, rows in (("contacts", _CONTACT_ROWS), ("corrected", _CORRECTED_CONTACT_ROWS)):
        workbook = Workbook()
        sheet = workbook.worksheets[0]
        sheet.title = "Contacts"
        for row in rows:
            sheet.append(row)
        workbook.save(page_folder / f"{name}.xlsx")
        draw_sheet(rows, page_folder / f"{name}.svg")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "contacts.xlsx").write_bytes((page_folder / "contacts.xlsx").read_bytes())
        _draw_import(
            Path(folder), _EXCEL_COMMAND, page_folder / "excel-preview.svg", page_folder / "excel-answered.svg"
        )


def draw_sheet(rows: Sequence[Row], path: Path) -> None:
    """Write a picture of a worksheet with these rows: letters above the columns, numbers beside the rows."""
    row_texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    column_widths = [30, *(16 + 8 * max(map(len, column)) for column in zip(*row_texts, strict=True))]
    column_edges, row_height = [0, *accumulate(column_widths)], 26
    column_letters = ["", *(chr(ord("A") + index) for index in range(len(row_texts[0])))]
    picture_rows = [column_letters, *([str(row_number), *row] for row_number, row in enumerate(row_texts, 1))]
    view_box = f"0 0 {column_edges[-1] + 1} {row_height * len(picture_rows) + 1}"
    svg_parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view_box}" font-family="Arial, sans-serif" font-size="13">'
    ]
    for row_index, row in enumerate(picture_rows):
        for column_index, text in enumerate(row):
            is_heading = row_index == 0 or column_index == 0
            is_number = row_index > 1 and column_index > 0 and isinstance(rows[row_index - 1][column_index - 1], int)
            left_edge, top_edge, column_width = (
                column_edges[column_index],
                row_height * row_index,
                column_widths[column_index],
            )
            text_x, text_anchor = (left_edge + column_width / 2, "middle") if is_heading else (left_edge + 6, "start")
            if is_number:
                text_x, text_anchor = left_edge + column_width - 6, "end"
            svg_parts.append(
                f'<rect x="{left_edge + 0.5}" y="{top_edge + 0.5}" width="{column_width}" height="{row_height}" '
                f'fill="{"#e7e9ec" if is_heading else "#ffffff"}" stroke="#c3c7cc"/>'
                f'<text x="{text_x}" y="{top_edge + 18}" text-anchor="{text_anchor}" fill="#1f2328">'
                f"{escape(text)}</text>"
            )
    path.write_text("\n".join([*svg_parts, "</svg>\n"]), encoding="utf-8")


def _draw_import(folder: Path, command: Sequence[str], preview_path: Path, report_path: Path) -> None:
    """Import a file of this folder into a sandbox. Draw the terminal twice: when the command asks its
    question, and when the import has ended."""
    with SandboxProcess() as sandbox:
        settings = {"CONNECTOR_BASE_URL": sandbox.base_url, "CONNECTOR_TOKEN": sandbox.token}
        screen_at_question, screen_at_end = _run_command(
            command, folder, settings | {"CONNECTOR_STATE_DIR": str(folder / "state")}
        )
    prompt = Text(f"$ connector {' '.join(command)}", style="bold")
    for path, screen_text in ((preview_path, screen_at_question), (report_path, screen_at_end)):
        lines = read_screen(screen_text.replace(str(folder), "/home/ann"))
        draw_picture([prompt, *map(Text.from_ansi, lines)], path, title="connector import")


def _run_command(command: Sequence[str], folder: Path, settings: dict[str, str]) -> tuple[str, str]:
    """Run the import on a terminal. Return its output until the question, and its whole output."""
    parent_terminal, child_terminal = pty.openpty()
    environ = os.environ | settings | {"COLUMNS": str(_TERMINAL_WIDTH), "TERM": "xterm-256color"}
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "pipelines", *command],
        stdin=child_terminal, stdout=child_terminal, stderr=child_terminal,
        cwd=folder, env=environ, start_new_session=True,
    )  # fmt: skip
    os.close(child_terminal)
    output, output_until_question = b"", b""
    try:
        while chunk := os.read(parent_terminal, 65536):
            output += chunk
            if not output_until_question and _QUESTION_SUFFIX in output:
                output_until_question = output
                os.write(parent_terminal, b"y\n")
    except OSError:  # the command has closed the terminal
        pass
    os.close(parent_terminal)
    process.wait()
    return output_until_question.decode(), output.decode()


def read_screen(terminal_output: str) -> list[str]:
    """Return the lines, with colours, that a terminal shows at the end. The progress line is absent, because it erases
    itself."""
    lines, row = [""], 0
    for sequence_or_text in _CONTROL_SEQUENCE_OR_TEXT_PATTERN.findall(terminal_output):
        if sequence_or_text in ("\n", "\r\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif sequence_or_text.endswith("A") and sequence_or_text.startswith("\x1b["):
            row = max(0, row - int(sequence_or_text[2:-1] or 1))
        elif sequence_or_text == "\x1b[2K":
            lines[row] = ""
        elif not sequence_or_text.startswith(("\x1b", "\r")) or sequence_or_text.endswith("m"):
            lines[row] += sequence_or_text
    return lines


if __name__ == "__main__":
    draw_demo()
    draw_preview()
    draw_excel()
