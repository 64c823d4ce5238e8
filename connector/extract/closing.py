"""What is opened here is closed by the `with` that it is opened in."""

from types import TracebackType
from typing import Protocol, Self


class Closing(Protocol):
    """Something with a `close`, which a `with` calls at its end, whatever came."""

    def close(self) -> None:
        """Let go of the file or connection; may be called more than once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
