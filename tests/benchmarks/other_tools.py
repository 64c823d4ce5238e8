"""Other ways to the same end, each in a virtual environment of its own, made once and kept in the user's cache.

What each does is its script in `others/`; what it is measured by, this does not know.
"""

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from connector.sandbox import SandboxProcess
from tests.benchmarks.importing import build_environment
from tests.benchmarks.people import BASE_ID
from tests.benchmarks.processes import Spent, run_process

_SCRIPTS = Path(__file__).parent / "others"
_INSTALLING_S = 900.0
_RUNNING_S = 900.0

_PRIVATE = {"DO_NOT_TRACK": "1"}
"""The tools send no telemetry."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A script, its requirements, and the distribution whose version is shown."""

    name: str
    script: str
    requirements: tuple[str, ...]
    distribution: str


@dataclass(frozen=True, slots=True)
class Installed:
    """A tool that can be run, and the version that it was found in."""

    tool: Tool
    python: Path
    version: str

    @property
    def name(self) -> str:
        """The tool's, with the version."""
        return f"{self.tool.name} [{self.tool.distribution} {self.version}]"

    def load(self, sandbox: SandboxProcess, path: Path) -> Spent:
        """Load the file of people into the sandbox, in a new folder that is its home as well. Raises CommandError."""
        return self._run(sandbox, str(path), str(BASE_ID))

    def export(self, sandbox: SandboxProcess, place: str) -> Spent:
        """Export the sandbox's list to a path or a URL, in a new folder that is its home. Raises CommandError."""
        return self._run(sandbox, place)

    def _run(self, sandbox: SandboxProcess, *arguments: str) -> Spent:
        with tempfile.TemporaryDirectory() as home:
            environment = build_environment(sandbox) | {"HOME": home} | _PRIVATE
            command: tuple[Path | str, ...] = (self.python, _SCRIPTS / self.tool.script, *arguments)
            return run_process(command, environment, timeout_s=_RUNNING_S, folder=Path(home))


BY_HAND = Tool("by hand, 32 threads", "by_hand.py", ("requests>=2.32,<3", "pandas>=3.0,<4"), "requests")

BY_HAND_EXPORT = Tool(
    "by hand",
    "by_hand_export.py",
    ("requests>=2.32,<3", "pandas>=3.0,<4", "pyarrow>=21", "sqlalchemy>=2.0,<3", "duckdb>=1.3"),
    "requests",
)


def install(tool: Tool) -> Installed:
    """Make its environment, unless it is there already. Raises CommandError, with what pip said."""
    folder = _cache() / tool.script.removesuffix(".py")
    finished, wanted = folder / "requirements.txt", "\n".join(tool.requirements) + "\n"
    python = folder / "bin" / "python"
    if not finished.exists() or finished.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *tool.requirements)
        finished.write_text(wanted, encoding="utf-8")  # last: an environment without it is not whole
    say = f"from importlib.metadata import version; print(version({tool.distribution!r}))"
    return Installed(tool, python, _run(str(python), "-c", say).strip())


def remove_environments() -> None:
    """So that the next installation makes each anew, of whatever versions there are by then."""
    shutil.rmtree(_cache(), ignore_errors=True)


def _cache() -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return platformdirs.user_cache_path("subscriber-connector") / "benchmarks" / version


def _run(*command: str) -> str:
    return run_process(command, os.environ, timeout_s=_INSTALLING_S).stdout.decode()
