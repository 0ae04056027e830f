"""Lookup of the broker that serves a topic, at brokers of either kind."""

from __future__ import annotations

import httpx2

LOOKUP_S = 30.0


def owner_port(web_url: str, topic: str) -> int:
    """The port of the broker that serves the topic. httpx2.HTTPError if nobody says."""
    url = f"{web_url}/lookup/v2/topic/{topic.replace('://', '/')}"
    answer = httpx2.get(url, timeout=LOOKUP_S, follow_redirects=True).raise_for_status().json()
    return int(str(answer["brokerUrl"]).rpartition(":")[2])
