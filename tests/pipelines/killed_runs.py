"""Runs a command in a fork that kills itself at a point: before or after a transaction of the ledger or a writing of
receipts, or before a statement or a change of the disk while receipts are written."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from connector.ledger.store import Store
from connector.runs import receipts
from connector.warehouse.receipts import write_receipts as write_to_destination
from tests.export.kill_points import call_at_disk_changes, call_at_statements
from tests.pipelines.forked import CONTEXT


def run_killed(arguments: Sequence[str], environ: Mapping[str, str], folder: Path, point: int) -> bool:
    """Run a command that kills itself at the point with this index (from 0). Return whether the command reached the
    point."""
    process = CONTEXT.Process(target=_run, args=(list(arguments), dict(environ), folder, point))
    process.start()
    process.join()
    return process.exitcode == -signal.SIGKILL


def _run(arguments: list[str], environ: dict[str, str], folder: Path, point: int) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    remaining_points = iter(range(point, -1, -1))

    def pass_point() -> None:
        if next(remaining_points, None) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    original_transaction, original_write, is_writing = Store.transaction, write_to_destination, Event()

    @contextmanager
    def transact(store: Store) -> Iterator[Any]:
        pass_point()
        with original_transaction(store) as connection:
            yield connection
        pass_point()

    def write_receipts(*values: Any) -> None:
        pass_point()
        is_writing.set()
        original_write(*values)
        is_writing.clear()
        pass_point()

    def pass_point_of_writing() -> None:
        if is_writing.is_set():
            pass_point()

    call_at_statements(pass_point_of_writing)
    call_at_disk_changes(pass_point_of_writing)

    replacements: dict[tuple[Any, str], Callable[..., Any]] = {
        (Store, "transaction"): transact,
        (receipts, "write_receipts"): write_receipts,
    }
    for (owner, name), function in replacements.items():
        setattr(owner, name, function)
    sys.argv = ["connector", *arguments]
    from pipelines.cli import main

    main()
