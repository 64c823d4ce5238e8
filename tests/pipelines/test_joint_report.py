"""One report of a run in parts: sums, messages, files and times of what the parts say."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from connector.errors import LockedError, RunAborted
from connector.outcomes import Outcome
from connector.report import OpenReport, Report, count_rows
from pipelines.flows.joint_report import PartEnd, merge_parts

BEGAN = datetime(2026, 11, 24, 8, tzinfo=UTC)


def build_report(created: int = 0, exists: int = 0, *, begins_after_s: float = 0.0, **given: Any) -> Report:
    report = OpenReport("20261124T080000-000001", "crm", "sync", BEGAN + timedelta(seconds=begins_after_s))
    report.rows = count_rows(created + exists, {Outcome.CREATED: created, Outcome.EXISTS: exists})
    for name, value in given.items():
        setattr(report, name, value)
    return report.close()


def merge(folder: Path, *ends: PartEnd) -> tuple[str, OpenReport]:
    whole = OpenReport("20261124T080000-000002", "crm", "sync", BEGAN)
    return merge_parts(whole, ends, folder), whole


def test_counts_are_summed_and_the_worst_status_counts(tmp_path: Path) -> None:
    requests = {"create": {"sent": 3, "retried": 1, "limited": 0, "failed": 2}}
    first = build_report(3, 1, requests=requests, echo={"phone": 1}, settled={"found": 1, "absent": 0})
    second = build_report(2, 5, requests=requests, echo={"phone": 2, "city": 1}, settled={"found": 0, "absent": 4})
    status, whole = merge(tmp_path, PartEnd(1, first), PartEnd(2, replace(second, status="partial")))
    assert status == "partial"
    assert {name: number for name, number in whole.rows.items() if number} == {"read": 11, "exists": 6, "created": 5}
    assert whole.requests == {"create": {"sent": 6, "retried": 2, "limited": 0, "failed": 4}}
    assert whole.echo == {"city": 1, "phone": 3}
    assert whole.settled == {"found": 1, "absent": 4}
    for error, expected in ((LockedError("held"), "locked"), (RunAborted("lost"), "aborted")):
        assert merge(tmp_path, PartEnd(1, first), PartEnd(2, error=error))[0] == expected
    assert merge(tmp_path, PartEnd(1, error=RunAborted("lost")), PartEnd(2, error=LockedError("held")))[0] == "aborted"


def test_rows_that_earlier_attempts_created_count_as_created_and_never_more_than_exist(tmp_path: Path) -> None:
    _, whole = merge(tmp_path, PartEnd(1, build_report(3, 5), created_before=4), PartEnd(2, build_report(0, 1)))
    assert (whole.rows["created"], whole.rows["exists"], whole.rows["read"]) == (7, 2, 9)
    _, whole = merge(tmp_path, PartEnd(1, build_report(3, 5), created_before=9), PartEnd(2, created_before=2))
    assert (whole.rows["created"], whole.rows["exists"], whole.rows["read"]) == (10, 0, 10)
    early = build_report(status="aborted")
    early = replace(early, rows=count_rows(6, {Outcome.EXISTS: 2, Outcome.UNSENT: 3, Outcome.CREATED: 1}))
    _, whole = merge(tmp_path, PartEnd(1, early, created_before=4))
    assert {name: number for name, number in whole.rows.items() if number} == {"read": 6, "unsent": 1, "created": 5}
    _, whole = merge(tmp_path, PartEnd(1, early, created_before=9))
    assert {name: number for name, number in whole.rows.items() if number} == {"read": 10, "created": 10}


def test_rows_that_earlier_attempts_created_count_as_created_when_the_last_one_ended_early(tmp_path: Path) -> None:
    rows = count_rows(10, {Outcome.CREATED: 2, Outcome.EXISTS: 5, Outcome.UNSENT: 3})
    stopped = replace(build_report(), status="stopped", rows=rows)
    _, whole = merge(tmp_path, PartEnd(1, stopped, created_before=7))
    counted = {name: number for name, number in whole.rows.items() if number}
    assert counted == {"read": 10, "created": 9, "unsent": 1}
    _, whole = merge(tmp_path, PartEnd(1, stopped, created_before=20))
    assert {name: number for name, number in whole.rows.items() if number} == {"read": 22, "created": 22}
    _, whole = merge(tmp_path, PartEnd(1, created_before=20, unresolved_before=3))
    assert {name: number for name, number in whole.rows.items() if number} == {"read": 23, "created": 20, "unknown": 3}
    assert whole.messages == [
        "3 creates that parts without a report had sent have no known outcome: the next run looks them up first"
    ]


def test_messages_of_some_parts_have_their_numbers_and_those_of_all_have_none(tmp_path: Path) -> None:
    reports = [build_report(messages=["of all", *more]) for more in ([], ["of two"], ["of two"])]
    _, whole = merge(
        tmp_path, *(PartEnd(number, report, deaths=number - 1) for number, report in enumerate(reports, 1))
    )
    assert whole.messages[:2] == ["of all", "parts 2, 3: of two"]
    assert whole.messages[2].startswith("3 workers died and were replaced (part 2: 1, part 3: 2)")


def test_causes_are_merged_with_the_first_examples(tmp_path: Path) -> None:
    def build_cause(rows: int, *numbers: int) -> dict[str, Any]:
        examples = [{"row": number, "file": "a.csv", "value": "•"} for number in numbers]
        return {
            "outcome": "invalid",
            "field": "email",
            "code": "email",
            "message": "bad",
            "rows": rows,
            "examples": examples,
        }

    one, other = build_cause(4, 2001, 2002, 2003), build_cause(2, 7, 1001)
    rare = build_cause(5, 1) | {"message": "worse"}
    _, whole = merge(tmp_path, PartEnd(1, build_report(causes=[one, rare])), PartEnd(2, build_report(causes=[other])))
    assert [(cause["message"], cause["rows"]) for cause in whole.causes] == [("bad", 6), ("worse", 5)]
    assert [example["row"] for example in whole.causes[0]["examples"]] == [7, 1001, 2001]


def test_files_of_parts_are_put_together_and_those_elsewhere_are_named(tmp_path: Path) -> None:
    header = '"a ""strange""\nname",_row\r\n'
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(f"{header}{name},1\r\n", newline="")
    files = [tmp_path / "one.csv", tmp_path / "two.csv", tmp_path / "gone.csv"]
    ends = [
        PartEnd(number, build_report(rejects_file=str(file)), worker="far:7") for number, file in enumerate(files, 1)
    ]
    _, whole = merge(tmp_path, *ends)
    assert whole.rejects_file is not None
    merged = Path(whole.rejects_file)
    assert merged.read_bytes().decode() == f"{header}one,1\r\ntwo,1\r\n"
    assert merged.stat().st_mode & 0o777 == 0o600
    assert whole.messages == [
        f"part 3: its file {files[2]} is on the machine of its worker (far:7), and is not among those of this run"
    ]
    assert whole.drift_file is None


def test_requests_of_all_parts_lie_on_one_line_of_time(tmp_path: Path) -> None:
    def build_timeline(width_s: float, sent: list[int], paused_s: float = 0.0) -> dict[str, Any]:
        zeros = [0] * len(sent)
        return {
            "bucket_s": width_s, "seconds": width_s * len(sent), "sent": sent, "limited": zeros, "failed": zeros,
            "round_trip_ms": [10.0 * each or None for each in sent], "paused_s": [paused_s] * len(sent),
        }  # fmt: skip

    first = build_report(timeline=build_timeline(0.25, [1, 1, 2, 0], 0.25))
    second = build_report(begins_after_s=1.0, timeline=build_timeline(0.5, [3, 4], 0.1))
    _, whole = merge(tmp_path, PartEnd(1, first), PartEnd(2, second), PartEnd(3, build_report()))
    assert whole.timeline is not None
    assert whole.timeline["bucket_s"] == 0.5
    assert whole.timeline["seconds"] == 2.0
    assert whole.timeline["sent"][:4] == [2, 2, 3, 4]
    assert whole.timeline["round_trip_ms"][:4] == [10.0, 20.0, 30.0, 40.0]
    assert whole.timeline["paused_s"][:4] == [0.5, 0.5, 0.1, 0.1]
    long = build_report(timeline=build_timeline(64.0, [1] * 120), begins_after_s=6400.0)
    _, whole = merge(tmp_path, PartEnd(1, long), PartEnd(2, first))
    assert whole.timeline is not None
    assert len(whole.timeline["sent"]) <= 121
    assert sum(whole.timeline["sent"]) == 124
