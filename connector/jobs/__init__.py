"""Job files: models that check them, and functions that build the library's objects from them."""
