"""Values that wait in a temporary file come back as they were."""

import resource

import pytest

from connector.errors import RunAborted
from connector.spooled_values import SpooledValues


@pytest.mark.parametrize("value", ["\ud800", {"a": [None, True, 1.5]}, "日本", "x" * 100_000])
def test_every_json_value_comes_back_as_it_was(value: object) -> None:
    kept = SpooledValues()
    kept.add([["first"], [value], ["last"]])
    assert [kept.read(place) for place in (1, 2, 0)] == [[value], ["last"], ["first"]]
    kept.close()


def test_a_full_disk_ends_the_run() -> None:
    kept, before = SpooledValues(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # of every file that is written now
    try:
        with pytest.raises(RunAborted, match="TMPDIR"):
            kept.add([["x" * 100_000]])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        kept.close()
