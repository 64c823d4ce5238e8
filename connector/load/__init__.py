"""Brings valid rows into the service: each created at most once, and each one's end told (design, section 4)."""

from connector.load.candidates import Planned, Row
from connector.load.loader import Loader
from connector.load.policy import LoadPolicy
from connector.load.tally import Problem, Tally

__all__ = ["LoadPolicy", "Loader", "Planned", "Problem", "Row", "Tally"]
