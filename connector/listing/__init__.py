"""What is asked of the service's list beside its pages: whether filters work, and whether the list is cut off."""

from connector.listing.evidence import FindLacking, Suspect, gather_evidence

__all__ = ["FindLacking", "Suspect", "gather_evidence"]
