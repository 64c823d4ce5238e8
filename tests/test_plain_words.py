"""Pages (help texts and job keys among them), messages, docstrings, comments and names are free of words that make a
sentence hard to read."""

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *filter(Path.is_file, (ROOT / "configs").rglob("*"))]
MODULES = [path for top in ("connector", "pipelines") for path in (ROOT / top).rglob("*.py")]
WORDS = re.compile(
    r"\b(nobody|somebody|anybody|everybody|whoever|whomever|whom|anew|whence|thereof|told|those who|of use"
    r"|it is said|(?-i:is none))\b"
    r"|(?<!--)\bpeople\b(?!\.\w)",  # neither the option nor a file's name
    re.IGNORECASE,
)
IN_NAMES = re.compile(r"(?i)(?:^|_)(nobody|somebody|anybody|everybody|whoever|whom|anew|told)(?:$|_)")
QUOTED_CODE = re.compile(r"`[^`]*`")
KEYS_OF_THE_SANDBOX = {"told", "_told"}  # `inside_retry_after.told` of GET /_sandbox/stats


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def find_words(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if WORDS.search(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert find_words(page.read_text(encoding="utf-8")) == []


def test_messages_are_in_plain_words() -> None:
    texts = [text for path in MODULES for text in list_texts(parse(path))]
    assert len(texts) > 1000, "the texts are not found"
    assert [line for text in texts for line in find_words(text)] == []


def list_texts(module: ast.Module) -> list[str]:
    """The string literals of more than a word, without the docstrings: what a message is made of."""
    nodes = list(ast.walk(module))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    literals = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]
    texts = [literal.value for literal in literals if isinstance(literal.value, str)]
    return [text for text in texts if " " in text.strip()]


def test_docstrings_and_comments_are_in_plain_words() -> None:
    prose = [(path, text) for path in MODULES for text in list_prose(path.read_text(encoding="utf-8"))]
    assert len(prose) > 3000, "docstrings and comments are not found"
    assert [(path.name, line) for path, text in prose for line in find_words(QUOTED_CODE.sub("", text))] == []


def list_prose(source: str) -> list[str]:
    """The comments and the strings that stand alone: docstrings of modules, types, functions and constants."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    alone = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)]
    return [
        *comments,
        *(node.value for node in alone if isinstance(node, ast.Constant) and isinstance(node.value, str)),
    ]


def test_names_are_plain_words() -> None:
    names = {name for path in MODULES for name in list_names(parse(path))}
    assert len(names) > 3000, "the names are not found"
    assert sorted(name for name in names - KEYS_OF_THE_SANDBOX if IN_NAMES.search(name)) == []


def list_names(module: ast.Module) -> set[str]:
    """The names that a module binds or uses: variables, arguments, attributes, functions and types."""
    nodes = list(ast.walk(module))
    definitions = {
        node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    variables = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return definitions | variables | attributes | {node.arg for node in nodes if isinstance(node, ast.arg)}


@pytest.mark.parametrize(
    "source", ['"""Whom it is for."""', "x = 1  # counted anew", "def f():\n    'See what it told.'"]
)
def test_the_check_sees_a_hard_word_in_a_docstring_or_comment(source: str) -> None:
    assert [line for text in list_prose(source) for line in find_words(text)] != []


@pytest.mark.parametrize("source", ["nobody = 1", "def f(told): ...", "x.note_told", "class F:\n    TOLD_APART_BY = 8"])
def test_the_check_sees_a_hard_word_in_a_name(source: str) -> None:
    assert any(IN_NAMES.search(name) for name in list_names(ast.parse(source)))
