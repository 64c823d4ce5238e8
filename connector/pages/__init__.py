"""Which page of the list to ask for next, and what the answers prove together; pure, fed with ids only."""

from connector.pages.certificate import PROOFS, Certificate, Order, Reason, TotalCount, Verdict
from connector.pages.id_set import IdArray, Mask
from connector.pages.matching import Match, ReadValues, build_match
from connector.pages.page import Measures, Page
from connector.pages.partitions import DIMENSIONS
from connector.pages.reading import Reading

__all__ = [
    "DIMENSIONS",
    "PROOFS",
    "Certificate",
    "IdArray",
    "Mask",
    "Match",
    "Measures",
    "Order",
    "Page",
    "ReadValues",
    "Reading",
    "Reason",
    "TotalCount",
    "Verdict",
    "build_match",
]
