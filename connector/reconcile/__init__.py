"""What the service lists, kept so that a source can be laid beside it: columns in memory, values in a file."""

from connector.reconcile.listed import ListedPeople

__all__ = ["ListedPeople"]
