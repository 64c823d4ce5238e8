"""Source, ledger and service side by side: what is compared, and where what differs is told."""
