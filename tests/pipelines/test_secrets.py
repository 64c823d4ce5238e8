"""Secrets: a token and a database password appear in no output of a command and in no process list."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector, wait_for, write_addresses
from tests.pipelines.in_process import run_in_process
from tests.pipelines.test_every_command import COMMAND_LINES, FILES, REQUEST_COMMANDS

TOKEN, PASSWORD = "canary-token-83b1f0c2", "canary-password-5d9e"
URLS = {
    "postgresql": f"postgresql://reader:{PASSWORD}@127.0.0.1:1/crm",
    "mysql": f"mysql://reader:{PASSWORD}@127.0.0.1:1/crm",
    "unknown": f"no-such://reader:{PASSWORD}@db/crm",
}
JOB_FILES = {
    "from.yaml": "job: from\nsource: {sql: {url: '${CRM_URL}', table: people}}\n"
    "subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}\n",
    "to.yaml": "job: to\nexport: {to: '${CRM_URL}'}\n",
}


class TokenEchoHandler(BaseHTTPRequestHandler):
    """A service without subscribers. Its errors repeat the token."""

    def do_GET(self) -> None:
        page = {"TotalCount": 0, "Offset": 0, "Limit": 1000, "Subscribers": []}
        self._answer(200, {"success": True, "SubscribersList": page})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(400, {"success": False, "message": f"no right with {self.headers['Authorization']}"})

    def log_message(self, *_: object) -> None:
        """Write no log."""

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve_echo() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), TokenEchoHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


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


def test_no_command_leaves_the_token_or_a_password_anywhere(sandbox: SandboxProcess, tmp_path: Path) -> None:
    for name, text in (FILES | JOB_FILES).items():
        (tmp_path / name).write_text(text)
    write_addresses(tmp_path / "people.csv", 5)
    output_folder = tmp_path / "said"
    output_folder.mkdir()

    def run(connector: Connector, command: str, **environ: str) -> int:
        # `status` writes no page of a run.
        report_path = tmp_path / ("run.json" if command.startswith("status") else "run.html")
        log_options: tuple[str, ...] = (
            ()
            if command.startswith(("init", "schema"))
            else ("-vv", "--log-format", "json", "--report", report_path.name)
        )
        report_path.unlink(missing_ok=True)
        arguments = [*command.split(), *log_options]
        exit_code, *outputs = run_in_process(arguments, connector.build_environ(environ), connector.folder)
        output_number = len(list(output_folder.iterdir()))
        report = report_path.read_text() if report_path.exists() else ""
        (output_folder / f"{output_number:02d} {command.replace('/', '-')}").write_text("\n".join([*outputs, report]))
        return exit_code

    with SandboxProcess(token=TOKEN) as own_sandbox:
        good_connector = Connector(own_sandbox, tmp_path)
        assert run(good_connector, "import people.csv --base-name News --limit 1 --active") == 0
        assert run(good_connector, "ledger backup copy.db") == 0
        exit_codes = {name: run(good_connector, command) for name, command in COMMAND_LINES.items()}
        assert {name for name, exit_code in exit_codes.items() if exit_code > 1} == set()
        for url in URLS.values():
            assert run(good_connector, "sync from.yaml", CRM_URL=url) in (2, 3)
            assert run(good_connector, "export to.yaml", CRM_URL=url) in (2, 3)
            assert run(good_connector, "status", CONNECTOR_LEDGER=url) in (2, 3)
            assert run(good_connector, "sync from.yaml", CRM_URL=url, CONNECTOR_DEBUG="1") in (2, 3)
        own_sandbox.switch(latency_ms=300)
        with good_connector.start_new_interpreter("import", "people.csv", "--base-name", "Others") as process:
            wait_for(lambda: own_sandbox.stats()["requests"]["list"]["received"] > 0 or process.poll() is not None)
            assert not has_secret_in_process_list()
            process.communicate()

    wrong_connector = Connector(sandbox, tmp_path)
    wrong_connector.environ["CONNECTOR_TOKEN"] = TOKEN  # not the token of this sandbox
    with serve_echo() as echo_url:
        for command in REQUEST_COMMANDS.values():
            run(wrong_connector, command)
            run(wrong_connector, command, CONNECTOR_BASE_URL=echo_url)
            if command.startswith("import"):
                rejects_text = max((tmp_path / "state" / "rejects").iterdir(), key=os.path.getmtime).read_text()
                assert "no right with" in rejects_text, "the rejects file has the message that repeated the token"

    assert find_secrets(tmp_path) == []
    (tmp_path / "found").write_text(f"Authorization: {TOKEN}")
    assert find_secrets(tmp_path) == ["found"]
