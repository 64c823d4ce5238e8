"""One command of the command line in each module."""
