"""The sections, documents and functions that code, tests and pages cite exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE_PATH_BY_NAME = {
    "architecture": ROOT / "docs" / "architecture.md",
    "service-api.md": ROOT / "docs" / "service-api.md",
}
CITATION_PATTERN = re.compile(r"\b(architecture|service-api\.md)\s+(\d+(?:\.\d+)?)")
MISSING_DOCUMENT_PATTERN = re.compile(r"(?<!service-)\bapi\.md\b|\bdesign,?\s+(?:sections?\s+)?\d")


def read_texts() -> dict[str, str]:
    """Return the text of every module and page by its path. The `#` at the start of comment lines is removed."""
    modules = [
        path for top_folder in ("connector", "pipelines", "tests") for path in sorted((ROOT / top_folder).rglob("*.py"))
    ]
    paths = [*modules, *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    return {
        str(path.relative_to(ROOT)): re.sub(r"\n *# ", "\n", path.read_text(encoding="utf-8"))
        for path in paths
        if path != Path(__file__)
    }


def list_sections(page: str) -> set[str]:
    """Return the numbers of the headings of a page, and of the paragraphs that begin with a number in bold."""
    return set(re.findall(r"^(?:#+ |- \*\*)(\d+(?:\.\d+)?)[.* ]", page, re.MULTILINE))


def test_every_section_that_is_cited_exists() -> None:
    for name in PAGE_PATH_BY_NAME:
        sections = list_sections(PAGE_PATH_BY_NAME[name].read_text(encoding="utf-8"))
        citations = {
            (path, section)
            for path, text in read_texts().items()
            for page, section in CITATION_PATTERN.findall(text)
            if page == name
        }
        assert len(citations) > 20, "the pattern finds too few citations"
        assert {citation for citation in citations if citation[1] not in sections} == set()


def test_the_texts_cite_only_existing_documents() -> None:
    citations = {path: MISSING_DOCUMENT_PATTERN.findall(text) for path, text in read_texts().items()}
    assert {path: cited_texts for path, cited_texts in citations.items() if cited_texts} == {}


def test_every_function_that_architecture_cites_is_in_its_file() -> None:
    citations = re.findall(r"`([\w/]+\.py):(\w+)`", PAGE_PATH_BY_NAME["architecture"].read_text(encoding="utf-8"))
    assert len(citations) > 10, "the pattern finds too few citations"
    texts = {file: (ROOT / "connector" / file).read_text(encoding="utf-8") for file, _ in citations}
    assert [
        citation
        for citation in citations
        if not re.search(rf"(?m)^ *(?:async )?(?:def |class )?{citation[1]}\b", texts[citation[0]])
    ] == []


def test_every_name_of_the_code_that_architecture_cites_is_in_the_code() -> None:
    page = PAGE_PATH_BY_NAME["architecture"].read_text(encoding="utf-8")
    cited_names = set(re.findall(r"`(?:[A-Z]\w*\.)?(_?[a-z]\w*_\w+)`", page))
    assert len(cited_names) > 20, "the pattern finds too few names"
    modules = [path for top_folder in ("connector", "pipelines") for path in (ROOT / top_folder).rglob("*.py")]
    words = {word for path in modules for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    assert cited_names - words == set()
