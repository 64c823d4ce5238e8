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
class WebhookReceiver:
    """A receiver of alerts: the URL of the webhook, and the requests that it received."""

    url: str
    next_statuses: list[int] = field(default_factory=list)  # statuses of the next answers; later answers have 200
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def pop_posts(self) -> list[tuple[dict[str, str], bytes]]:
        """Return the headers and bodies that arrived since the last call."""
        posts, self.posts[:] = self.posts[:], []
        return posts

    def pop_alerts(self) -> list[dict[str, Any]]:
        """Return the bodies that arrived since the last call, as JSON values."""
        return [json.loads(body) for _, body in self.pop_posts()]

    def pop_reasons(self) -> list[str]:
        """Return the reasons of the alerts that arrived since the last call."""
        return [alert["reason"] for alert in self.pop_alerts()]


@contextmanager
def serve_webhook() -> Iterator[WebhookReceiver]:
    """Serve a webhook inside the context."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            webhook.posts.append((dict(self.headers), body))
            self.send_response(webhook.next_statuses.pop(0) if webhook.next_statuses else 200)
            self.send_header("Content-Length", "0")
            self.send_header("Location", self.path)  # a redirect needs a target
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    webhook = WebhookReceiver(f"http://127.0.0.1:{server.server_address[1]}/hooks/T0PS3CRET")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield webhook
    server.shutdown()
    thread.join()
    server.server_close()
