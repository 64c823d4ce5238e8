"""The load of a source: read, map, check, plan, load, settle, and the report."""
