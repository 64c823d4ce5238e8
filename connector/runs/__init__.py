"""Runs: the steps that all runs have, the report of a run, the log of runs, and the files of rows that a run writes."""
