"""From what a person says of an email to a message that the service can take, and to sending it at most once."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
