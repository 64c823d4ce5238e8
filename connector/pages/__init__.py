"""Which page of the list to ask for next, and what the answers prove together; pure, fed with ids only."""

from connector.pages.certificate import Certificate, Order, Reason, Verdict
from connector.pages.id_set import IdArray, Mask
from connector.pages.matching import Match, ReadValues, build_match
from connector.pages.reading import Page, Reading

__all__ = [
    "Certificate",
    "IdArray",
    "Mask",
    "Match",
    "Order",
    "Page",
    "ReadValues",
    "Reading",
    "Reason",
    "Verdict",
    "build_match",
]
