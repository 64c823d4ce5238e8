"""The load of a source: read, map, validate, plan and load the rows, settle unknown creates, and report."""
