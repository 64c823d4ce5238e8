"""What every destination can do: stage rows, then put them in place of the old ones at once, or forget them."""

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from connector.export.writers.run import Changes, Run


class Writer(Protocol):
    """Nothing that it does shows in the target before `publish`; a target was never between before and after."""

    @property
    def has_target(self) -> bool:
        """Whether there is a table or a file already."""

    def start(self) -> None:
        """Begin to stage, forgetting what was staged before. Raises ConfigurationError if the target cannot be had,
        RunAborted if it cannot now."""

    def add(self, table: pa.Table) -> None:
        """Stage rows."""

    def count_last(self, filters: Mapping[str, object]) -> int | None:
        """The rows of the last certified export that this one is to be measured by, as far as the target tells."""

    def publish(self, run: Run) -> Changes:
        """Bring the staged rows into the target, atomically; raises RunAborted, which says what the target is like."""

    def discard(self) -> None:
        """Forget everything staged and leave no file behind; harmless after `publish` and when repeated."""
