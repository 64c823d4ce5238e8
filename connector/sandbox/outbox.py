"""The emails that the sandbox took on: one .eml file each, in a directory, or in memory without one."""

import os
import uuid
from pathlib import Path
from typing import Any


class Outbox:
    """Keeps emails under their SendMessageRequestId; `directory` None keeps them in memory."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._entries: dict[int, dict[str, Any]] = {}
        self._in_memory: dict[int, bytes] = {}
        self._last_id = 0
        if directory is not None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(self._entries)

    def take_ids(self) -> tuple[int, str]:
        """A new SendMessageRequestId and a Message-ID that nothing else in the world has."""
        self._last_id += 1
        return self._last_id, f"<{uuid.uuid4().hex}@sandbox.invalid>"

    def keep(self, request_id: int, message_id: str, entry: dict[str, Any], eml: bytes) -> None:
        """Writes the .eml file whole and then knows of it."""
        if self._directory is None:
            self._in_memory[request_id] = eml
        else:
            path = self._path(self._directory, request_id)
            staged = path.with_suffix(".part")
            handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(eml)
            staged.replace(path)
        self.restore(request_id, message_id, entry)

    def restore(self, request_id: int, message_id: str, entry: dict[str, Any]) -> None:
        """Knows of an email whose file is there already, or was never kept on disk."""
        self._entries[request_id] = {"request_id": request_id, "message_id": message_id} | entry
        self._last_id = max(self._last_id, request_id)

    def read_entries(self, now: float) -> list[dict[str, Any]]:
        """Each email, oldest first: what the truth log says of it, its `state` at Unix second `now` (scheduled until
        SendAt, then sent), its `file` (None in memory) and the text of the .eml."""
        return [
            entry
            | {
                "state": "scheduled" if (entry["settings"]["SendAt"] or 0) > now else "sent",
                "file": str(self._path(self._directory, each)) if self._directory is not None else None,
                "eml": self._read_eml(each).decode("utf-8", "replace"),
            }
            for each, entry in self._entries.items()
        ]

    def clear(self) -> None:
        """Deletes all of them."""
        if self._directory is not None:
            for path in self._directory.glob("*.eml"):
                path.unlink()
        self._entries, self._in_memory, self._last_id = {}, {}, 0

    def _read_eml(self, request_id: int) -> bytes:
        if self._directory is None:
            return self._in_memory.get(request_id, b"")
        path = self._path(self._directory, request_id)
        return path.read_bytes() if path.exists() else b""  # a person may have taken it away

    @staticmethod
    def _path(directory: Path, request_id: int) -> Path:
        return directory / f"{request_id:08d}.eml"
