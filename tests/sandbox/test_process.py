"""The sandbox as a process: its start and end, its data, and its secret token."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from connector.sandbox import SandboxProcess
from tests.sandbox.client import SandboxClient, wait_until

PROJECT_FOLDER = Path(__file__).resolve().parents[2]
SANDBOX_COMMAND = [sys.executable, "-m", "connector.sandbox"]


def run_sandbox(*arguments: str, token: str | None = "t") -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "CONNECTOR_SANDBOX_TOKEN"}
    if token is not None:
        environment["CONNECTOR_SANDBOX_TOKEN"] = token
    return subprocess.run(
        [*SANDBOX_COMMAND, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=PROJECT_FOLDER,
        timeout=30,
        check=False,
    )


def read_ps(pid: int, column: str) -> str:
    """Return the text that `ps` shows to every user about a process, or an empty text if the process does not exist."""
    return subprocess.run(
        ["ps", "-ww", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout


def test_the_data_survives_a_kill_and_an_incomplete_last_line(tmp_path: Path) -> None:
    with SandboxProcess(data_folder=tmp_path, duplicates="upsert", churn_delete=1, churn_where="head") as sandbox:
        client = SandboxClient(sandbox)
        sandbox.seed(50, base_name="Crowd")
        client.create("ana@example.com", base={"Name": "News"}, FirstName="Ana")
        client.create("ANA@example.com", base={"Name": "News"}, LastName="B")
        client.request_list()
        truth_log_before, page_before = sandbox.truth(), client.read_page(limit=1000)
        sandbox.kill()
        with (tmp_path / "journal.jsonl").open("ab") as journal_file:
            journal_file.write(b'{"sequence":99,"at":1.0,"kind":"crea')
        sandbox.start()
        sandbox.switch(churn_delete=0)
        truth_log_after = sandbox.truth()
        # `churn_delete` deletes a subscriber for each page, so reading `page_before` added one more event.
        assert truth_log_after["events"][:-1] == truth_log_before["events"]
        assert client.read_page(limit=1000)["Subscribers"] == page_before["Subscribers"][1:]
        assert client.create("new@example.com").json["Subscriber"]["Id"] > page_before["Subscribers"][-1]["Id"]
        assert sandbox.truth()["sequence"] == truth_log_before["sequence"] + 2


def test_the_sandbox_refuses_a_data_folder_that_is_in_use_or_damaged(tmp_path: Path) -> None:
    with SandboxProcess(data_folder=tmp_path) as sandbox:
        SandboxClient(sandbox).create("a@example.com")
        result = run_sandbox("--data", str(tmp_path))
        assert (result.returncode, result.stdout, "in use by another sandbox" in result.stderr) == (2, "", True)
        sandbox.reset()
        assert (tmp_path / "journal.jsonl").read_bytes() == b""
    (tmp_path / "journal.jsonl").write_bytes(b'{"sequence":1,"kind":"churn_deleted","id":5}\nwhat\n')
    result = run_sandbox("--data", str(tmp_path))
    assert (result.returncode, "line 1 of the sandbox's journal" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "token", "expected_text"),
    [
        ((), None, "needs a token"),
        (("--host", "0.0.0.0"), "t", "loopback only"),
    ],
)
def test_a_wrong_option_ends_the_sandbox_with_exit_code_2_and_a_message(
    arguments: tuple[str, ...], token: str | None, expected_text: str
) -> None:
    result = run_sandbox(*arguments, token=token)
    assert (result.returncode, result.stdout) == (2, "")
    assert expected_text in result.stderr
    assert "Traceback" not in result.stderr


def test_a_restarted_sandbox_keeps_its_port() -> None:
    sandbox = SandboxProcess()
    with sandbox:
        assert sandbox.token not in read_ps(sandbox.pid, "args")
        pid, url = sandbox.pid, sandbox.base_url
        sandbox.kill()
        sandbox.kill()
        sandbox.start()
        assert sandbox.base_url == url
        assert sandbox.pid != pid
        pid = sandbox.pid
    assert read_ps(pid, "pid") == ""


def test_a_sandbox_ends_when_its_parent_is_killed() -> None:
    script = (
        "import sys, time; from connector.sandbox import SandboxProcess\n"
        "with SandboxProcess() as s: print(s.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=PROJECT_FOLDER
    ) as parent:
        assert parent.stdout is not None
        child_pid = int(parent.stdout.readline())
        assert "connector.sandbox" in read_ps(child_pid, "args")
        parent.kill()
    wait_until(lambda: not read_ps(child_pid, "stat").strip("Z+<Nsl \n"))  # the process is gone, or a zombie
