"""Delivers the receipts of a run, and those that earlier runs of its job could not deliver.

The receipts of a run are at the destination once: they take the place of those that the destination has of the run, and
only then does the run leave the outbox in the ledger. A run that is killed in between is delivered again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from connector.errors import ConnectorError
from connector.ledger.commits import Commits
from connector.ledger.entries import Ledger
from connector.ledger.receipts import (
    FIRST_PLACE,
    PendingRun,
    Receipt,
    ReceiptPlace,
    delete_pending,
    find_pending_runs,
    read_receipts,
)
from connector.warehouse.database import open_stage
from connector.warehouse.destination import Destination
from connector.warehouse.receipts import ROW_SCHEMA, write_receipts

_READ_AT_ONCE = 5_000


@dataclass(slots=True)
class ReceiptsDelivery:
    """What became of the receipts: their number at the destination, and the reason for which others wait ("": none)."""

    destination: str
    written: int = 0
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the report's `receipts`."""
        return {"to": self.destination, "rows": self.written}

    def describe(self) -> str:
        """Return the message about receipts that wait."""
        return f"Receipts could not be written: {self.failure.rstrip('.')}. The next run of the job writes them."


async def deliver_receipts(
    commits: Commits, destination: Destination, account: str, job: str, run_key: int, now: Callable[[], datetime]
) -> ReceiptsDelivery:
    """Write the receipts of the run, and of earlier runs of the job with receipts in the outbox. Raises LedgerError."""
    delivery = ReceiptsDelivery(str(destination))
    runs = await commits.ask(lambda ledger: find_pending_runs(ledger, account, job, run_key))
    for run in runs:
        try:
            delivery.written += await _deliver(commits, destination, job, run, now())
        except ConnectorError as error:
            delivery.failure = str(error)
            break
    return delivery


async def _deliver(commits: Commits, destination: Destination, job: str, run: PendingRun, at: datetime) -> int:
    """Write the receipts of one run, and take the run out of the outbox. Return the number of receipts."""
    number, place = 0, FIRST_PLACE
    stage = open_stage(ROW_SCHEMA)
    try:
        while (part := await commits.ask(partial(_read_part, run.run_key, place)))[1] is not None:
            receipts, place = part[0], part[1] or place
            stage.add(_build_table(receipts))
            number += len(receipts)
        if number:
            await asyncio.to_thread(write_receipts, destination, run.run_id, job, at, stage.close_rows())
    finally:
        stage.discard()
    await commits.ask(lambda ledger: delete_pending(ledger.connection, run.run_key))
    return number


def _read_part(run_key: int, place: ReceiptPlace, ledger: Ledger) -> tuple[list[Receipt], ReceiptPlace | None]:
    return read_receipts(ledger.connection, run_key, place, _READ_AT_ONCE)


def _build_table(receipts: list[Receipt]) -> pa.Table:
    columns = [pa.array([getattr(receipt, field.name) for receipt in receipts], field.type) for field in ROW_SCHEMA]
    return pa.table(columns, schema=ROW_SCHEMA)
