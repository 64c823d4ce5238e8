"""Every command under each bad condition: a clear message, the right exit code, no traceback, and the state intact."""

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from connector.ledger.opening import open_ledger
from connector.sandbox import SandboxProcess
from pipelines.cli import COMMANDS
from tests.pipelines.conftest import Connector, wait_for, write_addresses
from tests.pipelines.forked import Forked
from tests.pipelines.virtual_time import skip_waits

SOURCE = "source: {file: {path: people.csv}}\n"
FILES = {
    "crm.yaml": "job: crm\n" + SOURCE + "subscriber: {base: {name: News}}\nload: {quiet_period: 200ms}\n",
    "export.yaml": "job: out\nexport: {to: 'sqlite:///out.db'}\n",
    "mail.yaml": "job: mail\n" + SOURCE + "mail: {campaign: w, to: email, from: {email: a@example.com}, subject: Hi, "
    "text: {content: Hello}}\n",
    "hello.txt": "Hello\n",
}
SPEAKING = {  # commands that send requests to the service
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
SILENT = {  # commands that send no request
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
STATELESS = {"validate", "init", "schema"}
SILENT_ON_STDOUT = {"forget", "prune", "ledger backup"}
ALL = SPEAKING | SILENT
CONDITIONS = ("no network", "wrong token", "no permission", "full disk", "Ctrl-C", "closed pipe")


CELLS = [(each, command) for each in CONDITIONS for command in (SPEAKING if each == "Ctrl-C" else ALL)]


def test_the_tables_name_every_command() -> None:
    apart = {"sandbox", "demo"}  # commands with their own state and service
    assert {name.partition(" ")[0] for name in ALL} == set(COMMANDS) - apart


@pytest.fixture(scope="module")
def killed(session_sandbox: SandboxProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files, and the state that an import left when it was killed with a create under way."""
    folder = tmp_path_factory.mktemp("killed")
    connector, sandbox = Connector(session_sandbox, folder), session_sandbox
    sandbox.reset()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "known.csv").write_text("email,is_active\nknown@example.com,true\n")
    assert connector.import_file(folder / "known.csv").code == 0
    path = write_addresses(folder / "people.csv", 5)
    sandbox.switch(hang_after=1)
    with connector.start("import", path, "--base-name", "News", "--max-concurrency", "1") as process:
        wait_for(lambda: sandbox.stats()["subscribers"] >= 2)
        process.kill()
        process.communicate()
    sandbox.switch(hang_after=0)
    return folder


@pytest.fixture
def world(killed: Path, session_sandbox: SandboxProcess, tmp_path: Path) -> Iterator[Connector]:
    """A copy of the killed state for each cell, and the same service."""
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    yield Connector(session_sandbox, tmp_path)
    session_sandbox.switch(latency_ms=0)


@contextmanager
def fill_disk(state: Path) -> Iterator[None]:
    """Move the state to its own full disk while the context lasts."""
    kept = state.with_name("kept")
    state.rename(kept)
    state.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", state], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        shutil.copytree(kept, state, dirs_exist_ok=True)
        with suppress(OSError), (state / "filling").open("wb", buffering=0) as file:
            while file.write(bytes(1024)):
                pass
        yield
        (state / "filling").unlink()
        shutil.rmtree(kept)
        shutil.copytree(state, kept)
    finally:
        subprocess.run(["umount", state], check=True)
    state.rmdir()
    kept.rename(state)


def run(world: Connector, condition: str, command: str) -> tuple[int, str, str]:
    state, sandbox = world.folder / "state", world.sandbox
    environ: dict[str, str] = {
        "no network": {"CONNECTOR_BASE_URL": "http://127.0.0.1:1"},
        "wrong token": {"CONNECTOR_TOKEN": "another"},
    }.get(condition, {})
    arguments = ALL[command].split()
    if environ:
        result = world.run(*arguments, environ=environ, clock=skip_waits())
        return result.code, result.stdout, result.stderr
    if condition == "no permission":
        state.chmod(0)
    before = count_requests(sandbox)
    if condition == "Ctrl-C":
        sandbox.switch(latency_ms=1000)
    process = Forked(
        arguments,
        world.build_environ(),
        world.folder,
        has_reader=condition != "closed pipe",
        is_bound=condition == "no permission",
    )
    with process:
        if condition == "Ctrl-C":
            wait_for(lambda: count_requests(sandbox) > before)
            process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
    state.chmod(0o700)
    return process.returncode, stdout, stderr


def count_requests(sandbox: SandboxProcess) -> int:
    return sum(request["received"] for request in sandbox.stats()["requests"].values())


def read_identities(world: Connector) -> set[bytes]:
    with closing(sqlite3.connect(world.folder / "state" / "ledger.db")) as database:
        assert database.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        return {identity for (identity,) in database.execute("SELECT identity FROM entry")}


def expect(condition: str, command: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the correct exit codes, and texts of which a message of a failure must contain one."""
    speaks = command in SPEAKING
    match condition:
        case "no network":
            codes = {"retry": (0,), "forget": (1,)}  # the ledger has nothing of that account
            return codes.get(command, (3,) if speaks else (0,)), ("Connection refused",)
        case "wrong token":
            return (2,) if speaks else (0,), ("heck the token",)
        case "no permission":
            return (0,) if command in STATELESS else (2,), ("this user: allow it",)
        case "full disk":
            return (0, 1, 3), ("No space left on device", "disk")
        case "Ctrl-C":
            return (0,) if command == "send" else (130,), (
                "stopped",
                "signal",
            )  # the only email was sent before the signal
        case _:
            return (0,) if command in SILENT_ON_STDOUT else (3,), ("standard output",)


LOCKING = ("import", "sync", "retry", "forget", "reconcile")


@pytest.mark.parametrize("command", LOCKING)
def test_a_ledger_that_another_run_holds_ends_in_exit_code_4(world: Connector, command: str) -> None:
    more = ["--forget-missing"] if command == "reconcile" else []
    with open_ledger(f"sqlite:///{world.folder}/state/ledger.db"):
        result = world.run_json(*ALL[command].split(), *more)
    assert (result.code, result.report["status"]) == (4, "locked")
    assert str(os.getpid()) in result.stderr
    assert not result.report.get("forgotten")
    assert not any(result.report.get("rows", {}).values())


@pytest.mark.parametrize("command", ["retry", "forget", "explain", "reconcile", "ledger backup"])
def test_a_missing_ledger_is_reported_and_not_created(world: Connector, command: str) -> None:
    more = ["--forget-missing"] if command == "reconcile" else []
    before, environ = count_requests(world.sandbox), {"CONNECTOR_LEDGER": f"sqlite:///{world.folder}/mistyped.db"}
    result = world.run_json(*ALL[command].split(), *more, environ=environ)
    assert (result.code, result.report["status"]) == (3, "aborted")
    assert "no ledger" in result.stderr
    assert [*world.folder.glob("mistyped*"), *world.folder.glob("copied*")] == []
    assert count_requests(world.sandbox) == before


@pytest.mark.parametrize(("condition", "command"), CELLS)
def test_a_bad_condition_is_reported_and_leaves_the_state_intact(
    world: Connector, condition: str, command: str
) -> None:
    before = read_identities(world)
    if condition == "full disk":
        with fill_disk(world.folder / "state"):
            code, stdout, stderr = run(world, condition, command)
    else:
        code, stdout, stderr = run(world, condition, command)
    print(f"CELL {condition} | {command} -> {code}\n{stdout}{stderr}")
    codes, words = expect(condition, command)
    said = stdout + stderr
    assert code in codes, said
    assert not any(each in said for each in ("Traceback", "a fault of the program", "Errno")), said
    if code > 1:
        assert any(word in said for word in words), said
    assert before <= read_identities(world) or (code == 0 and command == "forget")
