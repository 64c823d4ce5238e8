"""Objects that wait in a spool come back in their order, as often as they are read."""

import resource

import pytest

from connector.errors import RunAborted
from connector.spool import Spool


def test_objects_come_back_in_their_order_as_often_as_they_are_read() -> None:
    values = [{"a": [1, None]}, "日本\ud800", b"\0" * 100_000, []]
    with Spool() as spool:
        assert list(spool.read()) == []
        for value in values:
            spool.append(value)
        assert list(spool.read()) == list(spool.read()) == values
    assert list(spool.read()) == []


def test_a_full_disk_ends_the_run_that_spools() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Spool() as spool:
        spool.append("first")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # of every file that is written now
        try:
            with pytest.raises(RunAborted, match=r"the rows of the source cannot be kept in .* TMPDIR"):
                spool.append(bytes(range(256)) * 10)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
