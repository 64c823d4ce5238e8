"""Values that wait in a temporary file come back as they were."""

import resource

import pytest

from connector.errors import RunAborted
from connector.kept_values import KeptValues


@pytest.mark.parametrize("value", ["\ud800", {"a": [None, True, 1.5]}, "日本", "x" * 100_000])
def test_whatever_json_can_say_is_kept(value: object) -> None:
    kept = KeptValues()
    kept.add([["first"], [value], ["last"]])
    assert [kept.read(place) for place in (1, 2, 0)] == [[value], ["last"], ["first"]]
    kept.close()


def test_where_there_is_no_room_the_run_ends() -> None:
    kept, before = KeptValues(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # of every file that is written now
    try:
        with pytest.raises(RunAborted, match="TMPDIR"):
            kept.add([["x" * 100_000]])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        kept.close()
