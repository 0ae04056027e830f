"""HTTP requests of tests, over one client. No connection is kept, for servers are killed between two requests.

`httpx2.get` makes a client for each request, and so loads all certificates: 70 ms of CPU.
"""

from __future__ import annotations

from typing import Any

import httpx2

_client = httpx2.Client(limits=httpx2.Limits(max_keepalive_connections=0))


def authorize(token: str) -> None:
    """Send a token with all further requests of this process."""
    _client.headers["Authorization"] = f"Bearer {token}"


def request(method: str, url: str, **options: Any) -> httpx2.Response:
    """Make a request; options are those of `httpx2.request`."""
    return _client.request(method, url, **options)


def get(url: str, **options: Any) -> httpx2.Response:
    """Make a GET request."""
    return request("GET", url, **options)
