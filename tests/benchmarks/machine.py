"""What a figure was measured on: said beside every figure, since none means anything without it."""

import os
import platform
from datetime import UTC, datetime


def describe_machine() -> dict[str, object]:
    """Processor, cores, Python and time, as plain JSON values."""
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
