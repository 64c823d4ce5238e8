"""A plain client of the sandbox: one connection for each call, and the raw answer."""

import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from connector.sandbox import SandboxProcess

CREATE = "/api/subscribers/create-subscriber/"
LIST = "/api/subscribers/subscribers-list/"
SEND = "/api/emails/send-instant-email/"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Calls:
    sandbox: SandboxProcess

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        given = {"Authorization": self.sandbox.token, "Content-Type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body, {name: value for name, value in given.items() if value})
            answer = connection.getresponse()
            return Reply(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    @property
    def port(self) -> int:
        return int(self.sandbox.base_url.rpartition(":")[2])

    def create(self, email: str | None = None, *, base: object = None, **fields: object) -> Reply:
        subscriber = {"Base": {"Id": 1} if base is None else base, **fields}
        if email is not None:
            subscriber["Email"] = email
        return self.ask("POST", CREATE, json.dumps({"Subscriber": subscriber}).encode())

    def ask_list(self, **query: object) -> Reply:
        return self.ask("GET", f"{LIST}?{urlencode(query, quote_via=quote)}" if query else LIST)

    def page(self, **query: object) -> dict[str, Any]:
        reply = self.ask_list(**query)
        assert reply.status == 200, reply
        page: dict[str, Any] = reply.json["SubscribersList"]
        return page

    def emails(self, **query: object) -> list[str]:
        return [subscriber["Email"] for subscriber in self.page(**query)["Subscribers"]]

    def ids(self, **query: object) -> list[int]:
        return [subscriber["Id"] for subscriber in self.page(**query)["Subscribers"]]

    def send(self, email: dict[str, Any], **parts: object) -> Reply:
        return self.ask("POST", SEND, json.dumps({"SendEmail": {"Email": email, **parts}}).encode())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def raw_create(self, email: str) -> bytes:
        body = json.dumps({"Subscriber": {"Base": {"Id": 1}, "Email": email}}).encode()
        head = f"POST {CREATE} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {self.sandbox.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def events(self, kind: str = "created") -> list[dict[str, Any]]:
        return [event for event in self.sandbox.truth()["events"] if event["kind"] == kind]


def wait_until(is_so: Callable[[], object]) -> None:
    """Asks again and again, at most a minute: what another process does takes its own time."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about within a minute"


def read_answers(sock: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """The next `count` answers on a raw connection."""
    answers: list[tuple[int, bytes]] = []
    data = b""
    while len(answers) < count:
        head, found, rest = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]) if found else 0
        if found and len(rest) >= length:
            answers.append((int(head.split(b" ")[1]), rest[:length]))
            data = rest[length:]
            continue
        more = sock.recv(65536)
        if not more:
            raise ConnectionError(f"ended after {len(answers)} answers and {data!r}")
        data += more
    return answers


def read_to_end(sock: socket.socket) -> bytes:
    """Everything until the other side closes."""
    data = b""
    while more := sock.recv(65536):
        data += more
    return data
