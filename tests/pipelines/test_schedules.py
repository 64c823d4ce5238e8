"""The crontab, the systemd units, the workflow and the Dockerfile of configs/ run unchanged."""

import ast
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from connector.sandbox import SandboxProcess
from pipelines.demo import draw_data, write_crm
from tests.docs.test_pages import read_blocks
from tests.pipelines.conftest import ROOT, count_creates_by_email, run_process

CONFIGS_FOLDER = ROOT / "configs"
_VARIABLE_PATTERN = re.compile(r"(?P<name>[A-Z_]+)=(?P<value>.*)")


def read_crontab() -> tuple[dict[str, str], str]:
    lines = (CONFIGS_FOLDER / "crontab").read_text().splitlines()
    environ = {match["name"]: match["value"] for line in lines if (match := _VARIABLE_PATTERN.fullmatch(line))}
    (job,) = (line for line in lines if line[:1].isdigit())
    return environ, job.split(maxsplit=5)[5]


def read_unit() -> tuple[dict[str, str], str]:
    lines = (CONFIGS_FOLDER / "connector.service").read_text().splitlines()
    values = [line.partition("=")[::2] for line in lines if "=" in line and line[0] != "#"]
    environ = dict(value.split("=", 1) for name, value in values if name == "Environment")
    specifiers = {"%S": "/var/lib", "%d": "/etc/connector"}
    environ = {name: re.sub("%[Sd]", lambda match: specifiers[match[0]], value) for name, value in environ.items()}
    (command,) = (value for name, value in values if name == "ExecStart")
    return environ, command


def read_workflow() -> tuple[dict[str, str], str]:
    """Return the environment of the workflow's job, and the commands of all its steps except the step Install."""
    job = yaml.safe_load((CONFIGS_FOLDER / "github-actions.yml").read_text())["jobs"]["sync"]
    secrets = {
        "CONNECTOR_BASE_URL": "https://api.example.com", "CONNECTOR_TOKEN": "sandbox",
        "CONNECTOR_LEDGER": "sqlite:////var/lib/connector/ledger.db", "CRM_URL": "sqlite:////srv/crm.db",
    }  # fmt: skip
    environ = {name: secrets[re.sub(r"\W|secrets", "", value)] for name, value in job["env"].items()}
    steps = [step["run"] for step in job["steps"] if "run" in step and step["name"] != "Install"]
    return environ | {"PATH": "/opt/connector/bin:/usr/bin:/bin"}, "set -e\ncd /\n" + "\n".join(steps)


@pytest.fixture
def machine_folder(tmp_path: Path) -> Path:
    """A folder in place of /, with the connector, a token, the configs and a database."""
    for folder in ("opt/connector/bin", "etc/connector", "var/lib/connector", "srv"):
        (tmp_path / folder).mkdir(parents=True)
    program = tmp_path / "opt/connector/bin/connector"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m pipelines "$@"\n')
    program.chmod(0o755)
    for folder in ("srv/configs", "configs"):
        (tmp_path / folder).symlink_to(CONFIGS_FOLDER)
    (tmp_path / "etc/connector/token").write_text("sandbox\n")
    write_crm(tmp_path / "srv/crm.db", draw_data(row_count=50, seed=1).crm_people)
    return tmp_path


@pytest.mark.parametrize("read_schedule", [read_crontab, read_unit, read_workflow])
def test_a_schedule_runs_unchanged_in_its_environment(machine_folder: Path, read_schedule: object) -> None:
    environ, command = read_schedule()  # type: ignore[operator]
    with SandboxProcess(token="sandbox") as sandbox:

        def replace_paths_and_url(text: str) -> str:
            text = re.sub(r"(?<![\w.])/(?=opt/|etc/|var/|srv/)", f"{machine_folder}/", text)
            return text.replace("https://api.example.com", sandbox.base_url).replace("cd /\n", f"cd {machine_folder}\n")

        run_environ = {"HOME": str(machine_folder), "LOGNAME": "connector", "PATH": "/usr/bin:/bin"}
        run_environ |= {name: replace_paths_and_url(value) for name, value in environ.items()}
        result = run_process(["/bin/sh", "-c", replace_paths_and_url(command)], env=run_environ, cwd=machine_folder)
        assert result.returncode == 0, result.stdout + result.stderr
        assert len(count_creates_by_email(sandbox)) > 20
        if read_schedule is not read_workflow:
            assert result.stdout == "", "cron would send this output by mail"
    assert (machine_folder / "var/lib/connector/ledger.db").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(machine_folder: Path) -> None:
    for name in ("connector.service", "connector.timer"):
        unit_text = (CONFIGS_FOLDER / name).read_text()
        (machine_folder / name).write_text(unit_text.replace("/opt/", f"{machine_folder}/opt/"))
    paths = (machine_folder / "connector.service", machine_folder / "connector.timer")
    result = run_process(["systemd-analyze", "verify", *paths])
    assert (result.returncode, result.stderr) == (0, "")


def test_the_dockerfile_copies_and_installs_existing_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = (CONFIGS_FOLDER / "Dockerfile").read_text().splitlines()
    copied_file_names = [name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]]
    assert [name for name in copied_file_names if not (ROOT / name).exists()] == []
    needed_file_names = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert needed_file_names | {"connector", "pipelines"} <= set(copied_file_names)
    (extra_name,) = re.findall(r"/source\[(\w+)\]", "\n".join(lines))
    assert extra_name in project["project"]["optional-dependencies"]
    assert f'ENTRYPOINT ["{next(iter(project["project"]["scripts"]))}"]' in lines
    (minor_version,) = re.findall(r"FROM python:3\.(\d+)", "\n".join(lines))
    assert f"Programming Language :: Python :: 3.{minor_version}" in project["project"]["classifiers"]


def test_the_docker_commands_of_the_page_on_nightly_runs_match_the_dockerfile() -> None:
    dockerfile_text = (CONFIGS_FOLDER / "Dockerfile").read_text()
    settings = dict(re.findall(r"(CONNECTOR_\w+)=(\S+)", dockerfile_text))
    page_blocks = [block.text for block in read_blocks(ROOT / "docs/how-to/unattended.md")]
    docker_build_text, *run_texts = (text for text in page_blocks if "docker " in text)
    assert "docker build -f configs/Dockerfile -t connector ." in docker_build_text
    assert len(run_texts) == 2
    for run_text in run_texts:
        mounted_paths = re.findall(r'-v "\$PWD/\w+:([/\w]+)', run_text)
        variables = re.findall(r"-e (\w+=?)", run_text)
        assert {settings["CONNECTOR_STATE_DIR"], "/inbox"} <= set(mounted_paths)
        assert "CONNECTOR_BASE_URL" in variables
        has_token_file = settings["CONNECTOR_TOKEN_FILE"] in mounted_paths
        assert has_token_file is not {"CONNECTOR_TOKEN", "CONNECTOR_TOKEN_FILE="}.issubset(variables)


def test_the_workflow_for_tests_has_the_commands_of_the_page_on_testing() -> None:
    """The commands of the page run in tests/docs/test_pages.py."""
    steps = yaml.safe_load((CONFIGS_FOLDER / "github-actions-test.yml").read_text())["jobs"]["test"]["steps"]
    page_blocks = read_blocks(ROOT / "docs/how-to/testing.md")
    (commands_text,) = (block.text for block in page_blocks if block.language == "sh")
    (program_text,) = (block.text for block in page_blocks if block.language == "python")
    *commands, program = (step["run"] for step in steps[4:])
    assert commands == commands_text.splitlines()
    assert ast.dump(ast.parse(program)) == ast.dump(ast.parse(program_text))
    assert steps[8]["shell"] == "python"
