"""What is unknown stays with its identity, its base and its body, whichever run meets it next."""

import signal
from pathlib import Path

from tests.pipelines.conftest import Connector, Ended, count_stored, wait_for, write_addresses, write_csv
from tests.pipelines.leftovers import lose_three


def test_unknowns_of_another_identity_are_settled_by_their_own(connector: Connector, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "ids.csv", "client_user_id,email", *(f"A{each},a{each}@x.org" for each in range(3)))
    lose_three(connector, path, "--identity", "client_user_id", drop_after=1)
    other = write_csv(tmp_path / "new.csv", "email", "z@x.org", "a1@x.org")
    ended = connector.import_file(other)
    assert ended.rows == {"read": 2, "created": 1, "exists": 1}
    assert ended.report["settled"] == {"found": 3, "absent": 0}
    assert set(count_stored(connector.sandbox).values()) == {1}


def test_unknowns_without_an_email_do_not_stop_a_run_by_email(connector: Connector, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "ids.csv", "client_user_id,first_name", "A1,Ann", "A2,Bob", "A3,Cem")
    lose_three(connector, path, "--identity", "client_user_id", drop_before=1)
    ended = connector.import_file(write_csv(tmp_path / "new.csv", "email", "z@x.org"))
    assert ended.rows == {"read": 1, "created": 1}, ended.stderr
    assert ended.report["settled"] == {"found": 0, "absent": 3}
    assert connector.sandbox.truth()["subscribers"] == 4


def test_a_base_by_id_and_then_by_name_is_one_even_while_the_list_lags(connector: Connector, tmp_path: Path) -> None:
    sandbox, path = connector.sandbox, write_addresses(tmp_path / "people.csv", 3)
    sandbox.switch(list_lag_ms=5000)
    lose_three(connector, path, "--base-id", "1", base=None, drop_after=1)
    too_early = connector.import_file(path, "--limit", "3")
    assert (too_early.code, too_early.rows) == (3, {"read": 3, "unsent": 3}), too_early.stderr
    assert "may be this one" in too_early.stderr
    settled = connector.run_json("import", path, "--base-id", "1", "--quiet-period", "2600ms")
    assert settled.rows == {"read": 3, "exists": 3}
    assert set(count_stored(sandbox).values()) == {1}


def test_what_an_earlier_run_left_unknown_is_told_even_without_a_row(connector: Connector, tmp_path: Path) -> None:
    lose_three(connector, write_addresses(tmp_path / "people.csv", 3), drop_before=1)
    ended = connector.import_file(write_csv(tmp_path / "new.csv", "email", "z@x.org"), "--on-unknown", "hold")
    assert (ended.code, ended.rows) == (1, {"read": 1, "created": 1})
    assert "3 unresolved creates from earlier runs" in ended.stderr


def test_a_newer_row_of_an_unknown_is_what_is_sent_again(connector: Connector, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    write_csv(path, "email,first_name", "a@x.org,Old", "b@x.org,Old", "c@x.org,Old")
    lose_three(connector, path, drop_before=1)
    write_csv(path, "email,first_name", "a@x.org,New", "b@x.org,Old", "c@x.org,Old")
    assert connector.import_file(path).rows == {"read": 3, "created": 3}
    stored = {e["subscriber"]["Email"]: e["subscriber"]["FirstName"] for e in connector.sandbox.truth()["events"]}
    assert stored == {"a@x.org": "New", "b@x.org": "Old", "c@x.org": "Old"}


def test_an_unknown_that_was_executed_with_older_values_is_changed(connector: Connector, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    write_csv(path, "email,first_name", "a@x.org,Old", "b@x.org,Old", "c@x.org,Old")
    lose_three(connector, path, drop_after=1)
    write_csv(path, "email,first_name", "a@x.org,New", "b@x.org,Old", "c@x.org,Old")
    assert connector.import_file(path).rows == {"read": 3, "exists": 2, "changed": 1}


def test_somebody_held_who_appears_is_held_no_longer(connector: Connector, tmp_path: Path) -> None:
    path = write_addresses(tmp_path / "people.csv", 3)
    lose_three(connector, path, drop_before=1)
    assert connector.import_file(path, "--on-unknown", "hold").rows == {"read": 3, "unknown": 3}
    elsewhere = {"CONNECTOR_STATE_DIR": str(tmp_path / "elsewhere")}
    one = write_addresses(tmp_path / "one.csv", 1)
    connector.run_json("import", one, "--base-name", "News", environ=elsewhere)
    ended = connector.import_file(write_addresses(tmp_path / "more.csv", 4), "--on-unknown", "hold")
    assert ended.rows == {"read": 4, "exists": 1, "created": 1, "unknown": 2}


def test_a_name_that_two_bases_bear_is_refused_and_either_can_be_given_by_its_id(
    connector: Connector, tmp_path: Path
) -> None:
    one, other = write_addresses(tmp_path / "one.csv", 3), write_addresses(tmp_path / "other.csv", 3, first=2)
    connector.run_json("import", one, "--base-name", "Base 2")  # the first base: the sandbox gives it the id 1
    connector.run_json("import", other, "--base-id", "2")  # a new one, which the sandbox calls "Base 2" as well
    by_name = connector.run_json("import", one, "--base-name", "Base 2")
    assert by_name.is_refused
    assert "ids 1, 2" in by_name.stderr
    fresh = {"CONNECTOR_STATE_DIR": str(tmp_path / "fresh")}
    unknowing = connector.run_json("import", one, "--base-name", "Base 2", environ=fresh)
    assert unknowing.is_refused
    assert "several bases" in unknowing.stderr
    by_id = connector.run_json("import", one, "--base-id", "2", environ=fresh)
    assert by_id.rows == {"read": 3, "exists": 1, "created": 2}


def test_a_base_that_bears_another_name_now_is_not_written_to(connector: Connector, tmp_path: Path) -> None:
    connector.import_file(write_addresses(tmp_path / "people.csv", 3))
    for each in range(3):  # else the run would end sooner, since nobody whom the ledger knows is there
        assert connector.run("forget", f"person{each}@example.com").code == 0
    connector.sandbox.reset()
    connector.sandbox.seed(5, base_name="Other")  # it gets the id that News had
    ended = connector.import_file(write_addresses(tmp_path / "more.csv", 4))
    assert ended.code == 3
    assert ended.report["requests"]["create"]["sent"] == 0
    assert "no longer called News" in ended.stderr


def test_a_signal_while_absence_is_being_proved_ends_the_run(connector: Connector, tmp_path: Path) -> None:
    sandbox = connector.sandbox
    path = write_addresses(tmp_path / "people.csv", 3)
    lose_three(connector, path, drop_before=1)
    before = sandbox.stats()["requests"]["list"]["received"]
    with connector.start("import", path, "--base-name", "News", "--quiet-period", "1s", "--output", "json") as process:
        wait_for(lambda: sandbox.stats()["requests"]["list"]["received"] >= before + 2)
        sandbox.switch(latency_ms=300)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=10)
    assert process.returncode == 130, stderr
    assert Ended(130, stdout, stderr).rows == {"read": 3, "unknown": 3}
    sandbox.switch(latency_ms=0)
    assert connector.import_file(path).rows == {"read": 3, "created": 3}


def test_a_signal_while_the_list_is_read_ends_the_run(connector: Connector, tmp_path: Path) -> None:
    sandbox = connector.sandbox
    sandbox.seed(50_000, base_name="News")
    sandbox.switch(latency_ms=100)
    path = write_addresses(tmp_path / "people.csv", 3)
    with connector.start("import", path, "--base-name", "News", "--output", "json") as process:
        wait_for(lambda: sandbox.stats()["requests"].get("list", {}).get("received", 0) >= 3)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=10)
    assert process.returncode == 143
    assert Ended(143, stdout, stderr).rows == {"read": 3, "unsent": 3}
    assert sandbox.stats()["requests"]["list"]["received"] < 20


def test_knowledge_that_has_grown_old_is_renewed(connector: Connector, tmp_path: Path) -> None:
    write_addresses(tmp_path / "people.csv", 200)
    job = tmp_path / "job.yaml"
    job.write_text(
        "job: slow\nsource: {file: {path: people.csv}}\nsubscriber: {base: {id: 7}}\n"
        "load: {fresh: 1s, max_concurrency: 1}\n",
        encoding="utf-8",
    )
    connector.sandbox.switch(latency_ms=20)
    ended = connector.run_json("sync", job)
    assert ended.rows == {"read": 200, "created": 200}
    assert ended.report["requests"]["list"]["sent"] >= 3  # the run takes four seconds
