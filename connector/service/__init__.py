"""The service over HTTP: its requests and answers as values, one client with its three operations, and what may be sent
again.

The face is lazy: what needs only the values (`ListQuery`, `encode_subscriber`) does not pay for aiohttp.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
