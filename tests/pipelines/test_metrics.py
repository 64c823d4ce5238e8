"""`--metrics`: the last run of each job for Prometheus, in a file that holds nothing else."""

import re
import stat
from pathlib import Path

from tests.pipelines.conftest import Connector, write_csv
from tests.pipelines.planned import write_job

SAMPLE = re.compile(r'(connector_last_run_[a-z_]+)\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)+)\} ([0-9.e+]+)')


def read_metrics(path: Path) -> dict[str, float]:
    """The samples by name and labels; each line is one, or the help or type of those that follow."""
    lines = path.read_text().splitlines()
    samples = [SAMPLE.fullmatch(line) for line in lines if not line.startswith("#")]
    described = {line.split()[2] for line in lines if line.startswith("# TYPE ") and line.endswith(" gauge")}
    found = [each for each in samples if each is not None]
    assert len(found) == len(samples)
    assert {each[1] for each in found} == described == {line.split()[2] for line in lines if line.startswith("# HELP")}
    return {f"{each[1].removeprefix('connector_last_run_')} {each[2]}": float(each[3]) for each in found}


def test_the_metrics_of_a_run_are_its_report(connector: Connector, tmp_path: Path) -> None:
    path, metrics = write_csv(tmp_path / 'pe"ople.csv', "email", "ann@x.org", "no address"), tmp_path / "c.prom"
    report = connector.import_file(path, "--metrics", str(metrics)).report
    samples = read_metrics(metrics)
    of = 'command="import",job="pe\\"ople"'
    assert samples[f'rows {of},outcome="created"'] == samples[f'rows {of},outcome="invalid"'] == 1
    assert samples[f"rows_read {of}"] == 2
    assert samples[f'status {of},status="partial"'] == 1
    assert samples[f'status {of},status="ok"'] == 0
    assert samples[f'requests {of},operation="create",result="sent"'] == report["requests"]["create"]["sent"]
    assert samples[f"end_timestamp_seconds {of}"] >= samples[f"start_timestamp_seconds {of}"] > 1.7e9
    assert stat.S_IMODE(metrics.stat().st_mode) == 0o644
    assert "x.org" not in metrics.read_text()

    before = metrics.read_bytes()
    connector.import_file(path, "--metrics", str(metrics), "--dry-run")
    assert metrics.read_bytes() == before
    connector.run("export", "out.csv", "--metrics", metrics)
    assert read_metrics(metrics)['rows command="export",job="out.csv",outcome="written"'] == 1


def test_the_runs_of_one_command_share_a_file(connector: Connector, tmp_path: Path) -> None:
    write_csv(tmp_path / "people.csv", "email,name", "ann@x.org,Ann")
    first = write_job(tmp_path)
    (tmp_path / "other.yaml").write_text(first.read_text().replace("job: news", "job: other"))
    assert connector.run("sync", first, "other.yaml", "--metrics", "c.prom").code == 0
    samples = read_metrics(tmp_path / "c.prom")
    assert [samples[f'status command="sync",job="{job}",status="ok"'] for job in ("news", "other")] == [1, 1]
