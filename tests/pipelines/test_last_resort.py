"""A fault of the program itself: never taken for a partial run, and never with a person's data in its words."""

import subprocess
import sys

from tests.pipelines.conftest import ROOT

BROKEN = """
import sys
import pipelines.cli
sys.argv = ["connector", "sync", "job.yaml"]
class Broken(pipelines.cli.Commands):
    def get_command(self, ctx, name):
        raise KeyError("ann@example.com")
pipelines.cli.cli.__class__ = Broken
pipelines.cli.main()
"""


def test_an_unforeseen_error_is_one_line_and_exit_code_3() -> None:
    ended = subprocess.run([sys.executable, "-c", BROKEN], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert "KeyError" in ended.stderr
    assert "ann@example.com" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
