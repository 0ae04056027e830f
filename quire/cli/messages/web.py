"""Requests to the admin REST, with the credentials and certificates of the flags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import httpx2

from quire.cli.messages.access import ClusterAccess, UnreachableError
from quire.wire.pulsar.names import TopicName

TIMEOUT_S = 60.0


@contextmanager
def web_client(access: ClusterAccess) -> Iterator[httpx2.Client]:
    """Yield a client of the admin REST. Raises FlagsError, UnreachableError."""
    headers = access.web_headers()

    def authenticate(request: httpx2.Request) -> None:
        request.headers.update(headers)  # also of one to another broker: redirects lose them

    try:
        with httpx2.Client(
            base_url=access.web(),
            timeout=TIMEOUT_S,
            follow_redirects=True,
            event_hooks={"request": [authenticate]},
            verify=access.web_tls(),
        ) as client:
            yield client
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise UnreachableError(f"no answer from {access.web()}: {error or type(error).__name__}") from None


def path_of(topic: str) -> str:
    """Return the path of a topic, given by its full name."""
    name = TopicName.parse(topic)
    return f"/admin/v2/persistent/{name.namespace_path}/{quote(name.local, safe='')}"


def reason_of(answer: httpx2.Response) -> str:
    """Return why a broker refused."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    reason = found.get("reason") if isinstance(found, dict) else None
    return str(reason or answer.text[:300] or answer.status_code)
