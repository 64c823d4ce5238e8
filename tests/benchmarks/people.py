"""The invented people that the benchmarks load, as a CSV file or as request bodies. All people are valid and have
different addresses."""

from collections.abc import Iterator
from pathlib import Path

from connector.service.wire import encode_subscriber

BASE_ID = 7

_COLUMNS = ("email", "first_name", "last_name", "is_active")


def write_people(path: Path, person_count: int) -> Path:
    """Write a CSV file with `person_count` people, and return its path."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(",".join(_COLUMNS) + "\n")
        for person in _build_people(person_count):
            file.write(f"{person['email']},{person['first_name']},{person['last_name']},true\n")
    return path


def write_bodies(path: Path, person_count: int) -> Path:
    """Write the request bodies that an import of the people of `write_people` sends, one in each line."""
    with path.open("wb") as file:
        for person in _build_people(person_count):
            file.write(encode_subscriber(person | {"base_id": BASE_ID}) + b"\n")
    return path


def _build_people(person_count: int) -> Iterator[dict[str, object]]:
    for index in range(person_count):
        cells = (f"person{index}@example.com", f"Ann {index}", "Lee", True)
        yield dict(zip(_COLUMNS, cells, strict=True))
