"""What the README and the pages of docs/ say is so: their commands run as printed, their links lead somewhere, and the
pages of the reference are the code's."""

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
from tests.databases import open_postgres
from tests.pipelines.forked import interpret, run_without_waits, serve_programs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TOKEN = "sandbox"

_BLOCK = re.compile(
    r"(?:Save\s+this\s+as\s+`(?P<name>[^`]+)`[^\n]*\n\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL
)
_LEDGER = "postgresql://connector@db.internal/connector"  # stands for a server of the reader's own
_EXIT = re.compile(r"^(?P<command>.*?)  # exit (?P<code>\d+)$", re.MULTILINE)
_SANDBOX = "connector sandbox --port 8080 --token sandbox\n"
_START = "tutorial.md#start-the-sandbox"  # a page with this link has the settings of the tutorial


@dataclass(frozen=True)
class Block:
    """A block of a page; `name` is the file that the page has it saved as."""

    language: str
    text: str
    name: str | None


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks in order, without those that make an environment, which CI runs."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    blocks = [Block(each["language"], each["text"], each["name"]) for each in found]
    return [block for block in blocks if "venv --clear" not in block.text]


def read_page(page: Path) -> list[Block]:
    """Return the blocks that a reader of the page runs, in order: first the tutorial's settings, if the page links to
    them."""
    blocks = read_blocks(page)
    if _START not in page.read_text(encoding="utf-8"):
        return blocks
    tutorial = read_blocks(ROOT / "docs" / "tutorial.md")
    return [next(block for block in tutorial if block.text.startswith("export ")), *blocks]


def build_script(blocks: list[Block], port: str) -> Iterator[str]:
    """Give the page's commands in order, as one script that ends at the first that fails.

    A comment `# exit 1` says how a command ends; the sandbox runs already, at another port.
    """
    for block in blocks:
        text = block.text.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        if block.name is not None:
            yield f"cat > '{block.name}' <<'END OF FILE'\n{text}END OF FILE\n"
        elif block.language == "python":
            yield f"python - <<'END OF FILE'\n{text}END OF FILE\n"
        elif block.language == "sh" and block.text != _SANDBOX:
            yield _EXIT.sub(r"code=0; \g<command> || code=$?; [ $code -eq \g<code> ]", text)


@pytest.fixture(scope="module")
def server() -> Iterator[SandboxProcess]:
    with SandboxProcess(token=TOKEN) as sandbox:
        yield sandbox


RUNNABLE = [page for page in PAGES if any(block.language in ("sh", "python") for block in read_blocks(page))]


@pytest.mark.parametrize("page", RUNNABLE, ids=[page.stem for page in RUNNABLE])
def test_a_pages_commands_run_as_printed(page: Path, server: SandboxProcess, tmp_path: Path) -> None:
    server.reset()
    programs, folder = tmp_path / "bin", tmp_path / "folder"
    programs.mkdir()
    folder.mkdir()
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("CONNECTOR_", "XDG_"))}
    for name in re.findall(r"\]\(([^/)]+\.xlsx)\)", page.read_text(encoding="utf-8")):
        shutil.copy(page.parent / name, folder)  # the page tells its reader to download this file
    script = "set -x\n" + "\n".join(build_script(read_page(page), server.base_url.rpartition(":")[2]))
    with (
        serve_programs({programs / "connector": run_without_waits, programs / "python": interpret}),
        ExitStack() as databases,
    ):
        if _LEDGER in script:
            script = script.replace(_LEDGER, databases.enter_context(open_postgres()).url)
        ended = subprocess.run(
            ["bash", "-e", "-u", "-c", script],
            cwd=folder,
            env=bare
            | {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path / "home")}
            | {"DLT_DATA_DIR": str(tmp_path / "dlt")},  # else /var/dlt, for root
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_reference_is_what_the_code_says() -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "generate_reference.py"))["build_pages"]()
    behind = [name for name, text in pages.items() if (ROOT / "docs" / "reference" / name).read_text("utf-8") != text]
    assert not behind, "run: python docs/generate_reference.py"


def test_every_variable_is_on_its_page() -> None:
    modules = [path for top in ("connector", "pipelines") for path in (ROOT / top).rglob("*.py")]
    names = {name for path in modules for name in re.findall(r"\bCONNECTOR_[A-Z_]+\b", path.read_text("utf-8"))}
    page = (ROOT / "docs" / "reference" / "environment.md").read_text("utf-8")
    assert names == set(re.findall(r"^\| `(CONNECTOR_\w+)`", page, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert not [target for target in targets if not (page.parent / target).exists()]


def test_the_site_knows_the_language_of_each_block() -> None:
    languages = {block.language for page in PAGES for block in read_blocks(page)}
    assert languages == {"sh", "python", "pycon", "yaml", "sql", "html", "text"}


def test_every_page_is_on_the_sites_first_page() -> None:
    listed = re.findall(r"^([A-Za-z/-]+)$", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in PAGES[1:]}
    assert pages - {"index"} == set(listed)


def test_every_page_says_whom_it_is_for() -> None:
    pages = [page for page in PAGES if page.name not in ("README.md", "index.md")]
    assert [page.name for page in pages if "This page is for you if" not in page.read_text("utf-8")] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200
