"""Temporary files return objects and values unchanged."""

import resource
from collections.abc import Iterator

import pytest

from connector.errors import RunAborted
from connector.spool import Spool, SpooledValues


@pytest.fixture
def limit_file_size() -> Iterator[None]:
    """Limit each file that the test writes to 100 bytes."""
    limits_before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits_before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits_before)


def test_each_reading_of_a_spool_returns_all_objects_in_their_order() -> None:
    values = [{"a": [1, None]}, "日本\ud800", b"\0" * 100_000, []]
    with Spool() as spool:
        assert list(spool.read()) == []
        for value in values:
            spool.append(value)
        assert list(spool.read()) == list(spool.read()) == values
    assert list(spool.read()) == []


def test_each_json_value_is_read_by_its_index() -> None:
    json_values: list[object] = ["\ud800", {"a": [None, True, 1.5]}, "日本", "x" * 100_000]
    for value in json_values:
        with SpooledValues() as spooled_values:
            spooled_values.add([["first"], [value], ["last"]])
            assert [spooled_values.read(index) for index in (1, 2, 0)] == [[value], ["last"], ["first"]]


@pytest.mark.usefixtures("limit_file_size")
def test_a_full_disk_ends_a_run_that_spools_the_rows_of_its_source() -> None:
    with Spool() as spool, pytest.raises(RunAborted, match=r"the rows of the source cannot be kept in .* TMPDIR"):
        spool.append(bytes(range(256)) * 10)
