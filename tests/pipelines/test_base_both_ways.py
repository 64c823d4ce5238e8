"""A base that some rows give by its id and others by its name: nobody comes in twice, whenever it is told that it is
one."""

from pathlib import Path

import pytest

from pipelines.runs.report import Report
from tests.pipelines.conftest import Connector, wait_for
from tests.pipelines.lists import count_by_base, load_here, write_parts

ANN = (1, "ann@x.org")


@pytest.mark.parametrize("ways", [("1", "Base 1"), ("Base 1", "1")])
def test_the_same_person_by_id_and_by_name_is_created_once(
    connector: Connector, tmp_path: Path, ways: tuple[str, str]
) -> None:
    connector.sandbox.seed(1, base_name="Base 1")
    ended = connector.run_json("sync", write_parts(tmp_path, tuple(f"ann@x.org,{way}" for way in ways)))
    assert (ended.code, ended.rows) == (0, {"read": 2, "created": 1, "exists": 1})
    assert count_by_base(connector.sandbox) == {ANN: 1}


def test_a_base_known_by_name_alone_turns_out_to_be_that_of_an_id(connector: Connector, tmp_path: Path) -> None:
    """Its first row is refused, so that nothing tells its id; a row by the id does, and then comes one by the name."""
    connector.sandbox.switch(required=["FirstName"])
    parts = (("bob@x.org,Base 1,",), ("ann@x.org,1,Ann",), ("ann@x.org,Base 1,Ann", "cem@x.org,Base 1,Cem"))
    ended = connector.run_json("sync", write_parts(tmp_path, *parts, columns="email,list,first_name"))
    assert (ended.code, ended.rows) == (1, {"read": 4, "rejected": 1, "created": 2, "exists": 1})
    assert count_by_base(connector.sandbox) == {ANN: 1, (1, "cem@x.org"): 1}
    assert ended.report["messages"][0] == "created in Base 1 (id 1): 1, Base 1 (id 1): 1"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ways", [("1", "Base 1"), ("Base 1", "1")])
def test_creates_that_are_lost_before_that_is_told_make_nobody_twice(
    connector: Connector, tmp_path: Path, ways: tuple[str, str], seed: int
) -> None:
    connector.sandbox.switch(drop_before=0.3, drop_after=0.3, created_422=0.1, seed=seed)
    people = ["ann", "bob", "cem"]
    parts = [tuple(f"{each}@x.org,{way}" for each in people) for way in (*ways, *ways)]
    job = write_parts(tmp_path, *parts)
    ended = connector.run_json("sync", job)
    assert sum(ended.rows.values()) == 2 * ended.rows["read"]
    assert set(count_by_base(connector.sandbox).values()) <= {1}
    connector.sandbox.switch(drop_before=0, drop_after=0, created_422=0)
    connector.run_json("retry", "--quiet-period", "200ms")
    assert connector.run_json("sync", job).code == 0
    assert count_by_base(connector.sandbox) == {(1, f"{each}@x.org"): 1 for each in people}


def lose_the_name(connector: Connector, job: Path, **loss: int) -> Report:
    """The first chunk is taken as it should be, the second one's creates are lost, the third one is well again."""

    def switch(number: int) -> None:
        connector.sandbox.switch(**{name: share if number == 1 else 0 for name, share in loss.items()})

    return load_here(connector, job, before_chunk=switch)


REFUSED_LOST_AGAIN = (("bob@x.org,1,",), ("ann@x.org,Base 1,Ann",), ("ann@x.org,1,Ann",))


def test_whoever_is_unknown_by_the_name_is_settled_before_a_row_by_the_id(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(required=["FirstName"])
    job = write_parts(tmp_path, *REFUSED_LOST_AGAIN, columns="email,list,first_name")
    report = lose_the_name(connector, job, drop_after=1)
    assert (report.status, {name: number for name, number in report.rows.items() if number}) == (
        "partial", {"read": 3, "rejected": 1, "created": 1, "exists": 1},
    )  # fmt: skip
    assert count_by_base(connector.sandbox) == {ANN: 1}


def test_whoever_is_held_by_the_name_ends_the_run_before_a_row_by_the_id(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(required=["FirstName"])
    job = write_parts(tmp_path, *REFUSED_LOST_AGAIN, columns="email,list,first_name", more=", on_unknown: hold")
    report = lose_the_name(connector, job, drop_before=1)
    assert (report.status, {name: number for name, number in report.rows.items() if number}) == (
        "aborted", {"read": 3, "rejected": 1, "unknown": 1, "unsent": 1},
    )  # fmt: skip
    assert "base 1: 1 creates are unknown or held in a base that may be this one" in report.messages[0]
    assert count_by_base(connector.sandbox) == {}


def lose_and_kill(connector: Connector, job: Path) -> None:
    """Its creates are lost before anybody is stored, and it is killed before it can tell."""
    connector.sandbox.switch(drop_before=1)
    with connector.start("sync", job) as process:
        wait_for(lambda: bool(connector.sandbox.stats()["faults"].get("drop_before")))
        process.kill()
        process.communicate()
    connector.sandbox.switch(drop_before=0)


def test_a_list_that_lags_is_no_emptied_base_when_rows_give_it_the_other_way_too(
    connector: Connector, tmp_path: Path
) -> None:
    """Those whom this very run has created need not show yet."""
    connector.sandbox.switch(list_lag_ms=60_000)
    ended = connector.run_json("sync", write_parts(tmp_path, ("ann@x.org,1", "bob@x.org,Base 1")))
    assert (ended.code, ended.rows) == (0, {"read": 2, "created": 2}), ended.stdout


@pytest.mark.parametrize("more", ["", "guard: {max_creates: 10}\n"])
def test_what_an_earlier_run_left_by_the_name_is_settled_before_a_row_by_an_id(
    connector: Connector, tmp_path: Path, more: str
) -> None:
    lose_and_kill(connector, write_parts(tmp_path, ("ann@x.org,Base 1",)))
    job = write_parts(tmp_path, ("ann@x.org,1", "bob@x.org,Base 1"))
    job.write_text(job.read_text(encoding="utf-8") + more, encoding="utf-8")
    ended = connector.run_json("sync", job)
    assert (ended.code, ended.rows) == (0, {"read": 2, "exists": 1, "created": 1}), ended.stdout
    assert count_by_base(connector.sandbox) == {ANN: 1, (1, "bob@x.org"): 1}


def test_whoever_is_sent_again_is_sent_as_the_row_says_now_whichever_way_it_gives_the_base(
    connector: Connector, tmp_path: Path
) -> None:
    columns = "email,list,first_name"
    connector.run_json("sync", write_parts(tmp_path, ("bob@x.org,Base 1,Bob",), columns=columns))
    lose_and_kill(connector, write_parts(tmp_path, ("ann@x.org,Base 1,An",), columns=columns))
    rows = ("cem@x.org,1,Cem", "ann@x.org,Base 1,Ann")
    ended = connector.run_json("sync", write_parts(tmp_path, rows, columns=columns))
    assert (ended.code, ended.rows) == (0, {"read": 2, "created": 2}), ended.stdout
    events = connector.sandbox.truth()["events"]
    names = [event["subscriber"].get("FirstName") for event in events if event["kind"] == "created"]
    assert sorted(names) == ["Ann", "Bob", "Cem"]


def test_a_retry_takes_up_what_was_left_by_the_name_though_it_learns_meanwhile_that_the_base_is_one(
    connector: Connector, tmp_path: Path
) -> None:
    sandbox, columns = connector.sandbox, "email,list,first_name"
    sandbox.switch(required=["FirstName"])
    parts = (("dan@x.org,1,",), ("ann@x.org,Base 1,",))
    assert connector.run_json("sync", write_parts(tmp_path, *parts, columns=columns)).rows["rejected"] == 2
    sandbox.switch(required=[])
    ended = connector.run_json("retry", "--rejected", "--quiet-period", "200ms")
    assert (ended.code, ended.rows) == (0, {"read": 2, "created": 2}), ended.stdout
