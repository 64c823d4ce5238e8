"""A run: its frame, its report, the log of runs, and the files of rows that it writes."""
