"""What a user reads is free of words that make a sentence hard to read: pages (help texts and job keys among them) and
messages."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "configs").iterdir()]
WORDS = re.compile(
    r"\b(nobody|somebody|anybody|everybody|whoever|whomever|whom|anew|whence|thereof|told|those who|is none)\b"
    r"|(?<!--)\bpeople\b(?!\.\w)",  # neither the option nor a file's name
    re.IGNORECASE,
)


def find_words(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if WORDS.search(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert find_words(page.read_text(encoding="utf-8")) == []


def test_messages_are_in_plain_words() -> None:
    modules = [path for top in ("connector", "pipelines") for path in (ROOT / top).rglob("*.py")]
    texts = [text for path in modules for text in list_texts(ast.parse(path.read_text(encoding="utf-8")))]
    assert len(texts) > 1000, "the texts are not found"
    assert [line for text in texts for line in find_words(text)] == []


def list_texts(module: ast.Module) -> list[str]:
    """The string literals of more than a word, without the docstrings: what a message is made of."""
    nodes = list(ast.walk(module))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    literals = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]
    texts = [literal.value for literal in literals if isinstance(literal.value, str)]
    return [text for text in texts if " " in text.strip()]
