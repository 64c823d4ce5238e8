"""Rows whose end is told once a run can show nobody any more."""

from dataclasses import dataclass

from connector.load.drift import Told
from connector.load.tally import Problem

ROWS_KEPT = 10_000  # about 10 MB; what goes beyond is told at once


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A row that ends as `problem` says, unless a later look shows its identity; `is_of_this_run`: sent by this run,
    and known absent before."""

    problem: Problem
    told: Told
    is_of_this_run: bool
