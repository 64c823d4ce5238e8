"""Files that appear only when they are complete, and replace only files that they may replace."""

import os
import stat
from pathlib import Path

import pytest

from connector.atomic_file import (
    GROUP_READABLE,
    PartialFile,
    TargetKind,
    create_private_file,
    read_target_kind,
    replace_content,
)
from connector.errors import ConfigurationError, LockedError, RunAborted


def test_a_file_appears_when_it_is_published_and_leaves_no_partial_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with PartialFile(target) as partial_file:
        partial_file.file.write(b"new")
        assert target.read_bytes() == b"old"
        partial_file.publish()
    assert (target.read_bytes(), list(tmp_path.iterdir())) == (b"new", [target])
    with PartialFile(target) as partial_file:
        partial_file.file.write(b"given up")
    assert (target.read_bytes(), list(tmp_path.iterdir())) == (b"new", [target])


@pytest.mark.parametrize(("mode", "expected_mode"), [(None, 0o600), (GROUP_READABLE, 0o640)])
def test_only_the_owner_or_the_group_can_read_a_file_with_any_umask(
    tmp_path: Path, mode: int | None, expected_mode: int
) -> None:
    target = tmp_path / "a"
    umask_before = os.umask(0o077 if mode else 0)
    try:
        replace_content(target, b"x", **({} if mode is None else {"mode": mode}))
    finally:
        os.umask(umask_before)
    assert stat.S_IMODE(target.stat().st_mode) == expected_mode


def test_a_second_writer_is_refused_and_the_file_of_a_killed_writer_is_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "a"
    (tmp_path / ".a.partial").write_bytes(b"the longer file of a killed writer")
    with PartialFile(target) as first_writer:
        first_writer.file.write(b"first")
        with pytest.raises(LockedError, match=f"another run is writing {target}"):
            PartialFile(target)
        first_writer.publish()
    assert (target.read_bytes(), list(tmp_path.iterdir())) == (b"first", [target])


def test_a_new_file_does_not_replace_a_file_that_another_program_has_created(tmp_path: Path) -> None:
    target = tmp_path / "a"
    with PartialFile(target) as partial_file:
        target.write_bytes(b"other program")
        with pytest.raises(RunAborted, match="Another program has created"):
            partial_file.publish(must_be_new=True)
    assert (target.read_bytes(), list(tmp_path.iterdir())) == (b"other program", [target])
    target.unlink()
    with PartialFile(target) as partial_file:
        partial_file.publish(must_be_new=True)
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_with_the_name_of_the_partial_file_is_not_followed(tmp_path: Path) -> None:
    linked_file = tmp_path / "linked"
    linked_file.write_bytes(b"kept")
    (tmp_path / ".a.partial").symlink_to(linked_file)
    with pytest.raises(ConfigurationError, match="Cannot write in"):
        PartialFile(tmp_path / "a")
    assert linked_file.read_bytes() == b"kept"


def test_the_kind_of_a_file_is_read_without_opening_the_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    kind_by_name = {
        name: read_target_kind(tmp_path / name) for name in ("no", "empty", "dangling", "file", "link", "pipe")
    }
    assert kind_by_name == {
        **dict.fromkeys(("no", "empty", "dangling"), TargetKind.MISSING_OR_EMPTY),
        **dict.fromkeys(("file", "link"), TargetKind.FILE),
        "pipe": TargetKind.PIPE,
    }
    assert read_target_kind(Path(os.devnull)) is TargetKind.DEVICE
    assert read_target_kind(tmp_path) is TargetKind.FOLDER


def test_a_private_file_does_not_replace_an_existing_file(tmp_path: Path) -> None:
    with create_private_file(tmp_path / "a") as file:
        file.write(b"mine")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        create_private_file(tmp_path / "a")
