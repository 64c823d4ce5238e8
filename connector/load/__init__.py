"""Brings valid rows into the service: creates each at most once, and reports each one's outcome (architecture 4)."""
