"""Delivers the receipts of a run, and receipts that earlier runs of its job could not deliver.

The destination has the receipts of a run only once. A delivery replaces all receipts of the run at the destination, and
then deletes the run from the outbox in the ledger. If the process is killed between these steps, the next run delivers
the receipts again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pyarrow as pa

from connector.errors import ConnectorError
from connector.ledger.commits import LedgerQueue
from connector.ledger.receipts import (
    FIRST_POSITION,
    PendingRun,
    Receipt,
    ReceiptPosition,
    delete_pending_receipts,
    find_pending_runs,
    read_receipts,
)
from connector.warehouse.database import StagingFile
from connector.warehouse.destination import Destination
from connector.warehouse.receipts import RECEIPT_ROW_SCHEMA, write_receipts

_PAGE_SIZE = 5_000  # receipts that are read from the ledger together


@dataclass(slots=True)
class ReceiptsDelivery:
    """The result of a delivery: the number of written receipts, and the reason why other receipts were not written ("":
    all receipts were written)."""

    written_count: int = 0
    failure: str = ""


async def deliver_receipts(
    ledger_queue: LedgerQueue,
    destination: Destination,
    account: str,
    job: str,
    run_key: int,
    now: Callable[[], datetime],
) -> ReceiptsDelivery:
    """Write the receipts of the run, and the receipts of earlier runs of the job that are still in the outbox. Raises
    LedgerError."""
    delivery = ReceiptsDelivery()
    pending_runs = await ledger_queue.execute(lambda ledger: find_pending_runs(ledger, account, job, run_key))
    for pending_run in pending_runs:
        try:
            delivery.written_count += await _deliver_run(ledger_queue, destination, job, pending_run, now())
        except ConnectorError as error:
            delivery.failure = str(error)
            break
    return delivery


async def _deliver_run(
    ledger_queue: LedgerQueue, destination: Destination, job: str, pending_run: PendingRun, delivered_at: datetime
) -> int:
    """Write the receipts of one run, and delete them from the outbox. Return the number of receipts."""
    receipt_count = 0
    staging_file = StagingFile(RECEIPT_ROW_SCHEMA)
    try:
        position: ReceiptPosition | None = FIRST_POSITION
        while position is not None:
            receipts, position = await ledger_queue.execute(
                partial(read_receipts, run_key=pending_run.run_key, after_position=position, max_count=_PAGE_SIZE)
            )
            if receipts:
                staging_file.add(_build_table(receipts))
                receipt_count += len(receipts)
        if receipt_count:
            await asyncio.to_thread(
                write_receipts, destination, pending_run.run_id, job, delivered_at, staging_file.finish_staging()
            )
    finally:
        staging_file.discard()
    await ledger_queue.execute(lambda ledger: delete_pending_receipts(ledger.connection, pending_run.run_key))
    return receipt_count


def _build_table(receipts: list[Receipt]) -> pa.Table:
    columns = [
        pa.array([getattr(receipt, field.name) for receipt in receipts], field.type) for field in RECEIPT_ROW_SCHEMA
    ]
    return pa.table(columns, schema=RECEIPT_ROW_SCHEMA)
