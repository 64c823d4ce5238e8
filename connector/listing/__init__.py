"""Reads the service's list: its pages, the trials of its filters, the proof that it is complete, and look-ups."""
