"""The people that the benchmarks load: made up, all valid, each once; as a file, and as the bodies that create them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from connector.sandbox.people import SyntheticSubscribers
from connector.service.wire import encode_subscriber

BASE_ID = 7

_COLUMNS = ("email", "first_name", "last_name", "is_active")


def write_people(path: Path, rows: int) -> Path:
    """A CSV with so many rows, in the columns of `_COLUMNS`."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        _write(file, rows)
    return path


def write_seeded(path: Path, seeded: SyntheticSubscribers) -> Path:
    """A CSV, in the same columns, of people whom the sandbox has made up itself."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(",".join(_COLUMNS) + "\n")
        for number in seeded.ids:
            file.write(f"{seeded.email(number)},Ann {number},Lee,true\n")
    return path


def write_bodies(path: Path, rows: int) -> Path:
    """The bodies of the creates that an import of those people sends, a line each."""
    with path.open("wb") as file:
        for person in _make_people(rows):
            file.write(encode_subscriber(person | {"base_id": BASE_ID}) + b"\n")
    return path


def _write(file: TextIO, rows: int) -> None:
    file.write(",".join(_COLUMNS) + "\n")
    for person in _make_people(rows):
        file.write(f"{person['email']},{person['first_name']},{person['last_name']},true\n")


def _make_people(rows: int) -> Iterator[dict[str, object]]:
    for number in range(rows):
        values = (f"person{number}@example.com", f"Ann {number}", "Lee", True)
        yield dict(zip(_COLUMNS, values, strict=True))
