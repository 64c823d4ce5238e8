"""Commands work, or refuse to start, in a process that may open only a few files and connections (`ulimit -n`)."""

import subprocess
import sys
from pathlib import Path

from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, Connector, run_process
from tests.pipelines.emails.test_mail_command import write_job as write_mail_job

LIMITED_PROGRAM = (
    "import os, resource, sys; limits = tuple(map(int, sys.argv[1:3])); "
    "resource.setrlimit(resource.RLIMIT_NOFILE, limits); "
    "os.execv(sys.executable, [sys.executable, '-m', 'pipelines', *sys.argv[3:]])"
)


def run_with_descriptor_limit(
    connector: Connector, soft_limit: int, hard_limit: int, *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIMITED_PROGRAM, str(soft_limit), str(hard_limit), *map(str, arguments)]
    return run_process(command, cwd=connector.folder, env=connector.build_environ())


def test_a_load_raises_the_soft_limit_and_creates_every_row(connector: Connector) -> None:
    people_path = connector.write_addresses(200)
    connector.sandbox.switch(latency_ms=100)
    result = run_with_descriptor_limit(connector, 38, 64, "import", people_path, *NEWS_IMPORT_OPTIONS)
    assert (result.returncode, "fault of the program" in result.stderr) == (0, False), result.stderr
    assert sorted(connector.count_creates_by_email().values()) == [1] * 200


def test_a_campaign_with_few_file_descriptors_sends_each_email(connector: Connector, tmp_path: Path) -> None:
    assert connector.import_file(connector.write_addresses(120)).exit_code == 0
    mail = {"to": "email", "subject": "Hi", "html": {"content": "Hello"}}
    write_mail_job(tmp_path, mail, load={"max_rate": 2000, "max_concurrency": 500})
    connector.sandbox.switch(latency_ms=100)
    result = run_with_descriptor_limit(connector, 64, 64, "mail", "mail.yaml")
    assert (result.returncode, len(connector.sandbox.outbox())) == (0, 120), result.stderr


def test_a_run_with_too_few_file_descriptors_is_refused_with_one_message(connector: Connector) -> None:
    result = run_with_descriptor_limit(connector, 38, 38, "import", connector.write_addresses(3), *NEWS_IMPORT_OPTIONS)
    assert (result.returncode, "ulimit -n" in result.stderr) == (2, True)
    assert connector.sandbox.stats()["requests"] == {}
