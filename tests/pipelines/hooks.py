"""A receiver of alerts on loopback."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@dataclass
class Hook:
    """The URL of a webhook, and the requests that it received."""

    url: str
    answers: list[int] = field(default_factory=list)  # the next status codes; 200 after them
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def take_posts(self) -> list[tuple[dict[str, str], bytes]]:
        """Return the headers and bodies since the last call."""
        posts, self.posts[:] = self.posts[:], []
        return posts

    def take_alerts(self) -> list[dict[str, Any]]:
        """Return the bodies since the last call, as values of JSON."""
        return [json.loads(body) for _, body in self.take_posts()]

    def take_reasons(self) -> list[str]:
        """Return the reasons of the alerts since the last call."""
        return [alert["reason"] for alert in self.take_alerts()]


@contextmanager
def serve_hook() -> Iterator[Hook]:
    """Serve an address for the context."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.posts.append((dict(self.headers), body))
            self.send_response(hook.answers.pop(0) if hook.answers else 200)
            self.send_header("Content-Length", "0")
            self.send_header("Location", self.path)  # a redirect needs a target
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook = Hook(f"http://127.0.0.1:{server.server_address[1]}/hooks/T0PS3CRET")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield hook
    server.shutdown()
    thread.join()
    server.server_close()
