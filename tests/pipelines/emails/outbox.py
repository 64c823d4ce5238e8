"""The emails that the sandbox has received, parsed with Python's package `email`."""

import email
import email.policy
import os
import signal
import time
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import CommandResult, wait_for_result
from tests.pipelines.forked import ForkedProcess


@dataclass(frozen=True)
class ReceivedEmail:
    """An email of the outbox: the parsed message, and the sandbox's record of it."""

    message: EmailMessage
    outbox_entry: dict[str, Any]

    @property
    def text(self) -> str:
        return self._read_body("plain")

    @property
    def html(self) -> str:
        return self._read_body("html")

    @property
    def attached_files(self) -> dict[str, bytes]:
        """The attached and inline files by name."""
        parts = [part for part in self.message.walk() if part.get_filename()]
        return {str(part.get_filename()): part.get_payload(decode=True) for part in parts}  # type: ignore[misc] # bytes of a leaf

    def _read_body(self, subtype: str) -> str:
        part = self.message.get_body(preferencelist=(subtype,))
        return str(part.get_content()) if part is not None else ""


def read_outbox(sandbox: SandboxProcess) -> list[ReceivedEmail]:
    """Return all sent emails, in the order of the outbox."""
    emails = []
    for outbox_entry in sandbox.outbox():
        message = email.message_from_bytes(outbox_entry["eml"].encode(), policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        emails.append(ReceivedEmail(message, outbox_entry))
    return emails


def list_recipients(sandbox: SandboxProcess) -> list[str]:
    """Return the first recipient of each sent email, in the order of the outbox."""
    return [received_email.message["To"].addresses[0].addr_spec for received_email in read_outbox(sandbox)]


def interrupt_twice(process: ForkedProcess) -> CommandResult:
    """Send two signals, and return the result. The second signal ends a run that waits for answers."""
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    return wait_for_result(process)
