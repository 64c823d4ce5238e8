"""Two instants for certificates."""

from datetime import UTC, datetime

STARTED = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
FINISHED = datetime(2026, 11, 21, 9, 0, 30, tzinfo=UTC)
