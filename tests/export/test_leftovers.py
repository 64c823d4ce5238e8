"""A killed export leaves at most a hidden partial, and the next one to the same target removes that, and no other."""

import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from connector.errors import LockedError
from connector.export import Format, parse_destination
from connector.export.exporter import open_writer
from connector.export.writers.leftovers import make_room, remove_leftovers
from tests.export.people import MIXED, run_of
from tests.export.readers import place_in, read_back

ROOT = Path(__file__).parents[2]
FILES = (Format.PARQUET, Format.CSV, Format.JSON_LINES)

KILLED_IN_A_FILE = """
import os, signal, sys
from connector.export import parse_destination
from connector.export.exporter import open_writer
from tests.export.people import MIXED
writer = open_writer(parse_destination(sys.argv[1]))
writer.start()
writer.add(MIXED)
os.kill(os.getpid(), signal.SIGKILL)
"""

KILLED_IN_A_ROOM = """
import os, signal, sys
from pathlib import Path
from connector.export.writers.leftovers import make_room
with make_room(Path(sys.argv[1])) as room:
    (room / "w.db").write_bytes(b"half")
    (room / "w.db-journal").write_bytes(b"half")
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


@pytest.mark.parametrize("is_there", [False, True])
def test_the_next_export_removes_what_a_killed_one_left_of_a_new_database(tmp_path: Path, is_there: bool) -> None:
    target = f"sqlite:///{tmp_path}/w.db"
    if is_there:  # made by a third export in the meantime
        export(target)
    kill_in_the_middle(KILLED_IN_A_ROOM, str(tmp_path / "w.db"))
    assert len(names_in(tmp_path)) == 1 + is_there

    export(target)

    assert names_in(tmp_path) == ["w.db"]


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


def test_a_room_that_is_in_use_is_kept(tmp_path: Path) -> None:
    with make_room(tmp_path / "w.db") as room:
        remove_leftovers(tmp_path / "w.db")
        assert room.is_dir()
    assert names_in(tmp_path) == []


def test_only_partials_of_the_same_target_are_removed(tmp_path: Path) -> None:
    target = tmp_path / "a.csv"
    others = [".b.csv.abcdefgh.partial", ".a.csv.b.csv.abcdefgh.partial", "a.csv.abcdefgh.partial", ".a.csv.partial"]
    others += [".a.csv.mine.partial", ".a.csv.abcdefgh.partial.bak", ".axcsv.abcdefgh.partial"]
    for name in [*others, ".a.csv.abcdefgh.partial"]:
        (tmp_path / name).touch()

    remove_leftovers(target)

    assert names_in(tmp_path) == sorted(others)


def test_a_link_that_is_named_like_a_partial_stays_and_so_does_what_it_leads_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    links = [tmp_path / ".a.csv.abcdefgh.partial", tmp_path / ".a.csv.bcdefghi.partial"]
    links[0].symlink_to(precious)
    links[1].symlink_to(precious / "file")

    remove_leftovers(tmp_path / "a.csv")

    assert [link.is_symlink() for link in links] == [True, True]
    assert names_in(precious) == ["file"]


def test_a_directory_that_is_gone_has_no_leftovers(tmp_path: Path) -> None:
    remove_leftovers(tmp_path / "nowhere" / "a.csv")


def test_exports_that_begin_at_the_same_time_do_not_take_each_other_for_dead(tmp_path: Path) -> None:
    """Many processes write one target all the time: each time one of them does, whole, or another was at it."""
    script = (
        "import sys; from pathlib import Path\n"
        "from connector.atomic_file import write_whole\n"
        "from connector.errors import LockedError\n"
        "target, whole = Path(sys.argv[1]), sys.argv[2].encode() * 9999\n"
        "for _ in range(500):\n"
        "    try:\n"
        "        write_whole(target, whole)\n"
        "    except LockedError:\n"
        "        pass\n"
        "    found = target.read_bytes()\n"
        "    assert found == found[:1] * 9999, len(found)\n"
    )
    target = tmp_path / "a.csv"
    target.write_bytes(b"x" * 9999)
    children = [subprocess.Popen([sys.executable, "-c", script, target, each], cwd=ROOT) for each in "abc"]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert names_in(tmp_path) == ["a.csv"]
