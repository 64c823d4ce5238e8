"""A copy of the program is broken in each of these ways, and a seed that passes while it is whole fails, or a test does
where no seed notices soon. Outside a campaign every 48th way is tried; the others only have to fit the program."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.copies import Copies, open_copies
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.mutations import MUTATIONS, SEEDS, SEEN_BY_TESTS, Mutation, SeenByTest
from tests.simulation.simulate import FAILED, simulate_seeds
from tests.simulation.test_seeds import SEEDS as CAMPAIGN_SEEDS, USUAL_SEEDS

ROOT = Path(__file__).parents[2]
_AS_IT_IS = 10  # seeds of the unbroken copy: enough to show that a copy runs
_STRIDE = 1 if CAMPAIGN_SEEDS > USUAL_SEEDS else 48


@pytest.fixture(scope="module")
def copies() -> Iterator[Copies]:
    with open_copies() as opened:
        yield opened


def copy_program(folder: Path) -> Path:
    """The library and the simulation, and nothing else."""
    for name in ("connector", "tests/simulation"):
        shutil.copytree(ROOT / name, folder / name)  # with what is compiled: it goes by the time of its source
    (folder / "tests" / "__init__.py").touch()
    return folder


def test_every_mutation_fits_the_program_as_it_is() -> None:
    edits = [edit for mutation in MUTATIONS for edit in mutation.edits] + [each.edit for each in SEEN_BY_TESTS]
    assert [path for edit in edits if not (path := edit.find(ROOT)[0]).is_file()] == []
    named = [each.test.partition("[")[0].split("::") for each in SEEN_BY_TESTS]
    assert [name for file, name in named if f"def {name}(" not in (ROOT / "tests" / file).read_text()] == []


@pytest.mark.parametrize("mutation", MUTATIONS[::_STRIDE], ids=lambda mutation: mutation.name)
def test_the_simulation_fails_when(mutation: Mutation, copies: Copies, tmp_path: Path) -> None:
    copy_program(tmp_path)
    for edit in mutation.edits:
        edit.apply(tmp_path)
    ended = copies.play(tmp_path, mutation.first, SEEDS)
    assert ended.returncode == 1, "the simulation noticed nothing"
    assert ended.stdout.startswith("python -m tests.simulation "), ended.stderr
    assert FAILED not in ended.stdout, f"the mutation is a fault of another kind: {ended.stdout}"
    seed = int(ended.stdout.split()[3])
    assert [result.faults for result in simulate_seeds(range(seed, seed + 1), Ledgers())] == [[]], (
        "so it fails unbroken"
    )


@pytest.mark.campaign
@pytest.mark.parametrize("mutation", SEEN_BY_TESTS[::_STRIDE], ids=lambda mutation: mutation.name)
def test_a_test_fails_when(mutation: SeenByTest, tmp_path: Path) -> None:
    for name in ("connector", "pipelines", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    mutation.edit.apply(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{mutation.test}"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, " failed" in ended.stdout) == (1, True), ended.stdout + ended.stderr


@pytest.mark.campaign
def test_the_copy_as_it_is_holds_every_claim(copies: Copies, tmp_path: Path) -> None:
    ended = copies.play(copy_program(tmp_path), 0, _AS_IT_IS)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
