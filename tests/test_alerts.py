"""The reports that are alerts, night by night on a virtual clock."""

import json
from pathlib import Path
from typing import Any

import pytest

from connector.runs.alerts import AlertPolicy, LastRun, decide_alert, read_record, write_alert

HOUR_S = 3600.0
NIGHT_S = 24 * HOUR_S


def report(status: str = "ok", *messages: str, invalid: int = 0, new: int = 0, **values: Any) -> dict[str, Any]:
    return {
        "run_id": "20261126T020000-0a1b2c", "job": "crm", "command": "sync", "status": status,
        "started_at": "2026-11-26T02:00:00+00:00", "rows": {"read": 9, "created": 2, "invalid": invalid},
        "opt_outs": 0, "messages": list(messages), **values,
        "problems": {"new": new, "open": invalid, "kinds": {"invalid": {"new": new, "open": invalid}}},
    }  # fmt: skip


def decide_all(reports: list[dict[str, Any]], interval_s: float, policy: AlertPolicy = "change") -> list[str | None]:
    """Return the reason of each run's alert, for runs of one job with this interval."""
    last_run, reasons = None, list[str | None]()
    for index, finished in enumerate(reports):
        reason, last_run = decide_alert(policy, last_run, finished, 1e9 + index * interval_s)
        reasons.append(reason)
    return reasons


def test_a_problem_that_lasts_is_an_alert_once_a_day() -> None:
    lasting = [report("aborted", "the database refuses connections")] * 5
    assert decide_all(lasting, HOUR_S) == ["failure", None, None, None, None]
    assert decide_all(lasting * 10, HOUR_S).count("reminder") == 2
    assert decide_all(lasting, NIGHT_S) == ["failure", "reminder", "reminder", "reminder", "reminder"]
    assert decide_all(lasting, NIGHT_S - 600) == ["failure", "reminder", "reminder", "reminder", "reminder"]


def test_a_cause_that_differs_only_in_numbers_and_ids_is_the_same_cause() -> None:
    locked = [
        report("locked", f"process {pid} holds the ledger since 02:0{pid}, run 20261126-{pid}ab") for pid in (1, 2)
    ]
    assert decide_all(locked, HOUR_S) == ["failure", None]
    assert decide_all([*locked, report("locked", "the export writes the same file")], HOUR_S)[-1] == "another_cause"


def test_new_problems_are_an_alert_and_known_ones_are_none() -> None:
    reports = [report("partial", invalid=number, new=new) for number, new in ((3, 3), (3, 0), (3, 1), (4, 0), (5, 1))]
    assert decide_all(reports, HOUR_S) == ["failure", None, "new_problems", None, "new_problems"]


def test_more_rows_of_a_command_that_remembers_no_problems_are_an_alert() -> None:
    reports = [report("partial", command="mail", rows={"read": 9, "invalid": number}) for number in (3, 3, 4, 2, 3)]
    assert decide_all(reports, HOUR_S) == ["failure", None, "new_problems", None, "new_problems"]


def test_a_run_that_finishes_after_a_failure_is_a_recovery_while_known_problems_stay_open() -> None:
    reports = [report("partial", invalid=1, new=1), report("aborted", "x"), report("partial", invalid=1)]
    assert decide_all(reports, HOUR_S) == ["failure", "another_cause", "recovery"]
    assert decide_all([*reports, report("partial", invalid=1), report()], HOUR_S)[3:] == [None, "recovery"]
    assert decide_all([*reports[:2], report("partial", invalid=2, new=1)], HOUR_S)[-1] == "new_problems"


def test_a_run_that_is_ok_with_known_problems_is_neither_an_alert_nor_a_recovery() -> None:
    reports = [report("partial", invalid=1, new=1), *[report(invalid=1)] * 3, report()]
    for interval_s in (HOUR_S, NIGHT_S):
        assert decide_all(reports, interval_s) == ["failure", None, None, None, "recovery"]
    assert decide_all(reports, NIGHT_S, "problem") == ["failure", None, None, None, None]
    assert decide_all([report(invalid=1)], NIGHT_S) == [None]


def test_an_incomplete_list_for_another_reason_is_another_cause() -> None:
    certificates = [{"verdict": "incomplete", "reason": reason} for reason in ("cut_off", "cut_off", "unstable_order")]
    reports = [report("partial", certificate=certificate) for certificate in certificates]
    assert decide_all(reports, HOUR_S) == ["failure", None, "another_cause"]


def test_a_recovery_is_an_alert_once_and_a_run_that_is_ok_is_none() -> None:
    assert decide_all([report(), report("stopped"), report(), report()], HOUR_S) == [None, "failure", "recovery", None]


def test_a_clock_that_is_put_back_does_not_silence_reminders() -> None:
    _, last_run = decide_alert("change", None, report("aborted", "x"), 1e9)
    assert decide_alert("change", last_run, report("aborted", "x"), 1e9 - 2 * NIGHT_S)[0] == "reminder"


@pytest.mark.parametrize(
    ("policy", "reasons"),
    [("problem", ["failure", "reminder", None]), ("always", ["failure", "run", "recovery"])],
)
def test_other_policies_send_more(policy: AlertPolicy, reasons: list[str | None]) -> None:
    assert decide_all([report("partial"), report("partial"), report()], HOUR_S, policy) == reasons


def test_a_reminder_says_since_when() -> None:
    alert = write_alert("reminder", LastRun("aborted: x", since="2026-11-20T02:00:00+00:00"), report("aborted", "x"))
    assert "Still a problem (since 2026-11-20): sync crm ended early" in alert.body


def test_no_message_becomes_a_link_or_a_mention_or_an_escape_sequence() -> None:
    alert = write_alert("failure", LastRun("aborted"), report("aborted", "<!channel> & <https://x.org|y> \x1b[31m"))
    text = json.loads(alert.body)["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://x.org|y&gt; \\x1b[31m" in text
    assert text.splitlines()[-1] == "More: connector status 20261126T020000-0a1b2c"


@pytest.mark.parametrize("content", ["", "[]", '{"last_run": {"nonsense": 1}, "undelivered": []}', "{}"])
def test_a_record_that_cannot_be_read_is_an_empty_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "record.json").write_text(content)
    assert read_record(tmp_path / "record.json").last_run is None
