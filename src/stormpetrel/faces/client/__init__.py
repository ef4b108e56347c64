"""The Python client of the API: `from stormpetrel.faces.client import Client`. Needs httpx, and nothing of a site."""

from stormpetrel.faces.client.client import Client

__all__ = ["Client"]
