"""Simulations of a job: loader, ledger and service run in one process on virtual time, with injected faults.

A scenario is the input: the behaviour of the service, the people, and several runs of one job. Each run has its own
process, which may be killed at any step, while the service and the ledger continue to exist. A seed selects a random
scenario. After the last run, claims compare the truth log of the service, the ledger and the reports of the runs.
"""
