"""Runs a command in a fork, which kills itself at a kill point. Kill points are before and after each transaction of
the ledger, and before and after the run writes receipts. While the run writes receipts, each SQL statement and each
change of the disk is also a kill point."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from connector.ledger.store import Store
from connector.runs import receipts
from connector.warehouse.receipts import write_receipts as write_to_destination
from pipelines.cli import main
from tests.export.kill_points import call_at_disk_changes, call_at_statements
from tests.pipelines.forked import ForkedProcess


def run_until_kill_point(arguments: Sequence[str], environ: Mapping[str, str], folder: Path, kill_point: int) -> bool:
    """Run a command that kills itself at the kill point with the index `kill_point` (from 0). Return whether the
    command reached the kill point."""
    with ForkedProcess(arguments, environ, folder, program=partial(_run_until_killed, kill_point)) as process:
        process.communicate()
    return bool(process.returncode == -signal.SIGKILL)


def _run_until_killed(kill_point: int) -> None:
    remaining_kill_points = iter(range(kill_point, -1, -1))

    def reach_kill_point() -> None:
        if next(remaining_kill_points, None) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    original_transaction, original_write, is_writing_receipts = Store.transaction, write_to_destination, Event()

    @contextmanager
    def transact(store: Store) -> Iterator[Any]:
        reach_kill_point()
        with original_transaction(store) as connection:
            yield connection
        reach_kill_point()

    def write_receipts(*values: Any) -> None:
        reach_kill_point()
        is_writing_receipts.set()
        original_write(*values)
        is_writing_receipts.clear()
        reach_kill_point()

    def reach_kill_point_of_writing() -> None:
        if is_writing_receipts.is_set():
            reach_kill_point()

    call_at_statements(reach_kill_point_of_writing)
    call_at_disk_changes(reach_kill_point_of_writing)

    replacements: dict[tuple[Any, str], Callable[..., Any]] = {
        (Store, "transaction"): transact,
        (receipts, "write_receipts"): write_receipts,
    }
    for (patched_object, name), function in replacements.items():
        setattr(patched_object, name, function)
    main()
