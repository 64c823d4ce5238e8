"""A killed export leaves at most a hidden partial, and the next one to the same target removes that, and no other."""

import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from connector.errors import LockedError
from connector.warehouse import Format, open_writer, parse_destination
from tests.export.people import MIXED, run_of
from tests.export.readers import place_in, read_back

ROOT = Path(__file__).parents[2]
FILES = (Format.PARQUET, Format.CSV, Format.JSON_LINES)

KILLED_IN_A_FILE = """
import os, signal, sys
from connector.warehouse import parse_destination
from connector.warehouse import open_writer
from tests.export.people import MIXED
writer = open_writer(parse_destination(sys.argv[1]))
writer.start()
writer.add(MIXED)
os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_in_the_middle(script: str, target: str) -> None:
    ended = subprocess.run([sys.executable, "-c", script, target], cwd=ROOT, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def export(target: str) -> None:
    writer = open_writer(parse_destination(target))
    writer.start()
    writer.add(MIXED)
    writer.publish(run_of(MIXED.num_rows, at=datetime.now(UTC)))
    writer.discard()


@pytest.mark.parametrize("form", FILES)
def test_the_next_export_removes_what_a_killed_one_left_of_a_file(tmp_path: Path, form: Format) -> None:
    target = place_in(tmp_path, form)
    kill_in_the_middle(KILLED_IN_A_FILE, target)
    assert len(names_in(tmp_path)) == 1, "the kill came too late to leave anything"

    export(target)

    destination = parse_destination(target)
    assert names_in(tmp_path) == [destination.path.name]
    assert read_back(destination).equals(MIXED)


@pytest.mark.parametrize("form", FILES)
def test_a_second_export_is_refused_while_one_still_runs(tmp_path: Path, form: Format) -> None:
    target = place_in(tmp_path, form)
    slow = open_writer(parse_destination(target))
    slow.start()
    slow.add(MIXED)
    with pytest.raises(LockedError, match="another run is writing"):
        export(target)
    slow.add(MIXED)
    slow.publish(run_of(0))
    slow.discard()
    assert read_back(parse_destination(target)).num_rows == 2 * MIXED.num_rows

    export(target)
    assert len(names_in(tmp_path)) == 1
