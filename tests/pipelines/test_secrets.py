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
from tests.pipelines.test_every_command import ALL, FILES, SPEAKING

TOKEN, PASSWORD = "canary-token-83b1f0c2", "canary-password-5d9e"
URLS = {
    "postgresql": f"postgresql://reader:{PASSWORD}@127.0.0.1:1/crm",
    "mysql": f"mysql://reader:{PASSWORD}@127.0.0.1:1/crm",
    "unknown": f"no-such://reader:{PASSWORD}@db/crm",
}
JOBS = {
    "from.yaml": "job: from\nsource: {sql: {url: '${CRM_URL}', table: people}}\n"
    "subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}\n",
    "to.yaml": "job: to\nexport: {to: '${CRM_URL}'}\n",
}


class Echo(BaseHTTPRequestHandler):
    """A service without subscribers, whose errors repeat the token."""

    def do_GET(self) -> None:
        page = {"TotalCount": 0, "Offset": 0, "Limit": 1000, "Subscribers": []}
        self._answer(200, {"success": True, "SubscribersList": page})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(400, {"success": False, "message": f"no right with {self.headers['Authorization']}"})

    def log_message(self, *_: object) -> None:
        """Be silent."""

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve_echo() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def find_secrets(folder: Path) -> list[str]:
    """The files below the folder that hold the token or the password."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in files if any(each.encode() in path.read_bytes() for each in (TOKEN, PASSWORD))]


def find_in_process_list() -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:  # the process has ended
            continue
        if TOKEN.encode() in line or PASSWORD.encode() in line:
            return True
    return False


def test_no_command_leaves_the_token_or_a_password_anywhere(sandbox: SandboxProcess, tmp_path: Path) -> None:
    for name, text in (FILES | JOBS).items():
        (tmp_path / name).write_text(text)
    write_addresses(tmp_path / "people.csv", 5)
    said = tmp_path / "said"
    said.mkdir()

    def run(connector: Connector, command: str, **environ: str) -> int:
        page = tmp_path / ("run.json" if command.startswith("status") else "run.html")  # a page is of one run
        log: tuple[str, ...] = (
            () if command.startswith(("init", "schema")) else ("-vv", "--log-format", "json", "--report", page.name)
        )
        page.unlink(missing_ok=True)
        arguments = [*command.split(), *log]
        exit_code, *texts = run_in_process(arguments, connector.build_environ(environ), connector.folder)
        run_number = len(list(said.iterdir()))
        report = page.read_text() if page.exists() else ""
        (said / f"{run_number:02d} {command.replace('/', '-')}").write_text("\n".join([*texts, report]))
        return exit_code

    with SandboxProcess(token=TOKEN) as own:
        good = Connector(own, tmp_path)
        assert run(good, "import people.csv --base-name News --limit 1 --active") == 0
        assert run(good, "ledger backup copy.db") == 0
        codes = {name: run(good, command) for name, command in ALL.items()}
        assert {name for name, code in codes.items() if code > 1} == set()
        for url in URLS.values():
            assert run(good, "sync from.yaml", CRM_URL=url) in (2, 3)
            assert run(good, "export to.yaml", CRM_URL=url) in (2, 3)
            assert run(good, "status", CONNECTOR_LEDGER=url) in (2, 3)
            assert run(good, "sync from.yaml", CRM_URL=url, CONNECTOR_DEBUG="1") in (2, 3)
        own.switch(latency_ms=300)
        with good.start_anew("import", "people.csv", "--base-name", "Others") as process:
            wait_for(lambda: own.stats()["requests"]["list"]["received"] > 0 or process.poll() is not None)
            assert not find_in_process_list()
            process.communicate()

    wrong = Connector(sandbox, tmp_path)
    wrong.environ["CONNECTOR_TOKEN"] = TOKEN  # not the token of this sandbox
    with serve_echo() as echo:
        for command in SPEAKING.values():
            run(wrong, command)
            run(wrong, command, CONNECTOR_BASE_URL=echo)
            if command.startswith("import"):
                refused = max((tmp_path / "state" / "rejects").iterdir(), key=os.path.getmtime).read_text()
                assert "no right with" in refused, "the echo came as far as the rejects file"

    assert find_secrets(tmp_path) == []
    (tmp_path / "planted").write_text(f"Authorization: {TOKEN}")
    assert find_secrets(tmp_path) == ["planted"]
