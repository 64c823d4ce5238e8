"""Which page of the list to ask for next, and what the answers prove together; pure, fed with ids only."""

from connector.pages.certificate import (
    PROOFS,
    Certificate,
    Counts,
    CutOff,
    Finding,
    Order,
    Reason,
    Says,
    TotalCount,
    Verdict,
    decide_counts,
    decide_cut_off,
    decide_totals,
    may_be_cut_off,
)
from connector.pages.id_set import NO_IDS, IdArray, Mask
from connector.pages.matching import Match, ReadValues, build_match
from connector.pages.page import Measures, Page
from connector.pages.partitions import DIMENSIONS
from connector.pages.reading import Reading

__all__ = [
    "DIMENSIONS",
    "NO_IDS",
    "PROOFS",
    "Certificate",
    "Counts",
    "CutOff",
    "Finding",
    "IdArray",
    "Mask",
    "Match",
    "Measures",
    "Order",
    "Page",
    "ReadValues",
    "Reading",
    "Reason",
    "Says",
    "TotalCount",
    "Verdict",
    "build_match",
    "decide_counts",
    "decide_cut_off",
    "decide_totals",
    "may_be_cut_off",
]
