"""The simulation fails if one of the ten precautions of architecture 4.1 to 4.9 is taken out of the program."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.simulation.copies import Copies, open_copies
from tests.simulation.memory_ledger import Ledgers
from tests.simulation.simulate import FAILED, simulate_seeds

ROOT = Path(__file__).parents[2]
SEEDS = 200
"""Three times as many as a mutation needs: the course of a seed changes with the program."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of the text `old` in one file of `connector/`, which contains the text once."""

    file: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Change the copy of the program at `root`. Raise ValueError if the file does not contain `old` once."""
        path = root / "connector" / self.file
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"connector/{self.file} contains {count} times what a mutation replaces: {self.old!r}")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way to break the program, which one of `SEEDS` seeds from `first` on must notice."""

    name: str
    edits: tuple[Edit, ...]
    first: int = 0  # a later seed saves the time of the seeds that do not notice the mutation


_RESOLUTION = "load/resolution.py"
MUTATIONS = (
    Mutation(
        "4.1 a request leaves before the commit of its intent",
        (
            Edit(
                "ledger/commits.py",
                "ledger.mark_absent(self.base, self.run_key, by_state[State.UNKNOWN])\n\n        await self.ask(write)",
                "ledger.mark_absent(self.base, self.run_key, by_state[State.UNKNOWN])\n\n"
                "        self.asked = asyncio.ensure_future(self.ask(write))\n        await asyncio.sleep(0)",
            ),
        ),
    ),
    Mutation(
        "4.3 the creates that a dead run was sending are forgotten",
        (
            Edit(
                "ledger/entries.py",
                "return self.connection.execute(_SET_ALL, values | self._range).rowcount",
                "return len(values)",
            ),
        ),
        first=12,
    ),
    Mutation(
        "4.4 the suppression list is not asked before a create is sent again",
        (Edit(_RESOLUTION, "session.is_suppressed(entry.identity, self._read_newest(entry))", "False"),),
        first=352,
    ),
    Mutation(
        "4.5 no quiet period is waited for",
        (
            Edit(
                _RESOLUTION,
                "result.started_at >= unresolved.since + self._session.policy.quiet_period_s",
                "result.started_at >= unresolved.since",
            ),
            Edit(_RESOLUTION, "        quiet_s = self._session.policy.quiet_period_s", "        quiet_s = 0.0"),
            Edit(_RESOLUTION, "unresolved.missed_at + session.policy.quiet_period_s", "unresolved.missed_at"),
        ),
        first=16,
    ),
    Mutation(
        "4.5 one look-up proves absence",
        (
            Edit(
                _RESOLUTION,
                "result.started_at < unresolved.missed_at + session.policy.quiet_period_s",
                "result.started_at < unresolved.missed_at",
            ),
        ),
        first=16,
    ),
    Mutation(
        "4.5 absence needs no sentinel that came later",
        (
            Edit(
                _RESOLUTION,
                "return find_latest_time(sentinels) > unresolved.since",
                "return True",
            ),
        ),
        first=406,
    ),
    Mutation(
        "4.6 hold is ignored",
        (Edit(_RESOLUTION, "if is_holding and not unresolved.is_refused:", "if False:"),),
        first=36,
    ),
    Mutation(
        "4.7 no subscriber is looked up before the create",
        (Edit("load/presence.py", "_NEVER if session.policy.is_looking else _ALWAYS", "_ALWAYS"),),
    ),
    Mutation(
        "4.8 refused rows are not looked up at the end of the run",
        (
            Edit(
                _RESOLUTION,
                "            await self.refusals.look_up(self.outcomes.list_unchecked())\n",
                "            pass\n",
            ),
        ),
        first=52,
    ),
    Mutation(
        "4.9 a base that was answered as another is forgotten",
        (Edit("load/checks.py", "    if not base.is_misanswered:\n", "    if base:\n"),),
        first=2,
    ),
)


@pytest.fixture(scope="module")
def copies() -> Iterator[Copies]:
    with open_copies() as opened:
        yield opened


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_simulation_notices_that(mutation: Mutation, copies: Copies, tmp_path: Path) -> None:
    for name in ("connector", "tests/simulation"):
        shutil.copytree(ROOT / name, tmp_path / name)  # with the compiled modules, which save seconds
    (tmp_path / "tests" / "__init__.py").touch()
    for edit in mutation.edits:
        edit.apply(tmp_path)
    ended = copies.play(tmp_path, mutation.first, SEEDS)
    assert ended.returncode == 1, "the simulation noticed nothing"
    assert ended.stdout.startswith("python -m tests.simulation "), ended.stderr
    assert FAILED not in ended.stdout, f"the mutation is a fault of another kind: {ended.stdout}"
    seed = int(ended.stdout.split()[3])
    assert [result.faults for result in simulate_seeds(range(seed, seed + 1), Ledgers())] == [[]], (
        "the seed fails without the mutation too"
    )
