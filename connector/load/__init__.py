"""Brings valid rows into the service: each created at most once, and each one's end told (architecture 4)."""

from connector.load.base_load import Loader
from connector.load.finishing import PLANNING, SENDING, Conduct
from connector.load.session import Limits, LoadPolicy, is_excess
from connector.load.tally import Change, Problem, Tally
from connector.rows import Omission, Planned, Row

__all__ = [
    "PLANNING",
    "SENDING",
    "Change",
    "Conduct",
    "Limits",
    "LoadPolicy",
    "Loader",
    "Omission",
    "Planned",
    "Problem",
    "Row",
    "Tally",
    "is_excess",
]
