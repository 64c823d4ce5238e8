"""The service over HTTP: one client, its three operations, and what may be tried again."""

from connector.api.client import Client, Counts, open_client
from connector.api.retries import Retrier
from connector.api.service import Service, parse_base_url
from connector.api.token import Token

__all__ = ["Client", "Counts", "Retrier", "Service", "Token", "open_client", "parse_base_url"]
