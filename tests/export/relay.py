"""A way to a real server that can be made to fall silent, as by a cable that was pulled: nothing is answered any more,
and nothing is closed either."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_LONGEST_S = 30.0


@dataclass
class Relay:
    """Listens on loopback at `port`; after `silence()` no byte gets through. `after`: once the client has sent this."""

    target: tuple[str, int]
    after: bytes = b""
    is_silent: threading.Event = field(default_factory=threading.Event)
    sockets: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]

    def silence(self) -> None:
        self.is_silent.set()

    def serve(self) -> None:
        """Until the listener is closed."""
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.target)
                self.sockets += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(one, other, one is near), daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket, is_client: bool) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                if is_client and self.after and self.after in data:
                    self.silence()
                if self.is_silent.is_set():
                    return
                other.sendall(data)
        if not self.is_silent.is_set():
            for each in (one, other):
                each.close()

    def close(self) -> None:
        """Cut every connection, and take no more."""
        for each in (self.listener, *self.sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def open_relay(host: str, port: int, after: bytes = b"") -> Iterator[Relay]:
    """Cut after half a minute, so that whoever waits for ever fails and does not hang."""
    relay = Relay((host, port), after)
    threading.Thread(target=relay.serve, daemon=True).start()
    end = threading.Timer(_LONGEST_S, relay.close)
    end.start()
    try:
        yield relay
    finally:
        end.cancel()
        relay.close()
