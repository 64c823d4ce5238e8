"""What the README says is so: its commands run as printed, its reference is the code's."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from connector.sandbox import SandboxProcess
from pipelines.demo_people import write_crm, write_people
from pipelines.reference import replace_reference
from tests.pipelines.conftest import write_csv

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [block for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "venv" not in block]
TOKEN = "sandbox"


def test_the_reference_is_what_the_code_says() -> None:
    assert replace_reference(README) == README, "run: python -m pipelines.reference README.md"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, SandboxProcess]]:
    """A folder with what the README's commands read, and the made-up service that they speak to."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "bin").mkdir()
    shim = folder / "bin" / "connector"
    shim.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m pipelines "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "srv").mkdir()
    write_csv(folder / "people.csv", "email,Rufname", "ann@example.com,Ann", "bob@example.com,Bob")
    imported = write_people(folder / "demo.csv", 50, 1)
    write_crm(folder / "srv" / "crm.db", imported.people, added=1, changed=1, seed=1)
    with SandboxProcess(token=TOKEN) as sandbox:
        ended = run(
            "connector import people.csv --base-name Newsletter --active", folder, sandbox
        )  # so that any block may come first
        assert ended.returncode == 0, ended.stderr
        yield folder, sandbox


def run(script: str, folder: Path, sandbox: SandboxProcess, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a script as somebody would who follows the README."""
    given = {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "CONNECTOR_STATE_DIR": str(folder / "state"),
        "CONNECTOR_BASE_URL": sandbox.base_url,
        "CONNECTOR_TOKEN": TOKEN,
    }
    return subprocess.run(
        ["bash", "-e", "-u", "-c", script],
        cwd=folder,
        env=os.environ | given | environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.strip().splitlines()[-1][:60])
def test_a_block_of_commands_runs_as_printed(block: str, bench: tuple[Path, SandboxProcess]) -> None:
    folder, sandbox = bench
    script = block.replace("http://127.0.0.1:8080", sandbox.base_url).replace("/srv/", f"{folder}/srv/")
    ended = run(script, folder, sandbox)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    if "WAREHOUSE_URL" in block:  # the table is where the block says
        with closing(sqlite3.connect(folder / "srv" / "warehouse.db")) as database:
            assert database.execute("SELECT count(*) FROM subscribers").fetchone() is not None


def test_the_crontab_line_is_a_command_that_runs(bench: tuple[Path, SandboxProcess]) -> None:
    folder, sandbox = bench
    line = re.search(r"^0 2 \* \* \*  (connector .*)$", README, re.MULTILINE)
    assert line is not None
    script = line[1].replace("/srv/configs", str(ROOT / "configs")).replace("/var/log", str(folder))
    ended = run(script, folder, sandbox, CRM_URL=f"sqlite:///{folder}/srv/crm.db")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert (folder / "crm.json").exists()


@pytest.mark.parametrize(
    ("code", "shown"),
    list(
        zip(
            re.findall(r"```python\n(.*?)```", README, re.DOTALL),
            ("len(frame)", "certificate.decode(), reader.read_all().num_rows"),
            strict=True,
        )
    ),
    ids=["a frame", "batches"],
)
def test_the_python_of_the_readme_runs(code: str, shown: str, bench: tuple[Path, SandboxProcess]) -> None:
    _, sandbox = bench
    script = code.replace("http://127.0.0.1:8080", sandbox.base_url) + f"\nprint({shown}, 'rows')"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stdout.endswith(" rows\n"), ended.stderr
