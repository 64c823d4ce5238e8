"""The service over HTTP: one client, its three operations, and what may be tried again."""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.api.client import Client, Counts, open_client
    from connector.api.retries import Retrier
    from connector.api.service import Service, parse_base_url
    from connector.api.token import Token

__all__ = ["Client", "Counts", "Retrier", "Service", "Token", "open_client", "parse_base_url"]

__getattr__ = open_face(
    __name__,
    {
        "client": ("Client", "Counts", "open_client"),
        "retries": ("Retrier",),
        "service": ("Service", "parse_base_url"),
        "token": ("Token",),
    },
)
