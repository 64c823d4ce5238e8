"""Loads records of another tool, such as Singer's or dlt's, by the mapping of a job."""

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


def load_records(records: Iterable[Mapping[str, Any]], job: str | PathLike[str], name: str) -> Report:
    """Create the subscribers of these records as one run, and return its report; `name` names the records in messages.

    Each record of a report with the status ok or partial has an outcome. Raises ConnectorError for a run that ended
    early; then the caller must send the records again, and nobody is created twice.
    """
    with tempfile.TemporaryDirectory(prefix="connector-records-") as folder:
        file_name = re.sub(r"[^\w.-]", "_", name)  # a name of another tool may hold a slash
        path = Path(folder) / f"{file_name}.jsonl"
        with path.open("wb") as file:
            file.writelines(orjson.dumps(record, default=str) + b"\n" for record in records)
        report = Connector().import_file(path, job=job)
    report.raise_for_status()
    return report
