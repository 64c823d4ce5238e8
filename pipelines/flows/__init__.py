"""The flows of the commands. A flow reads the plan of a command, does the work, and returns the report."""
