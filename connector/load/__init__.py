"""Creates valid rows in the service, each at most once, and reports the outcome of each row (architecture 4)."""
