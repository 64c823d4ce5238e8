"""Secrets: a token and a database password appear in no output of a command and in no process list."""

import os
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector, build_job, wait_for
from tests.pipelines.in_process import run_in_process
from tests.pipelines.test_every_command import COMMAND_BY_NAME, REQUEST_COMMAND_BY_NAME, TEXT_BY_FILE_NAME

TOKEN, PASSWORD = "canary-token-83b1f0c2", "canary-password-5d9e"
URLS = (
    f"postgresql://reader:{PASSWORD}@127.0.0.1:1/crm",
    f"mysql://reader:{PASSWORD}@127.0.0.1:1/crm",
    f"no-such://reader:{PASSWORD}@db/crm",
)
JOB_TEXT_BY_FILE_NAME = {
    "from.yaml": build_job(job="from", source="sql: {url: '${CRM_URL}', table: people}"),
    "to.yaml": "job: to\nexport: {to: '${CRM_URL}'}\n",
}


def find_secrets(folder: Path) -> list[str]:
    """Return the names of the files below the folder that contain the token or the password."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in files if any(secret.encode() in path.read_bytes() for secret in (TOKEN, PASSWORD))]


def has_secret_in_process_list() -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command_line = path.read_bytes()
        except OSError:  # the process has ended
            continue
        if TOKEN.encode() in command_line or PASSWORD.encode() in command_line:
            return True
    return False


def test_the_token_and_passwords_are_hidden_in_the_outputs_and_files_of_all_commands(
    sandbox: SandboxProcess, tmp_path: Path
) -> None:
    for name, text in (TEXT_BY_FILE_NAME | JOB_TEXT_BY_FILE_NAME).items():
        (tmp_path / name).write_text(text)
    Connector(sandbox, tmp_path).write_addresses(5)
    output_folder = tmp_path / "outputs"
    output_folder.mkdir()

    def run(connector: Connector, command: str, **environ: str) -> int:
        # `status` without a run writes no page.
        report_path = tmp_path / ("run.json" if command.startswith("status") else "run.html")
        log_options = ["-vv", "--log-format", "json", "--report", report_path.name]
        report_path.unlink(missing_ok=True)
        arguments = command.split() + ([] if command.startswith(("init", "schema")) else log_options)
        exit_code, *outputs = run_in_process(arguments, connector.build_environ(environ), connector.folder)
        output_number = len(list(output_folder.iterdir()))
        report = report_path.read_text() if report_path.exists() else ""
        (output_folder / f"{output_number:02d} {command.replace('/', '-')}").write_text("\n".join([*outputs, report]))
        return exit_code

    with SandboxProcess(token=TOKEN) as own_sandbox:
        good_connector = Connector(own_sandbox, tmp_path)
        assert run(good_connector, "import people.csv --base-name News --limit 1 --active") == 0
        assert run(good_connector, "ledger backup copy.db") == 0
        exit_codes = {name: run(good_connector, command) for name, command in COMMAND_BY_NAME.items()}
        assert {name for name, exit_code in exit_codes.items() if exit_code > 1} == set()
        for url in URLS:
            assert run(good_connector, "export to.yaml", CRM_URL=url) in (2, 3)
            assert run(good_connector, "status", CONNECTOR_LEDGER=url) in (2, 3)
            assert run(good_connector, "sync from.yaml", CRM_URL=url, CONNECTOR_DEBUG="1") in (2, 3)
        own_sandbox.switch(latency_ms=300)
        with good_connector.start_new_interpreter("import", "people.csv", "--base-name", "Others") as process:
            wait_for(lambda: own_sandbox.stats()["requests"]["list"]["received"] > 0 or process.poll() is not None)
            assert not has_secret_in_process_list()
            process.communicate()
        message = f"no right with {TOKEN}"
        own_sandbox.switch(
            latency_ms=0, blocked_from=1, blocked_creates=1000, blocked_status=400, blocked_words=message
        )
        good_connector.write_addresses(5, first_index=100)
        assert run(good_connector, "import people.csv --base-name News --active") in (1, 3)
        rejects_text = max((tmp_path / "state" / "rejects").iterdir(), key=os.path.getmtime).read_text()
        assert "no right with" in rejects_text, "the rejects file has the message that repeated the token"
    connector_with_wrong_token = Connector(sandbox, tmp_path)
    connector_with_wrong_token.environ["CONNECTOR_TOKEN"] = TOKEN  # not the token of this sandbox
    for command in REQUEST_COMMAND_BY_NAME.values():
        run(connector_with_wrong_token, command)
    assert find_secrets(tmp_path) == []
    (tmp_path / "found").write_text(f"Authorization: {TOKEN}")
    assert find_secrets(tmp_path) == ["found"]
