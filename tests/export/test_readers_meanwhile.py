"""Who reads a table while it is written sees the rows of one run, all of them, at every moment."""

import threading
from pathlib import Path

import pytest

from connector.warehouse import Format
from tests.export.test_modes import person, publish
from tests.export.warehouses import open_destination, run_sql

PEOPLE = 400


@pytest.mark.parametrize("form", [Format.POSTGRESQL, Format.MYSQL, Format.SQLITE])
def test_a_reader_never_sees_half_a_table(form: Format, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    table = open_destination(request, tmp_path, form)
    publish(table, [person(each) for each in range(PEOPLE)], 1)
    seen: set[tuple[int, int]] = set()
    is_over, has_read = threading.Event(), threading.Event()

    def read() -> None:
        while not is_over.is_set():
            ((runs, rows),) = run_sql(table, "select count(distinct _run_id), count(*) from {}subscribers")
            seen.add((runs, rows))
            has_read.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(2, 6):
            has_read.clear()
            publish(table, [person(each, f"v{number}") for each in range(PEOPLE)], number)
            assert has_read.wait(30)
    finally:
        is_over.set()
        reader.join()
    assert seen == {(1, PEOPLE)}
