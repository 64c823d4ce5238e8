"""Same account, same base (architecture 4.10): a run that meets another account, or an emptied base, sends nothing."""

from pathlib import Path

import pytest

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector, count_stored, wait_for, write_addresses
from tests.pipelines.leftovers import put_lag_on_record


def import_again(connector: Connector, path: Path, **environ: str) -> None:
    """More people than before; the run must end before any of them is sent."""
    ended = connector.run_json("import", path, "--base-name", "News", "--quiet-period", "200ms", environ=dict(environ))
    assert (ended.code, ended.report["rows"]["read"]) == (3, 0), ended.stderr
    assert "this token sees another account, or the base was emptied" in ended.stderr
    assert ended.report["requests"]["create"]["sent"] == 0


@pytest.mark.parametrize("filters", ["exact", "ignored"])
def test_an_emptied_base_ends_the_run_before_anything_is_sent(
    connector: Connector, tmp_path: Path, filters: str
) -> None:
    assert connector.import_file(write_addresses(tmp_path / "people.csv", 30)).code == 0
    connector.sandbox.reset()
    connector.sandbox.switch(filters=filters)
    import_again(connector, write_addresses(tmp_path / "more.csv", 40))
    assert connector.sandbox.truth()["subscribers"] == 0


@pytest.mark.parametrize("filters", ["exact", "ignored"])
def test_another_account_whose_ids_are_the_same_ends_the_run_before_anything_is_sent(
    connector: Connector, tmp_path: Path, filters: str
) -> None:
    """Without filters by the run's own listing: nobody of the ledger is on it."""
    assert connector.import_file(write_addresses(tmp_path / "people.csv", 30)).code == 0
    with SandboxProcess() as other:
        other.switch(filters=filters)
        (tmp_path / "elsewhere").mkdir()
        elsewhere = Connector(other, tmp_path / "elsewhere")
        assert elsewhere.import_file(write_addresses(tmp_path / "others.csv", 30, first=500)).code == 0
        more = write_addresses(tmp_path / "more.csv", 40)
        path = {"CONNECTOR_BASE_URL": other.base_url, "CONNECTOR_TOKEN": other.token}
        job = tmp_path / "job.yaml"
        job.write_text(
            f"job: j\nservice: {{account: {connector.sandbox.base_url!r}}}\nsource: {{file: {{path: x}}}}\n"
            "subscriber: {base: {name: News}}\nload: {quiet_period: 200ms}\n"
        )
        ended = connector.run_json("import", more, "--job", job, environ=path)
        assert ended.code == 3, ended.stderr
        assert "this token sees another account" in ended.stderr
        assert ended.report["requests"]["create"]["sent"] == 0
        assert other.truth()["subscribers"] == 30


def test_another_account_shows_right_after_the_run_before_too(connector: Connector, tmp_path: Path) -> None:
    """Subscribers that need not show yet are waited for, where the list shows none of them."""
    assert connector.import_file(write_addresses(tmp_path / "people.csv", 30)).code == 0
    connector.sandbox.reset()
    connector.sandbox.switch(filters="ignored", max_limit=10)
    connector.sandbox.seed(60, base_name="News")
    more = write_addresses(tmp_path / "more.csv", 33)
    ended = connector.run_json("import", more, "--base-name", "News", "--quiet-period", "3s")
    assert ended.code == 3, ended.stderr
    assert "this token sees another account" in ended.stderr
    assert connector.sandbox.truth()["subscribers"] == 60


def test_a_list_that_does_not_show_the_run_before_yet_is_read_again(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(filters="ignored", max_limit=10, list_lag_ms=3000)
    assert connector.import_file(write_addresses(tmp_path / "people.csv", 30)).code == 0
    connector.sandbox.seed(60, base_name="News")
    more = write_addresses(tmp_path / "more.csv", 31)
    ended = connector.run_json("import", more, "--base-name", "News", "--quiet-period", "4s")
    assert (ended.code, ended.rows) == (0, {"read": 31, "exists": 30, "created": 1}), ended.stderr


def test_one_who_was_erased_is_not_the_end(connector: Connector, tmp_path: Path) -> None:
    """Churn takes a few; three of four who are asked for are still there sooner or later."""
    path = write_addresses(tmp_path / "people.csv", 30)
    assert connector.import_file(path).code == 0
    connector.sandbox.switch(churn_delete=1.0)  # one vanishes after each page of the list
    ended = connector.import_file(write_addresses(tmp_path / "more.csv", 31))
    assert ended.rows == {"read": 31, "exists": 30, "created": 1}


def test_nobody_is_gone_who_cannot_be_asked_for(connector: Connector, tmp_path: Path) -> None:
    """A service that ignores the filter by Id, and a run with nothing new, which lists nothing."""
    path = write_addresses(tmp_path / "people.csv", 30)
    assert connector.import_file(path).code == 0
    connector.sandbox.switch(filters="ignored")
    ended = connector.import_file(path)
    assert (ended.code, ended.rows) == (0, {"read": 30, "exists": 30})


def test_people_of_the_run_before_who_do_not_show_yet_are_given_time(connector: Connector, tmp_path: Path) -> None:
    connector.sandbox.switch(list_lag_ms=1500)
    assert connector.import_file(write_addresses(tmp_path / "people.csv", 30)).code == 0
    more = write_addresses(tmp_path / "more.csv", 31)
    ended = connector.run_json("import", more, "--base-name", "News", "--quiet-period", "3s")
    assert (ended.code, ended.rows) == (0, {"read": 31, "exists": 30, "created": 1})


def test_subscribers_that_show_as_late_as_an_earlier_run_has_seen_are_given_time(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(list_lag_ms=5000)
    assert connector.import_file(write_addresses(tmp_path / "people.csv", 30)).code == 0
    put_lag_on_record(connector, 5.5)
    ended = connector.import_file(write_addresses(tmp_path / "more.csv", 31))
    assert (ended.code, ended.rows) == (0, {"read": 31, "exists": 30, "created": 1}), ended.stderr


def test_nothing_is_sent_again_into_another_account_either(connector: Connector, tmp_path: Path) -> None:
    """A run with nothing new, three unknown, and a filter by Id that is ignored: its sweep for the unknown tells."""
    sandbox = connector.sandbox
    assert connector.import_file(write_addresses(tmp_path / "people.csv", 30)).code == 0
    sandbox.switch(drop_before=1)
    path = write_addresses(tmp_path / "more.csv", 33)
    assert connector.import_file(path).rows == {"read": 33, "exists": 30, "unknown": 3}
    sandbox.reset()
    sandbox.switch(filters="ignored", max_limit=10)
    sandbox.seed(60, base_name="News")
    for command in (("import", path, "--base-name", "News"), ("retry",)):
        ended = connector.run_json(*command, "--quiet-period", "200ms")
        assert ended.code == 3, ended.stderr
        assert ended.report["requests"]["create"]["sent"] == 0
    assert sandbox.truth()["subscribers"] == 60


def test_people_of_a_run_that_was_killed_who_do_not_show_yet_are_given_time(
    connector: Connector, tmp_path: Path
) -> None:
    connector.sandbox.switch(list_lag_ms=3000, latency_ms=50)
    path = write_addresses(tmp_path / "people.csv", 300)
    with connector.start("import", path, "--base-name", "News") as running:
        wait_for(lambda: len(count_stored(connector.sandbox)) >= 150)
        running.kill()
        running.communicate()
    connector.sandbox.switch(latency_ms=0)
    ended = connector.run_json("import", path, "--base-name", "News", "--quiet-period", "4s")
    assert (ended.code, ended.rows["read"]) in ((0, 300), (1, 300)), ended.stderr
    assert set(count_stored(connector.sandbox).values()) == {1}
