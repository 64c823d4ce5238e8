"""Reports: as values, for people at a terminal, as a page, and the files of a run that people read."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
