"""What every destination can do: stage rows, then put them in place of the old ones at once, or forget them."""

from typing import Protocol

import pyarrow as pa


class Writer(Protocol):
    """Nothing that it does shows in the target before `publish`; a target that is replaced was never half of each."""

    @property
    def has_target(self) -> bool:
        """Whether publishing would replace something."""

    def start(self) -> None:
        """Begin to stage, forgetting what was staged before. Raises ConfigurationError if the target cannot be had."""

    def add(self, table: pa.Table) -> None:
        """Stage rows."""

    def publish(self) -> None:
        """Put the staged rows in the target's place, atomically; raises RunAborted, the target as it was."""

    def discard(self) -> None:
        """Forget everything staged and leave no file behind; harmless after `publish` and when repeated."""
