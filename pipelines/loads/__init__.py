"""The flows that bring rows in: import, sync, plan, validate and retry."""
