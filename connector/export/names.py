"""The names of the columns that every export has beside the fields."""

RUN_ID, EXPORTED_AT, INVALID = "_run_id", "_exported_at", "_invalid"

OF_RUN = (RUN_ID, EXPORTED_AT)
"""Those that have one value in all rows of an export."""
