"""Runs a sandbox as a child process, for tests, benchmarks and the demo. The child ends at the end of the context, or
when its parent ends."""

import http.client
import json
import os
import secrets
import selectors
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

_START_TIMEOUT_S = 60.0  # replaying a journal of a million events takes about ten seconds
_CONTROL_TIMEOUT_S = 120.0


class SandboxProcess:
    """A child process of `python -m connector.sandbox`. The child reads the token from its environment. If `token` is
    None, the token is random."""

    def __init__(
        self, *, data_folder: Path | None = None, token: str | None = None, port: int = 0, **switches: object
    ) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self._settings = [f"{name}={_format_value(value)}" for name, value in switches.items()]
        self._data_folder = data_folder
        self._port = port
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """The URL of the sandbox, without a slash at the end. A restart keeps the port."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the child. Raises RuntimeError if no child runs."""
        if self._child is None:
            raise RuntimeError("the sandbox does not run. Enter it as a context, or call start()")
        return self._child.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.terminate()

    def start(self) -> None:
        """Start the child, and wait until the child serves requests. After `kill` or `terminate`, the child gets the
        same port and data again.

        Raises RuntimeError if the child ends, or is not ready within a minute. The stderr of the child has the reason.
        """
        if self._child is not None:
            raise RuntimeError("the sandbox runs already")
        command = [sys.executable, "-m", "connector.sandbox", "--port", str(self._port), "--stop-with-stdin"]
        if self._data_folder is not None:
            command += ["--data", str(self._data_folder)]
        for setting in self._settings:
            command += ["--set", setting]
        # The folder of this project comes first in PYTHONPATH, so that the child imports the same code as its parent.
        project_folder = str(Path(__file__).resolve().parents[2])
        python_path = os.pathsep.join(filter(None, (project_folder, os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"CONNECTOR_SANDBOX_TOKEN": self.token, "PYTHONPATH": python_path}
        process = self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module, no shell
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout is not None  # noqa: S101 - a pipe
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            line = process.stdout.readline().decode() if selector.select(_START_TIMEOUT_S) else ""
        if not line.startswith("sandbox listening on "):
            self.kill()
            raise RuntimeError(f"the sandbox ended before it was ready, or took {_START_TIMEOUT_S:g} s; see its stderr")
        self._port = urlsplit(line.split()[-1]).port or 0

    def kill(self) -> None:
        """Send SIGKILL, which has the effect of a crash. If the child has ended already, do nothing."""
        if self._child is not None:
            self._child.kill()
        self.terminate()

    def terminate(self) -> None:
        """Send SIGTERM, then SIGKILL after ten seconds."""
        process, self._child = self._child, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def truth(self, after_sequence_number: int = 0) -> dict[str, Any]:
        """Return the truth log (connector/sandbox/truth.py): the `events` after this number, the last
        `sequence`, the number of `subscribers`, the `bases`, and the `duplicates`."""
        return self._call_control("GET", f"truth?after={after_sequence_number}")

    def stats(self) -> dict[str, Any]:
        """Return the counts of requests and answers (connector/sandbox/truth.py), and the numbers of `subscribers` and
        `emails`."""
        return self._call_control("GET", "stats")

    def outbox(self) -> list[dict[str, Any]]:
        """Return the accepted emails. The key `eml` has the text of an email."""
        emails: list[dict[str, Any]] = self._call_control("GET", "outbox")["emails"]
        return emails

    def switch(self, **settings: object) -> dict[str, Any]:
        """Set switches, and return all switches. Raises ValueError with the name of a switch that cannot be set."""
        return self._call_control("POST", "switches", settings)

    def reset(self) -> None:
        """Empty the sandbox, and set all switches to their values at the start."""
        self._call_control("POST", "reset")

    def seed(self, count: int, *, base_id: int | None = None, base_name: str | None = None) -> dict[str, Any]:
        """Add `count` plausible subscribers. Return `first_id`, `count`, `step`, `base_id` and `base_name`."""
        base_keys = {"base_id": base_id, "base_name": base_name}
        return self._call_control(
            "POST", "seed", {"count": count} | {key: value for key, value in base_keys.items() if value}
        )

    def _call_control(self, method: str, action: str, body: object = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_CONTROL_TIMEOUT_S)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, f"/_sandbox/{action}", content, {"Authorization": self.token})
            answer = connection.getresponse()
            answer_values: dict[str, Any] = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise ValueError(answer_values["error"])
        return answer_values


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
