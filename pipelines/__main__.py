"""`python -m pipelines` is `connector`."""

from pipelines.cli import main

main()
