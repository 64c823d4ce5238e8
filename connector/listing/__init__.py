"""Reads the service's list: pages, trials of filters, look-ups, and the proof that a reading is complete."""
