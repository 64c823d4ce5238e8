"""Tests of the public functions of `connector` and `pipelines`."""
