"""Reports: as values, as text for a terminal, as a page, and the files of a run for its users."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
