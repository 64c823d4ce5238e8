"""Draws texts and names of the project at random, for a reader who marks the items that need a second reading.

`python -m tests.draw_texts --seed 7` prints 300 texts, and `--names` prints 300 names. A text is a docstring, a
comment, a message, a help text, the claim of a test's name, or a paragraph of a page. A name is an identifier that the
code assigns, with the line that assigns it. Each item comes with its class and function, or with the heading of its
page, because every reader of the item sees these lines. The same seed draws the same items from the same code.
"""

import argparse
import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

ROOT = Path(__file__).parent.parent
_CODE_FOLDERS = ("connector", "pipelines", "tests", "docs")
_MIN_WORD_COUNT = 4  # a string with fewer words does not count as a message
_MIN_NAME_LENGTH = 3  # a shorter name, such as `i`, `n` or `db`, is a convention
_TOOL_COMMENT_PATTERN = re.compile(r"#\s*(noqa|type:|fmt:|ruff:|pragma|!)")
_FENCED_BLOCK_PATTERN = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Print the drawn items, each with its number, file and line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--names", action="store_true", help="draw names instead of texts")
    parser.add_argument("--under", default="", help="draw only from paths that start with this text")
    arguments = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # texts may contain half characters
    list_items = list_names if arguments.names else list_texts
    items = [item for item in list_items() if item[0].startswith(arguments.under)]
    drawn_items = Random(arguments.seed).sample(items, min(arguments.count, len(items)))
    print(f"{len(drawn_items)} of {len(items)} items, seed {arguments.seed}")
    for item_number, (location, text) in enumerate(drawn_items, start=1):
        print(f"\n[{item_number}] {location}{_find_context(location)}\n{text}")


def _find_context(location: str) -> str:
    """Return the headers of the class and function around a line of code, or the heading above a line of a page. Each
    header or heading has its own line in the result."""
    file_name, _, line_number_text = location.rpartition(":")
    line_number, source_text = int(line_number_text), (ROOT / file_name).read_text(encoding="utf-8")
    if file_name.endswith(".md"):
        headings = [text for text in source_text.splitlines()[:line_number] if text.startswith("#")]
        return "".join(f"\n    {heading}" for heading in headings[-1:])
    definition_headers = []
    for node in ast.walk(ast.parse(source_text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno < line_number <= (
            node.end_lineno or 0
        ):
            header_lines = source_text.splitlines()[node.lineno - 1 : max(node.lineno, node.body[0].lineno - 1)]
            definition_headers.append(
                " ".join(text.strip() for text in header_lines if not text.strip().startswith("#"))
            )
    return "".join(f"\n    {definition_header}" for definition_header in definition_headers)


def list_texts() -> list[tuple[str, str]]:
    """Return each text of the project with its place (`file:line`), in the order of the files."""
    texts_with_places = []
    for path in _list_code_files():
        texts_with_places += [
            (f"{path.relative_to(ROOT)}:{line_number}", text) for line_number, text in _read_code_texts(path)
        ]
    pages = [path for path in sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")) if path.is_file()]
    for path in pages:
        texts_with_places += [
            (f"{path.relative_to(ROOT)}:{line_number}", text) for line_number, text in _read_paragraphs(path)
        ]
    return texts_with_places


def list_names() -> list[tuple[str, str]]:
    """Return each assigned name of the code with its place and the line that assigns the name."""
    names_with_places = []
    for path in _list_code_files():
        source_text = path.read_text(encoding="utf-8")
        lines = source_text.splitlines()
        for node in ast.walk(ast.parse(source_text)):
            for name in _list_assigned_names(node):
                if len(name.strip("_")) >= _MIN_NAME_LENGTH:
                    line_number = getattr(node, "lineno", 1)
                    names_with_places.append(
                        (f"{path.relative_to(ROOT)}:{line_number}", f"{name}    in: {lines[line_number - 1].strip()}")
                    )
    return names_with_places


def _list_code_files() -> list[Path]:
    return [path for folder in _CODE_FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def _read_code_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, comments, messages and claims of test names in a module, each with its line."""
    source_text = path.read_text(encoding="utf-8")
    tree = ast.parse(source_text)
    fstring_part_ids = {
        id(fstring_part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for fstring_part in node.values
    }
    # A docstring below an assignment describes the assignment. So the first line of the assignment comes with the text.
    assignment_line_by_docstring_id = {
        id(docstring.value): source_text.splitlines()[assignment.lineno - 1].strip() + "\n"
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef)
        for assignment, docstring in pairwise(node.body)
        if isinstance(docstring, ast.Expr) and isinstance(assignment, ast.Assign | ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in fstring_part_ids:
            if len(node.value.split()) >= _MIN_WORD_COUNT:
                yield node.lineno, assignment_line_by_docstring_id.get(id(node), "") + node.value.strip()
        elif isinstance(node, ast.JoinedStr):
            text = ast.unparse(node)
            if len(text.split()) >= _MIN_WORD_COUNT:
                yield node.lineno, text
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name
    yield from _read_comments(path)


def _read_comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each comment of a module with its line. A comment after code comes with the code of its line. Consecutive
    lines that have only a comment are one text, with the line of code below the text."""
    text, first_line_number, last_line_number = "", 0, 0
    lines = path.read_text(encoding="utf-8").splitlines()
    with path.open("rb") as file:
        comment_tokens = [token for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    for token in comment_tokens:
        line_number = token.start[0]
        if _TOOL_COMMENT_PATTERN.match(token.string):
            continue
        if not token.line.lstrip().startswith("#"):
            yield line_number, token.line.strip()
        elif text and line_number == last_line_number + 1:
            text, last_line_number = f"{text}\n{token.string}", line_number
        else:
            if text:
                yield first_line_number, "\n".join([text, *lines[last_line_number : last_line_number + 1]])
            text, first_line_number, last_line_number = token.string, line_number, line_number
    if text:
        yield first_line_number, "\n".join([text, *lines[last_line_number : last_line_number + 1]])


def _read_paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each paragraph of a Markdown page. Also yield each row of a table, after the header of its table. Code
    blocks are left out."""
    text = path.read_text(encoding="utf-8")
    text = _FENCED_BLOCK_PATTERN.sub(lambda block: re.sub(r"[^\n]", "", block[0]), text)
    line_number = 1
    for block in re.split(r"(\n\s*\n)", text):
        stripped_block = block.strip()
        if stripped_block.startswith("|"):
            header, *table_rows = stripped_block.splitlines()
            for index, table_row in enumerate(table_rows, start=1):
                if not set(table_row) <= set("|-: "):
                    yield line_number + index, f"{header}\n{table_row}"
        elif len(stripped_block.split()) >= _MIN_WORD_COUNT:
            yield line_number, stripped_block
        line_number += block.count("\n")


def _list_assigned_names(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Name(ctx=ast.Store()):
            return [node.id]
        case ast.arg() if node.arg not in {"self", "cls"}:
            return [node.arg]
    return []


if __name__ == "__main__":
    main()
