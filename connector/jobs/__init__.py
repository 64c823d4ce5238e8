"""Job files: read, checked and turned into what the library works with."""
