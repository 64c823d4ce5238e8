"""The sections that code, tests and pages cite are in the repository."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = {"architecture": ROOT / "docs" / "architecture.md", "service-api.md": ROOT / "docs" / "service-api.md"}
CITATION = re.compile(r"\b(architecture|service-api\.md)\s+(\d+(?:\.\d+)?)")
ELSEWHERE = re.compile(r"(?<!service-)\bapi\.md\b|\bdesign,?\s+(?:sections?\s+)?\d")


def read_texts() -> dict[str, str]:
    """Every module and page, without the marks that begin its comments and quotes."""
    modules = [path for top in ("connector", "pipelines", "tests") for path in sorted((ROOT / top).rglob("*.py"))]
    paths = [*modules, *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    return {
        str(path.relative_to(ROOT)): re.sub(r"\n *# ", "\n", path.read_text(encoding="utf-8"))
        for path in paths
        if path != Path(__file__)
    }


def list_sections(page: str) -> set[str]:
    """The numbers of its headings, and of paragraphs that begin with a number in bold."""
    return set(re.findall(r"^(?:#+ |- \*\*)(\d+(?:\.\d+)?)[.* ]", page, re.MULTILINE))


def test_every_section_that_is_cited_exists() -> None:
    for name in PAGES:
        sections = list_sections(PAGES[name].read_text(encoding="utf-8"))
        cited = {
            (place, section)
            for place, text in read_texts().items()
            for page, section in CITATION.findall(text)
            if page == name
        }
        assert len(cited) > 20, "the citations are not found"
        assert {citation for citation in cited if citation[1] not in sections} == set()


def test_no_document_is_cited_that_is_not_in_the_repository() -> None:
    found = {place: ELSEWHERE.findall(text) for place, text in read_texts().items()}
    assert {place: words for place, words in found.items() if words} == {}


def test_every_function_that_architecture_names_is_in_its_file() -> None:
    named = re.findall(r"`([\w/]+\.py):(\w+)`", PAGES["architecture"].read_text(encoding="utf-8"))
    assert len(named) > 10, "the names are not found"
    texts = {file: (ROOT / "connector" / file).read_text(encoding="utf-8") for file, _ in named}
    assert [
        name for name in named if not re.search(rf"(?m)^ *(?:async )?(?:def |class )?{name[1]}\b", texts[name[0]])
    ] == []
