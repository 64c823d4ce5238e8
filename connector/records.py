"""Loads records of another tool, such as Singer or dlt, by the mapping of a job."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from connector.library.facade import Connector

if TYPE_CHECKING:
    from os import PathLike

    from connector.runs.report import Report


def load_records(records: Iterable[Mapping[str, Any]], job: str | PathLike[str], records_name: str) -> Report:
    """Create the subscribers of these records in one run, and return the report of the run. `records_name` is the name
    of the records in messages.

    If the status of the report is ok or partial, each record has an outcome. Raises ConnectorError if the run ended
    early. Then the caller must send the records again. Nobody is created twice.
    """
    with tempfile.TemporaryDirectory(prefix="connector-records-") as folder:
        file_name = re.sub(r"[^\w.-]", "_", records_name)  # a name from another tool may contain a slash
        path = Path(folder) / f"{file_name}.jsonl"
        with path.open("wb") as file:
            file.writelines(orjson.dumps(record, default=str) + b"\n" for record in records)
        report = Connector().import_file(path, job=job)
    report.raise_for_status()
    return report
