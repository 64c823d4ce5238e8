"""What stays unknown in several bases of a run is settled together at its end."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from connector.clock import system_clock
from connector.listing.evidence import MOST_REQUESTS
from tests.pipelines.conftest import Connector, has_stored, wait_for
from tests.pipelines.lists import count_by_base, load_here, write_lists, write_parts

BASES = range(1, 9)
QUIET_S = 0.2


@pytest.mark.parametrize("loss", ["drop_before", "drop_after"])
def test_the_quiet_periods_of_all_bases_are_waited_for_at_once(connector: Connector, tmp_path: Path, loss: str) -> None:
    system, waits = system_clock(), Counter[bool]()

    async def sleep(seconds: float) -> None:
        waits[seconds > QUIET_S / 2] += 1
        await system.sleep(seconds)

    def lose(number: int) -> None:
        connector.sandbox.switch(**{loss: int(number == 1)})

    parts = [tuple(f"person{number}@x.org,{base}" for base in BASES) for number in range(3)]
    job = write_parts(tmp_path, *parts)
    report = load_here(connector, job, before_chunk=lose, clock=replace(system, sleep=sleep))
    assert (report.status, report.rows["created"]) == ("ok", 24)
    assert report.settled == ({"found": 0, "absent": 8} if loss == "drop_before" else {"found": 8, "absent": 0})
    assert count_by_base(connector.sandbox) == Counter((base, f"person{n}@x.org") for base in BASES for n in range(3))
    assert waits[True] < len(BASES)  # one for each, or two, if they were settled one after another
    sweeps = 4  # one before the creates and three after them, for all bases together
    assert report.requests["list"]["sent"] <= sweeps * (2 + MOST_REQUESTS)


def test_what_an_earlier_run_left_in_a_base_without_rows_is_settled(connector: Connector, tmp_path: Path) -> None:
    job = write_lists(tmp_path, "ann@x.org,shop")
    connector.sandbox.switch(hang_after=1)
    with connector.start("sync", job) as process:
        wait_for(partial(has_stored, connector.sandbox, 1))
        process.kill()
        process.communicate()
    connector.sandbox.switch(hang_after=0)
    ended = connector.run_json("sync", write_lists(tmp_path, "bob@x.org,news"))
    assert (ended.code, ended.rows, ended.report["settled"]) == (
        0, {"read": 1, "created": 1}, {"found": 1, "absent": 0},
    )  # fmt: skip


def test_whoever_was_confirmed_in_another_base_tells_that_the_list_lags(connector: Connector, tmp_path: Path) -> None:
    """Somebody lost in one base is not absent as long as a later one, of another base, does not show (architecture
    4.5)."""
    connector.sandbox.switch(list_lag_ms=2000)

    def lose(number: int) -> None:
        connector.sandbox.switch(drop_after=int(number == 0))

    job = write_parts(tmp_path, ("ann@x.org,1",), ("bob@x.org,2",))
    report = load_here(connector, job, before_chunk=lose)
    assert count_by_base(connector.sandbox) == {(1, "ann@x.org"): 1, (2, "bob@x.org"): 1}
    assert (report.status, report.rows["created"], report.settled) == ("ok", 2, {"found": 1, "absent": 0})


def test_how_late_the_list_was_for_one_base_counts_for_the_others(connector: Connector, tmp_path: Path) -> None:
    """Of whoever was lost last nobody confirmed can tell: then it is the largest lag of the run that is waited for."""
    connector.sandbox.switch(list_lag_ms=1500)

    def lose(number: int) -> None:
        connector.sandbox.switch(drop_after=int(number != 1))

    job = write_parts(tmp_path, ("ann@x.org,1",), ("bob@x.org,1",), ("cem@x.org,2",))
    load_here(connector, job, before_chunk=lose)
    assert set(count_by_base(connector.sandbox).values()) == {1}
