"""Handwritten scripts (in the folder `others/`) that load or export people. Each script has its own virtual
environment, which is kept in the user's cache."""

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
from tests.benchmarks.processes import ResourceUsage, run_process

_SCRIPT_FOLDER = Path(__file__).parent / "others"
_INSTALL_TIMEOUT_S = 900.0
_RUN_TIMEOUT_S = 900.0

_NO_TELEMETRY_ENVIRONMENT = {"DO_NOT_TRACK": "1"}


@dataclass(frozen=True, slots=True)
class Tool:
    """A script and its requirements. The package `requests` is one of the requirements."""

    name: str
    script_name: str
    requirements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InstalledTool:
    """An installed script, and the installed version of `requests`."""

    tool: Tool
    python_path: Path
    version: str

    @property
    def name(self) -> str:
        """The name of the tool with the version."""
        return f"{self.tool.name} [requests {self.version}]"

    def load(self, sandbox: SandboxProcess, path: Path) -> ResourceUsage:
        """Load the file of people into the sandbox. HOME is a new folder. Raise CommandError if the tool fails."""
        return self._measure_command(sandbox, str(path), str(BASE_ID))

    def export(self, sandbox: SandboxProcess, target: str) -> ResourceUsage:
        """Export the sandbox's list to a path or a URL. HOME is a new folder. Raise CommandError if the tool fails."""
        return self._measure_command(sandbox, target)

    def _measure_command(self, sandbox: SandboxProcess, *arguments: str) -> ResourceUsage:
        with tempfile.TemporaryDirectory() as home_folder:
            environment = build_environment(sandbox) | {"HOME": home_folder} | _NO_TELEMETRY_ENVIRONMENT
            command: tuple[Path | str, ...] = (self.python_path, _SCRIPT_FOLDER / self.tool.script_name, *arguments)
            return run_process(command, environment, timeout_s=_RUN_TIMEOUT_S, folder=Path(home_folder))


BY_HAND = Tool("by hand, 32 threads", "by_hand.py", ("requests>=2.32,<3", "pandas>=3.0,<4"))

BY_HAND_EXPORT = Tool(
    "by hand",
    "by_hand_export.py",
    ("requests>=2.32,<3", "pandas>=3.0,<4", "pyarrow>=21", "sqlalchemy>=2.0,<3", "duckdb>=1.3"),
)


def install(tool: Tool) -> InstalledTool:
    """Create the tool's environment if the environment does not exist. Raise CommandError with the output of pip if the
    installation fails."""
    folder = _find_cache_folder() / tool.script_name.removesuffix(".py")
    requirements_file, requirements = folder / "requirements.txt", "\n".join(tool.requirements) + "\n"
    python_path = folder / "bin" / "python"
    if not requirements_file.exists() or requirements_file.read_text(encoding="utf-8") != requirements:
        shutil.rmtree(folder, ignore_errors=True)
        _run_command(sys.executable, "-m", "venv", str(folder))
        _run_command(
            str(python_path), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *tool.requirements
        )
        # This file is written last, because an environment without this file is incomplete.
        requirements_file.write_text(requirements, encoding="utf-8")
    version_script = "from importlib.metadata import version; print(version('requests'))"
    return InstalledTool(tool, python_path, _run_command(str(python_path), "-c", version_script).strip())


def remove_environments() -> None:
    """Remove all environments, so that the next installation gets the newest versions."""
    shutil.rmtree(_find_cache_folder(), ignore_errors=True)


def _find_cache_folder() -> Path:
    python_version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return platformdirs.user_cache_path("subscriber-connector") / "benchmarks" / python_version


def _run_command(*command: str) -> str:
    return run_process(command, os.environ, timeout_s=_INSTALL_TIMEOUT_S).stdout.decode()
