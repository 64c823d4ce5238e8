"""What is to be done with valid rows: identities, fingerprints, duplicates. Values in, values out."""

from connector.plan.digests import compute_fingerprints, compute_identities, digest_identity
from connector.plan.seen import SeenIdentities

__all__ = ["SeenIdentities", "compute_fingerprints", "compute_identities", "digest_identity"]
