"""The simulation fails if one of the ten precautions of architecture 4.1 to 4.9 is removed from the program."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.simulation.copies import ProgramCopySimulator, open_copy_simulator
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.simulate import EXCEPTION_CLAIM, simulate_seeds

ROOT = Path(__file__).parents[2]
SEED_COUNT_PER_MUTATION = 200
"""The number of seeds that are simulated with each mutation: three times the largest number that a mutation needs
today. Each change of the program changes the events of a seed, so later versions may need more seeds."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of a text that occurs once in a file of `connector/`."""

    file: str
    old_text: str
    new_text: str

    def apply(self, root: Path) -> None:
        """Change the copy of the program at `root`. Raise ValueError if the file does not contain `old_text` exactly
        once."""
        path = root / "connector" / self.file
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.old_text)) != 1:
            raise ValueError(f"connector/{self.file} contains the text of a mutation {count} times: {self.old_text!r}")
        path.write_text(text.replace(self.old_text, self.new_text), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to break the program. At least one of `SEED_COUNT_PER_MUTATION` seeds from `first_seed` on must fail."""

    name: str
    edits: tuple[Edit, ...]
    first_seed: int = 0  # a number above 0 saves time: it leaves out seeds that the mutation does not affect


_RESOLUTION_FILE = "load/resolution.py"
_UNRESOLVED_FILE = "load/unresolved.py"
MUTATIONS = (
    Mutation(
        "4.1 a request leaves before the commit of its intent",
        (
            Edit(
                "ledger/commits.py",
                "assert_never(state)\n\n        await self.execute(record_intents)",
                "assert_never(state)\n\n"
                "        self.commit = asyncio.ensure_future(self.execute(record_intents))\n"
                "        await asyncio.sleep(0)",
            ),
        ),
    ),
    Mutation(
        "4.3 the creates that a killed run was sending are forgotten",
        (
            Edit(
                "ledger/entries.py",
                "return self.connection.execute(_SET_STATE_OF_ALL_ENTRIES, parameters | self._range).rowcount",
                "return len(parameters)",
            ),
        ),
        first_seed=12,
    ),
    Mutation(
        "4.4 a create is sent again without a check of the suppression list",
        (Edit(_RESOLUTION_FILE, "session.is_suppressed(entry.identity, self._read_newest_values(entry))", "False"),),
        first_seed=352,
    ),
    Mutation(
        "4.5 the run does not wait for quiet periods",
        (
            Edit(
                _UNRESOLVED_FILE,
                "started_at >= self.attempt_ended_at + quiet_period_s",
                "started_at >= self.attempt_ended_at",
            ),
            Edit(
                _RESOLUTION_FILE,
                "            quiet_period_s = self._session.policy.quiet_period_s",
                "            quiet_period_s = 0.0",
            ),
            Edit(
                _RESOLUTION_FILE,
                "unresolved_create.first_missed_at + session.policy.quiet_period_s",
                "unresolved_create.first_missed_at",
            ),
        ),
        first_seed=16,
    ),
    Mutation(
        "4.5 one look-up proves absence",
        (
            Edit(
                _RESOLUTION_FILE,
                "result.started_at < unresolved_create.first_missed_at + session.policy.quiet_period_s",
                "result.started_at < unresolved_create.first_missed_at",
            ),
        ),
        first_seed=16,
    ),
    Mutation(
        "4.5 a look-up without a later confirmed create proves absence",
        (
            Edit(
                _RESOLUTION_FILE,
                "return find_latest_confirmation_time(confirmed_creates) > unresolved_create.attempt_ended_at",
                "return True",
            ),
        ),
        first_seed=406,
    ),
    Mutation(
        "4.6 on_unknown: hold is ignored",
        (Edit(_RESOLUTION_FILE, "if holds_entry and not unresolved_create.is_refused:", "if False:"),),
        first_seed=36,
    ),
    Mutation(
        "4.7 no subscriber is looked up before the create",
        (
            Edit(
                "load/presence.py",
                "_ALREADY_EXPIRED if session.policy.looks_up_first else _NEVER_EXPIRES",
                "_NEVER_EXPIRES",
            ),
        ),
    ),
    Mutation(
        "4.8 refused rows are not looked up at the end of the run",
        (
            Edit(
                _RESOLUTION_FILE,
                "            await self.refusals.look_up_rows(self.outcomes.list_unchecked_rows())\n",
                "            pass\n",
            ),
        ),
        first_seed=52,
    ),
    Mutation(
        "4.9 a run does not refuse a base, although the service has put a create of this base into another base",
        (Edit("load/checks.py", "    if not base.has_wrong_answer:\n", "    if base:\n"),),
        first_seed=2,
    ),
)


@pytest.fixture(scope="module")
def program_copy_simulator() -> Iterator[ProgramCopySimulator]:
    with open_copy_simulator() as runner:
        yield runner


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_simulation_fails_if_a_mutation_removes_a_precaution(
    mutation: Mutation, program_copy_simulator: ProgramCopySimulator, tmp_path: Path
) -> None:
    for name in ("connector", "tests/simulation"):
        shutil.copytree(ROOT / name, tmp_path / name)  # with the compiled modules, so that the copy starts faster
    (tmp_path / "tests" / "__init__.py").touch()
    for edit in mutation.edits:
        edit.apply(tmp_path)
    result = program_copy_simulator.simulate_seeds_in_copy(tmp_path, mutation.first_seed, SEED_COUNT_PER_MUTATION)
    assert result.returncode == 1, "no seed failed"
    assert result.stdout.startswith("python -m tests.simulation "), result.stderr
    assert EXCEPTION_CLAIM not in result.stdout, (
        f"the mutation only lets the program end with an exception: {result.stdout}"
    )
    seed = int(result.stdout.split()[3])
    assert [result.contradictions for result in simulate_seeds(range(seed, seed + 1), Ledgers())] == [[]], (
        "the seed fails without the mutation too"
    )
