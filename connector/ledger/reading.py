"""How a ledger's file is read beside the process that writes it; without SQLAlchemy, which is slow to import."""

from pathlib import Path


def has_files_beside(path: Path) -> bool:
    """Return whether a process has the ledger's file open, or had it open when it was killed."""
    resolved = path.resolve()
    return any(resolved.with_name(resolved.name + suffix).exists() for suffix in ("-wal", "-shm"))


def build_uri(path: Path) -> str:
    """Return the URI by which SQLite reads a ledger's file without a lock, and without making a file beside it."""
    how = "mode=ro" if has_files_beside(path) else "mode=ro&immutable=1"
    return f"{path.resolve().as_uri()}?{how}"
