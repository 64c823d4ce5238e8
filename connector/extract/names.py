"""A source's column names made usable: each one there, and each once."""

from collections.abc import Sequence


def name_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Trim the names; an empty one becomes `column N` (from 1), a second `Email` becomes `Email (2)`."""
    trimmed = [name.strip() or f"column {place}" for place, name in enumerate(names, start=1)]
    taken, unique = set(trimmed), []
    seen: set[str] = set()
    for name in trimmed:
        free, count = name, 1
        while free in seen or (count > 1 and free in taken):
            count += 1
            free = f"{name} ({count})"
        seen.add(free)
        unique.append(free)
    return tuple(unique)
