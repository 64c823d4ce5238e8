"""Under each bad condition, each command shows a message, ends with the right exit code and leaves the state intact."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from connector.ledger.opening import open_ledger
from connector.sandbox import SandboxProcess
from pipelines.cli import COMMANDS
from tests.pipelines.conftest import Connector, build_job, run_process, wait_for
from tests.pipelines.virtual_time import skip_waits

TEXT_BY_FILE_NAME = {
    "crm.yaml": build_job(fields=""),
    "export.yaml": "job: out\nexport: {to: 'sqlite:///out.db'}\n",
    "mail.yaml": "job: mail\nsource: {file: {path: people.csv}}\n"
    "mail: {campaign: w, to: email, from: {email: a@example.com}, subject: Hi, text: {content: Hello}}\n",
    "hello.txt": "Hello\n",
}
REQUEST_COMMAND_BY_NAME = {  # commands that send requests to the service
    "import": "import people.csv --base-name News --quiet-period 200ms",
    "sync": "sync crm.yaml",
    "plan": "plan people.csv --base-name News",
    "export": "export out.csv",
    "export of a job": "export export.yaml",
    "reconcile": "reconcile crm.yaml --to differences.csv",
    "retry": "retry --quiet-period 200ms",
    "check": "check crm.yaml",
    "send": "send --to b@example.com --from a@example.com --subject Hi --text hello.txt",
    "mail": "mail mail.yaml",
}
LOCAL_COMMAND_BY_NAME = {  # commands that send no request
    "validate": "validate people.csv",
    "explain": "explain known@example.com",
    "forget": "forget known@example.com",
    "status": "status",
    "status of all jobs": "status --html health.html",
    "prune": "prune",
    "ledger backup": "ledger backup copied.db",
    "init": "init people.csv --base-name News",
    "schema": "schema",
}
COMMAND_BY_NAME = REQUEST_COMMAND_BY_NAME | LOCAL_COMMAND_BY_NAME
EXPECTED_TEXTS_BY_CONDITION = {  # if the exit code is above 1, the message contains one of these texts
    "no network": ("Connection refused",),
    "wrong token": ("heck the token",),
    "no permission": ("this user cannot",),
    "full disk": ("No space left on device", "disk"),
    "Ctrl-C": ("stopped", "signal"),
    "closed pipe": ("standard output",),
}
ENVIRON_BY_CONDITION = {
    "no network": {"CONNECTOR_BASE_URL": "http://127.0.0.1:1"},
    "wrong token": {"CONNECTOR_TOKEN": "another"},
}
COMMANDS_BY_CONDITION_AND_EXIT_CODE: dict[str, dict[int, str]] = {
    # Another base URL is another account. The ledger has no entries of this account, so retry and forget find nothing.
    "no network": {0: "retry", 1: "forget", 3: "import, plan, export of a job, reconcile, check, send, mail"},
    "wrong token": {2: "import, export, reconcile, retry, check, send, mail"},
    "no permission": {2: "import, export, reconcile, retry, check, mail, explain, forget, status, prune"},
    "full disk": {0: "export", 1: "reconcile", 3: "import, send, mail, forget, ledger backup"},
    # `send` has sent its only email before the signal.
    "Ctrl-C": {0: "send", 130: "import, export, reconcile, check, mail"},
    "closed pipe": {0: "forget", 3: "import, export, status"},
}
CASES = [
    (condition, command, exit_code)
    for condition, commands_by_exit_code in COMMANDS_BY_CONDITION_AND_EXIT_CODE.items()
    for exit_code, commands in commands_by_exit_code.items()
    for command in commands.split(", ")
]


def test_every_command_is_in_a_table_of_this_module() -> None:
    excluded_commands = {"sandbox", "demo"}  # commands with their own state and service
    assert {name.partition(" ")[0] for name in COMMAND_BY_NAME} == set(COMMANDS) - excluded_commands


@pytest.fixture(scope="module")
def state_of_killed_import(session_sandbox: SandboxProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files, and with the state of an import that was killed before a create was answered."""
    folder = tmp_path_factory.mktemp("killed")
    connector, sandbox = Connector(session_sandbox, folder), session_sandbox
    sandbox.reset()
    for name, content in TEXT_BY_FILE_NAME.items():
        (folder / name).write_text(content)
    (folder / "known.csv").write_text("email,is_active\nknown@example.com,true\n")
    assert connector.import_file(folder / "known.csv").exit_code == 0
    path = connector.write_addresses(5)
    sandbox.switch(hang_after=1)
    with connector.start("import", path, "--base-name", "News", "--max-concurrency", "1") as process:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 2)
        process.kill()
        process.communicate()
    sandbox.switch(hang_after=0)
    return folder


@pytest.fixture
def connector_after_kill(
    state_of_killed_import: Path, session_sandbox: SandboxProcess, tmp_path: Path
) -> Iterator[Connector]:
    """A connector with a copy of the state that the killed import left."""
    shutil.copytree(state_of_killed_import, tmp_path, dirs_exist_ok=True)
    yield Connector(session_sandbox, tmp_path)
    session_sandbox.switch(latency_ms=0)


@contextmanager
def fill_disk(state: Path) -> Iterator[None]:
    """Inside the context, keep the state folder on a full disk."""
    saved_state = state.with_name("saved-state")
    state.rename(saved_state)
    state.mkdir()
    mount_result = run_process(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", state])
    if mount_result.returncode:
        pytest.skip(f"no disk can be mounted here: {mount_result.stderr.strip()}")
    try:
        shutil.copytree(saved_state, state, dirs_exist_ok=True)
        with suppress(OSError), (state / "filling").open("wb", buffering=0) as file:
            while file.write(bytes(1024)):
                pass
        yield
        (state / "filling").unlink()
        shutil.rmtree(saved_state)
        shutil.copytree(state, saved_state)
    finally:
        subprocess.run(["umount", state], check=True)
    state.rmdir()
    saved_state.rename(state)


def run(connector_after_kill: Connector, condition: str, command: str) -> tuple[int, str, str]:
    state, sandbox = connector_after_kill.folder / "state", connector_after_kill.sandbox
    arguments = COMMAND_BY_NAME[command].split()
    if condition in ENVIRON_BY_CONDITION:
        result = connector_after_kill.run(*arguments, environ=ENVIRON_BY_CONDITION[condition], clock=skip_waits())
        return result.exit_code, result.stdout, result.stderr
    if condition == "no permission":
        state.chmod(0)
    count_before = count_requests(sandbox)
    if condition == "Ctrl-C":
        sandbox.switch(latency_ms=1000)
    has_reader, is_unprivileged = condition != "closed pipe", condition == "no permission"
    with connector_after_kill.start(*arguments, has_reader=has_reader, is_unprivileged=is_unprivileged) as process:
        if condition == "Ctrl-C":
            wait_for(lambda: count_requests(sandbox) > count_before)
            process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
    state.chmod(0o700)
    return process.returncode, stdout, stderr


def count_requests(sandbox: SandboxProcess) -> int:
    return sum(counts["received"] for counts in sandbox.stats()["requests"].values())


def read_identities(connector_after_kill: Connector) -> set[bytes]:
    assert connector_after_kill.ledger.fetch("PRAGMA quick_check") == [("ok",)]
    return {identity for (identity,) in connector_after_kill.ledger.fetch("SELECT identity FROM entry")}


@pytest.mark.parametrize("command", ["retry", "forget"])
def test_a_ledger_that_another_run_holds_ends_in_exit_code_4(connector_after_kill: Connector, command: str) -> None:
    with open_ledger(connector_after_kill.ledger.url):
        result = connector_after_kill.run_json(*COMMAND_BY_NAME[command].split())
    assert (result.exit_code, result.report["status"]) == (4, "locked")
    assert str(os.getpid()) in result.stderr
    assert not result.report.get("forgotten")
    assert not any(result.report.get("rows", {}).values())


@pytest.mark.parametrize(("condition", "command", "expected_code"), CASES)
def test_a_command_under_a_bad_condition_leaves_the_state_intact(
    connector_after_kill: Connector, condition: str, command: str, expected_code: int
) -> None:
    identities_before = read_identities(connector_after_kill)
    with fill_disk(connector_after_kill.folder / "state") if condition == "full disk" else nullcontext():
        exit_code, stdout, stderr = run(connector_after_kill, condition, command)
    output = stdout + stderr
    assert exit_code == expected_code, output
    assert not any(fault in output for fault in ("Traceback", "a fault of the program", "Errno")), output
    assert exit_code <= 1 or any(expected_text in output for expected_text in EXPECTED_TEXTS_BY_CONDITION[condition]), (
        output
    )
    assert identities_before <= read_identities(connector_after_kill) or (exit_code == 0 and command == "forget")
