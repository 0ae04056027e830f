"""Lookup of the broker that serves a topic, at brokers of either kind."""

from __future__ import annotations

from tools.local_cluster.rest import request
from tools.local_cluster.security import Security


def owner_port(web_url: str, topic: str, security: Security | None = None) -> int:
    """Return the port of the broker that serves the topic; with `security` that with TLS.

    Raises:
        httpx2.HTTPError: No broker answers, or the answer is an error.
    """
    answer = request(security, "GET", f"{web_url}/lookup/v2/topic/{topic.replace('://', '/')}")
    found = answer.raise_for_status().json()
    return int(str(found["brokerUrl" if security is None else "brokerUrlTls"]).rpartition(":")[2])
