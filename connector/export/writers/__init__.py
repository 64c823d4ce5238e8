"""One writer for each kind of database; they know Arrow tables and nothing of subscribers."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.export.writers.mode import Mode
    from connector.export.writers.run import Changes, Run
    from connector.export.writers.writer import Writer

__all__ = ["Changes", "Mode", "Run", "Writer"]

__getattr__ = open_face(__name__, {"mode": ("Mode",), "run": ("Changes", "Run"), "writer": ("Writer",)})
