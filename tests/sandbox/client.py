"""A simple client of the sandbox, without the code of the connector. Each request opens its own connection."""

import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from connector.sandbox import SandboxProcess

CREATE_PATH = "/api/subscribers/create-subscriber/"
LIST_PATH = "/api/subscribers/subscribers-list/"
SEND_PATH = "/api/emails/send-instant-email/"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class SandboxClient:
    sandbox: SandboxProcess

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        all_headers = {"Authorization": self.sandbox.token, "Content-Type": "application/json"}
        all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body, {name: value for name, value in all_headers.items() if value})
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
        return self.request("POST", CREATE_PATH, json.dumps({"Subscriber": subscriber}).encode())

    def request_list(self, **query: object) -> Reply:
        return self.request("GET", f"{LIST_PATH}?{urlencode(query, quote_via=quote)}" if query else LIST_PATH)

    def read_page(self, **query: object) -> dict[str, Any]:
        reply = self.request_list(**query)
        assert reply.status == 200, reply
        page: dict[str, Any] = reply.json["SubscribersList"]
        return page

    def list_subscriber_emails(self, **query: object) -> list[str]:
        return [subscriber["Email"] for subscriber in self.read_page(**query)["Subscribers"]]

    def list_subscriber_ids(self, **query: object) -> list[int]:
        return [subscriber["Id"] for subscriber in self.read_page(**query)["Subscribers"]]

    def send(self, email: dict[str, Any], **other_request_keys: object) -> Reply:
        return self.request(
            "POST", SEND_PATH, json.dumps({"SendEmail": {"Email": email, **other_request_keys}}).encode()
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def encode_create(self, email: str) -> bytes:
        body = json.dumps({"Subscriber": {"Base": {"Id": 1}, "Email": email}}).encode()
        request_head = f"POST {CREATE_PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {self.sandbox.token}\r\n"
        request_head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return request_head.encode() + body

    def list_events(self, kind: str = "created") -> list[dict[str, Any]]:
        return [event for event in self.sandbox.truth()["events"] if event["kind"] == kind]


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until `condition` is true, for at most a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true within a minute"


def read_answers(client_socket: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Read the next `count` answers on a raw connection."""
    answers: list[tuple[int, bytes]] = []
    received_bytes = b""
    while len(answers) < count:
        answer_head, separator, body = received_bytes.partition(b"\r\n\r\n")
        body_length = int(answer_head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]) if separator else 0
        if separator and len(body) >= body_length:
            answers.append((int(answer_head.split(b" ")[1]), body[:body_length]))
            received_bytes = body[body_length:]
            continue
        chunk = client_socket.recv(65536)
        if not chunk:
            raise ConnectionError(f"the connection ended after {len(answers)} answers and {received_bytes!r}")
        received_bytes += chunk
    return answers


def read_to_end(client_socket: socket.socket) -> bytes:
    """Read until the other side closes the connection."""
    received_bytes = b""
    while chunk := client_socket.recv(65536):
        received_bytes += chunk
    return received_bytes
