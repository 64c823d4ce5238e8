"""The README and the pages of docs/: the commands run as printed, the targets of the links exist, and the pages of the
reference describe the code."""

import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from connector.sandbox import SandboxProcess
from connector.warehouse.columns import SCHEMA
from tests.databases import open_postgres
from tests.pipelines.forked import run_script, run_without_waits, serve_programs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SANDBOX_TOKEN = "sandbox"

_BLOCK_PATTERN = re.compile(
    r"(?:Save\s+this\s+as\s+`(?P<name>[^`]+)`[^\n]*\n\n)?(?:<!-- exit codes: (?P<codes>[\d, ]+) -->\n)?"
    r"```(?P<language>\w+)\n(?P<text>.*?)```",
    re.DOTALL,
)
_LEDGER_URL = "postgresql://connector@db.internal/connector"  # pages show this URL instead of the reader's own server
_SANDBOX_COMMAND = "connector sandbox --port 8080 --token sandbox\n"
_TUTORIAL_LINK = "tutorial.md#start-the-sandbox"  # a page with this link needs the settings of the tutorial


@dataclass(frozen=True)
class CodeBlock:
    """A code block of a page. `name` is the file in which the reader saves the block. `exit_codes` are the expected
    exit codes of its lines, or empty if all are 0."""

    language: str
    text: str
    name: str | None
    exit_codes: tuple[int, ...]


def read_blocks(page: Path) -> list[CodeBlock]:
    """Return the code blocks in their order. Blocks with `venv --clear` are left out, because these blocks
    install packages."""
    matches = _BLOCK_PATTERN.finditer(page.read_text(encoding="utf-8"))
    blocks = [
        CodeBlock(
            match["language"], match["text"], match["name"], tuple(map(int, re.findall(r"\d+", match["codes"] or "")))
        )
        for match in matches
    ]
    return [block for block in blocks if "venv --clear" not in block.text]


def list_blocks_to_run(page: Path) -> list[CodeBlock]:
    """Return the blocks that a reader of the page runs, in their order. If the page links to the settings of the
    tutorial, these settings come first."""
    blocks = read_blocks(page)
    if _TUTORIAL_LINK not in page.read_text(encoding="utf-8"):
        return blocks
    tutorial_blocks = read_blocks(ROOT / "docs" / "tutorial.md")
    return [next(block for block in tutorial_blocks if block.text.startswith("export ")), *blocks]


def build_script(blocks: list[CodeBlock], port: str) -> Iterator[str]:
    """Yield the commands of the page in their order, as parts of one script that ends at the first failed command.

    A comment of the page, `<!-- exit codes: 1, 0 -->`, has the expected exit codes of the lines of the next block. The
    script does not start the sandbox, which runs already at another port.
    """
    for block in blocks:
        text = block.text.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        if block.name is not None:
            yield f"cat > '{block.name}' <<'END OF FILE'\n{text}END OF FILE\n"
        elif block.language == "python":
            yield f"python - <<'END OF FILE'\n{text}END OF FILE\n"
        elif block.language == "sh" and block.text != _SANDBOX_COMMAND:
            lines = text.splitlines()
            for line, exit_code in zip(lines, block.exit_codes or [0] * len(lines), strict=True):
                yield f"code=0; {line} || code=$?; [ $code -eq {exit_code} ]" if exit_code else line


@pytest.fixture(scope="module")
def server() -> Iterator[SandboxProcess]:
    with SandboxProcess(token=SANDBOX_TOKEN) as sandbox:
        yield sandbox


RUNNABLE_PAGES = [page for page in PAGES if any(block.language in ("sh", "python") for block in read_blocks(page))]


@pytest.mark.parametrize("page", RUNNABLE_PAGES, ids=[page.stem for page in RUNNABLE_PAGES])
def test_the_commands_of_a_page_run_as_printed(page: Path, server: SandboxProcess, tmp_path: Path) -> None:
    server.reset()
    programs_folder, folder = tmp_path / "bin", tmp_path / "folder"
    programs_folder.mkdir()
    folder.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("CONNECTOR_", "XDG_"))}
    for name in re.findall(r"\]\(([^/)]+\.xlsx)\)", page.read_text(encoding="utf-8")):
        shutil.copy(page.parent / name, folder)  # readers of the page download this file
    script = "set -x\n" + "\n".join(build_script(list_blocks_to_run(page), server.base_url.rpartition(":")[2]))
    with (
        serve_programs({programs_folder / "connector": run_without_waits, programs_folder / "python": run_script}),
        ExitStack() as exit_stack,
    ):
        if _LEDGER_URL in script:
            script = script.replace(_LEDGER_URL, exit_stack.enter_context(open_postgres()).url)
        result = subprocess.run(
            ["bash", "-e", "-u", "-c", script],
            cwd=folder,
            env=environ
            | {"PATH": f"{programs_folder}:{os.environ['PATH']}", "HOME": str(tmp_path / "home")}
            | {"DLT_DATA_DIR": str(tmp_path / "dlt")},  # without this setting, dlt as root writes into /var/dlt
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_pages_of_the_reference_are_generated_from_the_current_code() -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "generate_reference.py"))["build_pages"]()
    outdated_pages = [
        name for name, text in pages.items() if (ROOT / "docs" / "reference" / name).read_text("utf-8") != text
    ]
    assert not outdated_pages, "run: python docs/generate_reference.py"


def test_every_environment_variable_of_the_code_is_on_its_page() -> None:
    modules = [path for top_folder in ("connector", "pipelines") for path in (ROOT / top_folder).rglob("*.py")]
    variable_names = {
        name for path in modules for name in re.findall(r"\bCONNECTOR_[A-Z_]+\b", path.read_text("utf-8"))
    }
    page = (ROOT / "docs" / "reference" / "environment.md").read_text("utf-8")
    assert variable_names == set(re.findall(r"^\| `(CONNECTOR_\w+)`", page, re.MULTILINE))


def test_the_table_for_redshift_has_the_columns_of_an_exported_file_in_order() -> None:
    page_text = (ROOT / "docs" / "how-to" / "warehouses.md").read_text(encoding="utf-8")
    (table_text,) = re.findall(r"create table subscribers \(\n(.*?)\n\);", page_text, re.DOTALL)
    assert [column.split()[0] for column in table_text.split(",")] == SCHEMA.names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_targets_of_links_between_pages_exist(page: Path) -> None:
    link_targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert not [target for target in link_targets if not (page.parent / target).exists()]


def test_the_pages_use_only_known_languages_of_code_blocks() -> None:
    languages = {block.language for page in PAGES for block in read_blocks(page)}
    assert languages == {"sh", "python", "pycon", "yaml", "sql", "html", "text"}


def test_the_first_page_of_the_site_lists_every_page() -> None:
    linked_pages = re.findall(
        r"^([A-Za-z/-]+)$", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in PAGES[1:]}
    assert pages - {"index"} == set(linked_pages)


def test_every_page_names_its_readers() -> None:
    pages = [page for page in PAGES if page.name not in ("README.md", "index.md")]
    assert [page.name for page in pages if "This page is for you if" not in page.read_text("utf-8")] == []


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200
