"""The bases of one run share its pace: what was found for one holds for the next, and ceilings hold over all."""

from pathlib import Path

from connector.load.base_load import Loader
from connector.load.finishing import RunMode
from connector.load.presence import BasePresence
from connector.load.session import Session
from connector.pace.pace import Pace
from tests.pipelines.conftest import Connector
from tests.pipelines.lists import count_by_base, load_here, write_lists
from tests.pipelines.test_pace import measure_seconds


def test_the_bases_of_a_run_share_the_pace_that_was_found(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(rate=60, burst=10, latency_ms=5)
    rows = [f"person{number}@x.org,{name}" for name in ("news", "shop") for number in range(150)]
    paces: list[Pace] = []

    def make(session: Session, mode: RunMode, presence: BasePresence) -> Loader:
        assert session.pace is not None
        paces.append(session.pace)
        return Loader(session, mode, presence)

    assert load_here(connector, write_lists(tmp_path, *rows), make=make).status == "ok"
    assert connector.sandbox.stats()["limited"] > 0
    of_news, of_shop = paces
    assert of_shop is of_news
    assert of_news.rate.found is not None


def test_no_base_is_sent_to_while_the_service_asks_for_a_pause(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(rate=20, burst=2, limiter="fixed_window", retry_after="seconds", latency_ms=5)
    rows = [f"person{number}@x.org,{number % 30 + 1}" for number in range(70)]
    ended = connector.run_json("sync", write_lists(tmp_path, *rows, base="{column: list}"))
    stats = connector.sandbox.stats()
    assert (ended.code, ended.rows) == (0, {"read": 70, "created": 70}), ended.stderr
    assert stats["limited"] > 0
    assert stats["inside_retry_after"]["told"] == 0


def test_ceilings_hold_over_all_bases_together(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(latency_ms=40)
    rows = [f"person{number}@x.org,{number % 3 + 1}" for number in range(120)]
    job = write_lists(tmp_path, *rows, base="{column: list}")
    job.write_text(job.read_text(encoding="utf-8").replace("200ms", "200ms, max_rate: 60, max_concurrency: 3"))
    ended = connector.run_json("sync", job)
    assert (ended.code, ended.rows) == (0, {"read": 120, "created": 120}), ended.stderr
    assert measure_seconds(ended.report["started_at"], ended.report["finished_at"]) >= 119 / 60
    assert connector.sandbox.stats()["peak_in_flight"] <= 3


def test_a_service_that_answers_nothing_readable_is_left_alone_whatever_the_bases(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(garbage_after=1)
    job = write_lists(tmp_path, *(f"p{number}@x.org,{number + 1}" for number in range(10)), base="{column: list}")
    ended = connector.run_json("sync", job)
    assert (ended.code, ended.rows) == (3, {"read": 10, "unknown": 3, "unsent": 7})
    assert sum(count_by_base(connector.sandbox).values()) == 3
