"""`connector status` shows the last runs, during a run and after a kill; `prune` deletes old files."""

import errno
import fcntl
import json
import os
import re
import stat
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from connector.clock import system_clock
from connector.ledger.opening import open_ledger
from connector.runs.report import record_report, start_report
from connector.runs.run_log import list_runs, record_run
from connector.states import State
from tests.ledger.transitions import add_base, begin_run, bring_to_state
from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, Connector, run_process

RUN_ID = "20261123T080000-0a1b2c"
RUNNING_RUN = {"run_id": RUN_ID, "job": "people", "command": "import", "started_at": "2026-11-23T08:00:00+00:00"}


def write_run_file(state_dir: Path, run_id: str = RUN_ID, **values: object) -> Path:
    """Write the file of a run. Without `values`, the file is the file of a killed run."""
    path = state_dir / "runs" / f"{run_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**RUNNING_RUN, "run_id": run_id, "status": "running", **values}))
    return path


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_status_shows_a_killed_import_with_its_open_entries_and_the_next_command(connector: Connector) -> None:
    assert connector.run("status").stdout.startswith(f"no run is recorded in {connector.folder}")
    assert connector.run("status", "--job", "crm").stdout.startswith(
        f"no run of the job crm is recorded in {connector.folder}"
    )
    connector.sandbox.switch(hang_after=1)  # one create takes effect and is not answered
    path = connector.write_addresses(20)
    with connector.start("import", path, "--base-name", "News", "--max-concurrency", "1") as process:
        connector.wait_for_subscribers(1)
        report_during_run = connector.run_json("status").report
        (entry_during_run,) = connector.run_json("explain", "person0@example.com").report["entries"]
        process.kill()
        process.communicate()
    connector.sandbox.switch(hang_after=0)
    assert [run["status"] for run in report_during_run["runs"]] == ["running"]
    assert "Wait until run" in report_during_run["next"][0]
    files_before = read_files(connector.folder / "state")
    (entry_after_kill,) = connector.run_json("explain", "person0@example.com").report["entries"]
    for entry, run_status in ((entry_during_run, "running"), (entry_after_kill, "killed")):
        assert (entry["state"], entry["evidence"], entry["run"]["status"]) == ("sending", None, run_status)
    assert entry_during_run["next_step"].startswith("Wait until the active run")
    assert entry_after_kill["next_step"].endswith("connector retry")
    report = connector.run_json("status").report
    (killed_run,) = report["runs"]
    assert (killed_run["status"], killed_run["command"], killed_run["job"]) == ("killed", "import", "people")
    open_entries = [(open_entry["state"], open_entry["run_id"]) for open_entry in report["open_entries"]]
    assert open_entries == [("sending", killed_run["run_id"])]
    assert any(step.endswith("connector retry") for step in report["next"])
    assert any(killed_run["run_id"] in step and "was killed" in step for step in report["next"])
    assert read_files(connector.folder / "state")["ledger.db"] == files_before["ledger.db"]
    assert connector.run_json("retry", "--quiet-period", "200ms").exit_code == 0
    report_after_retry = connector.run_json("status").report
    assert [run["command"] for run in report_after_retry["runs"]] == ["retry", "import"]
    assert report_after_retry["open_entries"] == []


def test_each_run_is_recorded_with_a_report_that_only_its_owner_can_read(connector: Connector) -> None:
    path = connector.write_people("email", "ann@x.org", "no address")
    import_report = connector.import_file(path).report
    export_report = connector.run_json("export", connector.folder / "out.csv").report
    connector.run_json("plan", path, "--base-name", "News", "--active")
    runs = connector.run_json("status").report["runs"]
    for run, report, exit_code in zip(runs, (export_report, import_report), (0, 1), strict=True):
        assert run == {**report, "exit_code": exit_code}
    output = connector.run("status", import_report["run_id"]).stdout
    assert re.search(r"read +│ +2 ", output)
    assert import_report["rejects_file"] in output
    assert connector.run_json("status", "--last", "1").report["runs"] == runs[:1]
    assert connector.run_json("status", "--job", "people").report["runs"] == runs[1:]
    (run_file,) = (connector.folder / "state" / "runs").glob(f"{import_report['run_id']}*")
    assert stat.S_IMODE(run_file.stat().st_mode) == 0o600
    assert connector.run_json("status", "none-such").is_refused


def test_status_shows_the_open_entries_of_a_ledger_with_entries_of_all_states(connector: Connector) -> None:
    with open_ledger(connector.ledger.url) as ledger:
        begin_run(ledger)
        for state in set(State) - {State.NONE}:
            bring_to_state(ledger, add_base(ledger, base_id=int(state)), state)
    result = connector.run_json("status")
    assert result.exit_code == 0, result.stderr
    assert {entry["state"] for entry in result.report["open_entries"]} == {"sending", "unknown", "held", "rejected"}


def test_status_of_a_job_has_only_the_open_entries_of_this_job(connector: Connector) -> None:
    people_path, other_path = (connector.write_people("email", "ann@x.org"), connector.folder / "others.csv")
    connector.write_csv(other_path, "email", "bob@x.org")
    connector.sandbox.switch(drop_before=1.0)
    for path in (people_path, other_path):
        assert connector.import_file(path, "--base-name", path.stem).rows == {"read": 1, "unknown": 1}
    for job in ("people", "others"):
        report = connector.run_json("status", "--job", job).report
        (open_entry,) = report["open_entries"]
        assert open_entry["run_id"] == report["runs"][0]["run_id"]
        assert report["next"][0].startswith("1 create is held for your decision"), report["next"]
    report = connector.run_json("status", "--job", "nobody", "--html", "none.html").report
    assert (report["open_entries"], report["next"]) == ([], [])
    assert "Open workNothing" in (connector.folder / "none.html").read_text().replace("</h2><p>", "")
    connector.run_json("retry", "--quiet-period", "200ms")
    # The entry still belongs to the job after `connector retry` without `--job`.
    assert len(connector.run_json("status", "--job", "people").report["open_entries"]) == 1


def test_old_files_are_deleted_by_prune_and_at_the_end_of_a_run(connector: Connector) -> None:
    path = connector.write_people("email", "ann@x.org", "no address")
    rejects_path = Path(connector.import_file(path).report["rejects_file"])
    run_path = connector.folder / "state" / "runs" / f"{rejects_path.stem}.json"
    assert connector.run_json("prune").report["deleted"] == []
    for file_path in (rejects_path, run_path):
        os.utime(file_path, times=(time.time() - 91 * 86_400,) * 2)
    assert connector.run_json("prune", "--older-than", "92d").report["deleted"] == []
    assert connector.run_json("prune").report["deleted"] == [str(rejects_path), str(run_path)]
    connector.write_job("retention: 1h")
    first_rejects_path = Path(connector.sync().report["rejects_file"])
    os.utime(first_rejects_path, times=(time.time() - 3_601,) * 2)
    connector.sync()
    assert not first_rejects_path.exists()
    assert (connector.folder / "state" / "ledger.db").exists()


def test_a_run_keeps_old_files_while_the_clock_is_far_ahead(connector: Connector) -> None:
    path = connector.write_people("email", "ann@x.org", "no address")
    rejects_paths = [Path(connector.import_file(path).report["rejects_file"]) for _ in range(2)]
    files = [*rejects_paths, *(connector.folder / "state" / "runs" / f"{path.stem}.json" for path in rejects_paths)]

    def set_age(days: float, *aged_files: Path) -> None:
        for file in aged_files:
            os.utime(file, times=(time.time() - days * 86_400,) * 2)

    set_age(100, *files)
    for _ in range(2):  # two runs while the clock is wrong
        result = connector.import_file(path)
        assert all(file.exists() for file in files)
        assert "the clock is 100 days ahead of the previous run" in result.stderr
    set_age(2, *(file for file in (connector.folder / "state" / "runs").iterdir() if file not in files))
    result = connector.import_file(path)
    assert [file.exists() for file in files] == [False] * 4
    assert "the clock" not in result.stderr


def test_only_files_of_runs_are_read_and_deleted(connector: Connector) -> None:
    runs_folder, rejects_folder = connector.folder / "state" / "runs", connector.folder / "state" / "rejects"
    write_run_file(connector.folder / "state")
    rejects_folder.mkdir()
    foreign_files = [runs_folder / "20261123.json", runs_folder / "notes.json", rejects_folder / "corrected.csv"]
    for path in foreign_files:
        path.write_text('{"run_id": "1", "status": "ok"}')
        os.utime(path, times=(1, 1))
    os.mkfifo(runs_folder / "9.json")
    (runs_folder / "20261123T080001-0a1b2c.json").write_text("[" * 100_000)
    (runs_folder / "20261123T080002-0a1b2c.json").write_text('{"run_id": "1", "status": "ok"}')
    assert [run["run_id"] for run in connector.run_json("status").report["runs"]] == [RUN_ID]
    assert connector.run_json("prune").report["deleted"] == []
    assert all(path.exists() for path in foreign_files)


def test_files_of_a_run_that_has_not_ended_are_kept_at_any_age(connector: Connector) -> None:
    state_folder = connector.folder / "state"
    with record_run(state_folder, RUNNING_RUN, lambda: {**RUNNING_RUN, "status": "ok"}, system_clock().now):
        (state_folder / "rejects").mkdir()
        run_files = [state_folder / "runs" / f"{RUN_ID}.json", state_folder / "rejects" / f"{RUN_ID}.csv"]
        run_files[1].write_text("email\n")
        for path in run_files:
            os.utime(path, times=(1, 1))
        assert connector.run_json("prune").report["deleted"] == []
    assert [path.exists() for path in run_files] == [True, False]


def test_a_run_is_not_reported_as_killed_if_it_ends_while_status_reads_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, original_flock = write_run_file(tmp_path), fcntl.flock

    def end_run_and_lock(file_descriptor: int, operation: int) -> None:
        path.unlink()
        write_run_file(tmp_path, status="ok")
        original_flock(file_descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", end_run_and_lock)
    assert [run["status"] for run in list_runs(tmp_path)] == ["ok"]


def test_a_run_is_not_listed_if_its_report_does_not_fit_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with record_run(tmp_path, RUNNING_RUN, lambda: {**RUNNING_RUN, "status": "ok"}, system_clock().now):
        monkeypatch.setattr(os, "fsync", fail)
    assert list(list_runs(tmp_path)) == []
    assert "No space left" in caplog.text


def test_two_runs_that_begin_at_the_same_moment_have_separate_records(tmp_path: Path) -> None:
    started_at, now = datetime(2026, 11, 23, 8, tzinfo=UTC), system_clock().now
    first_report, second_report = (start_report("import", "people", started_at) for _ in range(2))
    with record_report(first_report, tmp_path, 1e6, now), record_report(second_report, tmp_path, 1e6, now):
        assert {run["run_id"] for run in list_runs(tmp_path)} == {first_report.run_id, second_report.run_id}
    assert len(list(list_runs(tmp_path))) == 2


@pytest.mark.parametrize("jump_hours", [-2000, 2000])
def test_a_jump_of_the_clock_loses_no_row_and_creates_nobody_twice(connector: Connector, jump_hours: int) -> None:
    path = connector.write_addresses(20)
    connector.sandbox.switch(drop_after=0.3)  # some creates get no answer, so the run must look them up
    machine_clock, clock_read_numbers = system_clock(), count()

    def read_clock_with_jump() -> datetime:
        return machine_clock.now() + timedelta(hours=jump_hours if next(clock_read_numbers) > 2 else 0)

    result = connector.import_file(path, clock=replace(machine_clock, now=read_clock_with_jump))
    assert result.exit_code == 0, result.stderr
    report = result.report
    assert report["rows"]["read"] == 20
    assert report["started_at"] <= report["finished_at"]
    connector.sandbox.switch(drop_after=0)
    second_result = connector.import_file(path)  # the clock is right again
    second_result.expect(0, read=20, exists=20)
    assert set(connector.count_creates_by_email().values()) == {1}


@pytest.mark.parametrize(("arguments", "exit_code"), [(["-vv"], 0), (["--no"], 2)])
def test_the_exit_code_is_unchanged_if_stderr_cannot_be_written(
    connector: Connector, arguments: list[str], exit_code: int
) -> None:
    path = connector.write_people("email", "ann@x.org")
    command = [sys.executable, "-m", "pipelines", "import", str(path), "--base-name", "News", "--active", *arguments]
    with Path("/dev/full").open("w") as full_device:
        assert run_process(command, env=connector.build_environ(), stderr=full_device).returncode == exit_code


def test_an_import_succeeds_even_if_the_run_cannot_be_recorded(connector: Connector) -> None:
    (connector.folder / "state").mkdir(mode=0o700)
    (connector.folder / "state" / "runs").write_text("in the way")
    result = connector.run("import", connector.write_people("email", "ann@x.org"), *NEWS_IMPORT_OPTIONS)
    assert result.exit_code == 0
    assert "cannot be recorded" in result.stderr


def test_a_job_that_requires_a_ledger_sends_nothing_without_a_ledger(connector: Connector) -> None:
    connector.write_addresses(1)
    connector.write_job()
    connector.write_job("ledger: must_exist", file_name="strict.yaml")
    refused_result = connector.run("sync", "strict.yaml")
    assert (refused_result.exit_code, connector.sandbox.stats()["subscribers"]) == (2, 0)
    assert "there is no ledger at" in refused_result.stderr
    assert [connector.run("sync", name).exit_code for name in ("job.yaml", "strict.yaml")] == [0, 0]


# `--metrics`: the last run of each job for Prometheus, in a file that contains only metrics

SAMPLE_PATTERN = re.compile(r'(connector_last_run_[a-z_]+)\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)+)\} ([0-9.e+]+)')


def read_metrics(path: Path) -> dict[str, float]:
    """Return the samples by name and labels. Check that each line is a sample, a help text or a type."""
    lines = path.read_text().splitlines()
    samples = [SAMPLE_PATTERN.fullmatch(line) for line in lines if not line.startswith("#")]
    described_names = {line.split()[2] for line in lines if line.startswith("# TYPE ") and line.endswith(" gauge")}
    matches = [sample for sample in samples if sample is not None]
    assert len(matches) == len(samples)
    names_with_help = {line.split()[2] for line in lines if line.startswith("# HELP")}
    assert {match[1] for match in matches} == described_names == names_with_help
    return {f"{match[1].removeprefix('connector_last_run_')} {match[2]}": float(match[3]) for match in matches}


def test_the_metrics_of_a_run_equal_the_figures_of_its_report(connector: Connector) -> None:
    path = connector.write_csv('pe"ople.csv', "email", "ann@x.org", "no address")
    metrics_path = connector.folder / "c.prom"
    report = connector.import_file(path, "--metrics", str(metrics_path)).report
    samples = read_metrics(metrics_path)
    labels = 'command="import",job="pe\\"ople"'
    assert samples[f'rows {labels},outcome="created"'] == samples[f'rows {labels},outcome="invalid"'] == 1
    assert samples[f"rows_read {labels}"] == 2
    assert samples[f'status {labels},status="partial"'] == 1
    assert samples[f'status {labels},status="ok"'] == 0
    assert samples[f'requests {labels},operation="create",result="sent"'] == report["requests"]["create"]["sent"]
    assert samples[f"end_timestamp_seconds {labels}"] >= samples[f"start_timestamp_seconds {labels}"] > 1.7e9
    assert stat.S_IMODE(metrics_path.stat().st_mode) == 0o644
    assert "x.org" not in metrics_path.read_text()
    metrics_before = metrics_path.read_bytes()
    connector.import_file(path, "--metrics", str(metrics_path), "--dry-run")
    assert metrics_path.read_bytes() == metrics_before
    connector.run("export", "out.csv", "--metrics", metrics_path)
    assert read_metrics(metrics_path)['rows command="export",job="out.csv",outcome="written"'] == 1
