"""Job files: models that check job files, and functions that build the objects of the library from job files."""
