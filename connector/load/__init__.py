"""Brings valid rows into the service: each created at most once, and each one's end told (architecture 4)."""

from connector.load.candidates import Omission, Planned, Row
from connector.load.conduct import PLANNING, SENDING, Conduct
from connector.load.drift import Change
from connector.load.limits import Limits, is_excess
from connector.load.loader import Loader
from connector.load.policy import LoadPolicy
from connector.load.tally import Problem, Tally

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
