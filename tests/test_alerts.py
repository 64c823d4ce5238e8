"""The alerts that the reports of successive runs cause, on a virtual clock."""

import json
from pathlib import Path
from typing import Any

import pytest

from connector.runs.alerts import AlertPolicy, LastRun, decide_alert, read_alert_record, write_alert

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def build_report(
    status: str = "ok", *messages: str, invalid_count: int = 0, new_count: int = 0, **values: Any
) -> dict[str, Any]:
    return {
        "run_id": "20261126T020000-0a1b2c", "job": "crm", "command": "sync", "status": status,
        "started_at": "2026-11-26T02:00:00+00:00", "rows": {"read": 9, "created": 2, "invalid": invalid_count},
        "opt_outs": 0, "messages": list(messages), **values,
        "problems": {
            "new": new_count, "open": invalid_count, "kinds": {"invalid": {"new": new_count, "open": invalid_count}},
        },
    }  # fmt: skip


def decide_alerts(reports: list[dict[str, Any]], interval_s: float, policy: AlertPolicy = "change") -> list[str | None]:
    """Return the reason of each run's alert, or None for a run without an alert. The runs of one job begin every
    `interval_s` seconds."""
    last_run, reasons = None, list[str | None]()
    for index, report in enumerate(reports):
        reason, last_run = decide_alert(policy, last_run, report, 1e9 + index * interval_s)
        reasons.append(reason)
    return reasons


def test_a_problem_that_lasts_causes_one_alert_a_day() -> None:
    reports = [build_report("aborted", "the database refuses connections")] * 5
    assert decide_alerts(reports, HOUR_S) == ["failure", None, None, None, None]
    assert decide_alerts(reports * 10, HOUR_S).count("reminder") == 2
    assert decide_alerts(reports, DAY_S) == ["failure", "reminder", "reminder", "reminder", "reminder"]
    assert decide_alerts(reports, DAY_S - 600) == ["failure", "reminder", "reminder", "reminder", "reminder"]


def test_a_cause_that_differs_only_in_numbers_and_ids_is_the_same_cause() -> None:
    reports_with_status_locked = [
        build_report(
            "locked", f"process {process_id} holds the ledger since 02:0{process_id}, run 20261126-{process_id}ab"
        )
        for process_id in (1, 2)
    ]
    assert decide_alerts(reports_with_status_locked, HOUR_S) == ["failure", None]
    other_report = build_report("locked", "the export writes the same file")
    assert decide_alerts([*reports_with_status_locked, other_report], HOUR_S)[-1] == "another_cause"


def test_new_problems_cause_an_alert_and_known_problems_cause_no_alert() -> None:
    reports = [
        build_report("partial", invalid_count=invalid_count, new_count=new_count)
        for invalid_count, new_count in ((3, 3), (3, 0), (3, 1), (4, 0), (5, 1))
    ]
    assert decide_alerts(reports, HOUR_S) == ["failure", None, "new_problems", None, "new_problems"]


def test_an_alert_is_sent_if_a_mail_run_has_more_invalid_rows_than_the_run_before() -> None:
    reports = [
        build_report("partial", command="mail", rows={"read": 9, "invalid": invalid_count})
        for invalid_count in (3, 3, 4, 2, 3)
    ]
    assert decide_alerts(reports, HOUR_S) == ["failure", None, "new_problems", None, "new_problems"]


def test_a_finished_run_after_a_failure_is_a_recovery_even_if_it_has_known_problems() -> None:
    reports = [
        build_report("partial", invalid_count=1, new_count=1),
        build_report("aborted", "x"),
        build_report("partial", invalid_count=1),
    ]
    assert decide_alerts(reports, HOUR_S) == ["failure", "another_cause", "recovery"]
    assert decide_alerts([*reports, build_report("partial", invalid_count=1), build_report()], HOUR_S)[3:] == [
        None,
        "recovery",
    ]
    assert (
        decide_alerts([*reports[:2], build_report("partial", invalid_count=2, new_count=1)], HOUR_S)[-1]
        == "new_problems"
    )


def test_a_run_with_status_ok_and_known_problems_causes_no_alert_and_no_recovery() -> None:
    reports = [
        build_report("partial", invalid_count=1, new_count=1),
        *[build_report(invalid_count=1)] * 3,
        build_report(),
    ]
    for interval_s in (HOUR_S, DAY_S):
        assert decide_alerts(reports, interval_s) == ["failure", None, None, None, "recovery"]
    assert decide_alerts(reports, DAY_S, "problem") == ["failure", None, None, None, None]
    assert decide_alerts([build_report(invalid_count=1)], DAY_S) == [None]


def test_a_list_that_is_incomplete_for_another_reason_causes_a_new_alert() -> None:
    certificates = [{"verdict": "incomplete", "reason": reason} for reason in ("cut_off", "cut_off", "unstable_order")]
    reports = [build_report("partial", certificate=certificate) for certificate in certificates]
    assert decide_alerts(reports, HOUR_S) == ["failure", None, "another_cause"]


def test_a_clock_that_is_set_back_does_not_stop_reminders() -> None:
    _, last_run = decide_alert("change", None, build_report("aborted", "x"), 1e9)
    assert decide_alert("change", last_run, build_report("aborted", "x"), 1e9 - 2 * DAY_S)[0] == "reminder"


@pytest.mark.parametrize(
    ("policy", "reasons"), [("problem", ["failure", "reminder", None]), ("always", ["failure", "run", "recovery"])]
)
def test_the_policy_decides_how_often_an_alert_is_sent(policy: AlertPolicy, reasons: list[str | None]) -> None:
    assert decide_alerts([build_report("partial"), build_report("partial"), build_report()], HOUR_S, policy) == reasons


def test_a_reminder_shows_the_first_day_of_the_problem() -> None:
    alert = write_alert(
        "reminder", LastRun("aborted: x", since="2026-11-20T02:00:00+00:00"), build_report("aborted", "x")
    )
    assert "Still a problem (since 2026-11-20): sync crm ended early" in alert.body


def test_an_alert_shows_markup_in_a_message_as_plain_text() -> None:
    alert = write_alert(
        "failure", LastRun("aborted"), build_report("aborted", "<!channel> & <https://x.org|y> \x1b[31m")
    )
    text = json.loads(alert.body)["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://x.org|y&gt; \\x1b[31m" in text
    assert text.splitlines()[-1] == "More: connector status 20261126T020000-0a1b2c"
    assert "run again" not in text, "the message may name a guard or another account"


@pytest.mark.parametrize("content", ["", "[]", '{"last_run": {"nonsense": 1}, "undelivered": []}', "{}"])
def test_a_record_of_alerts_that_cannot_be_read_counts_as_empty(tmp_path: Path, content: str) -> None:
    (tmp_path / "record.json").write_text(content)
    assert read_alert_record(tmp_path / "record.json").last_run is None
