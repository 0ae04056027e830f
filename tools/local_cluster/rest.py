"""Requests to the web ports of a local cluster, with its certificates and tokens if it has them."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path

import httpx2

from tools.local_cluster.errors import ClusterError
from tools.local_cluster.security import ADMIN, CLIENT, Security

REQUEST_S = 30.0
NAMESPACE = "public/default"
ACTIONS = ("produce", "consume")


@cache
def http(trust: Path | None = None) -> httpx2.Client:
    """Return the client of all requests: making one loads certificates, up to 70 ms of CPU. `trust`: the authority of
    the servers' certificates; None: that is the system's.

    It keeps no connection, because brokers are killed between two requests.
    """
    verify = True if trust is None else ssl.create_default_context(cafile=trust)
    limits = httpx2.Limits(max_keepalive_connections=0)
    return httpx2.Client(verify=verify, timeout=REQUEST_S, follow_redirects=True, limits=limits, trust_env=False)


def request(
    security: Security | None, method: str, url: str, *, role: str = ADMIN, json: object = None
) -> httpx2.Response:
    """Return the answer to a request by a role. Raises httpx2.HTTPError."""
    if security is None:
        return http().request(method, url, json=json)
    # A redirect leads to another broker, and httpx2 leaves the header out there.
    headers = {"Authorization": f"Bearer {security.token(role).read_text().strip()}"}
    client = http(security.trust)
    answer = client.request(method, url, json=json, headers=headers, follow_redirects=False)
    while answer.is_redirect:
        answer = client.request(method, answer.headers["Location"], json=json, headers=headers, follow_redirects=False)
    return answer


def grant(security: Security, web_url: str) -> None:
    """Permit the client's role to use the topics of public/default. Raises ClusterError."""
    url = f"{web_url}/admin/v2/namespaces/{NAMESPACE}/permissions/{CLIENT}"
    try:
        answer = request(security, "POST", url, json=list(ACTIONS))
    except httpx2.HTTPError as error:
        raise ClusterError(f"the permissions of {CLIENT} cannot be granted: {error!r}") from error
    if not answer.is_success:
        raise ClusterError(f"the permissions of {CLIENT} cannot be granted: {answer.status_code} {answer.text}")
