"""Redirects of requests to the broker that owns the topic or bundle."""

from __future__ import annotations

from broker.ownership.lookup import Redirect
from tests.unit.broker.admin.cluster_fakes import THERE, ClusterRest


async def test_a_topic_call_goes_to_the_owner_with_its_query(rest: ClusterRest) -> None:
    topic = "/admin/v2/persistent/public/default/a%2Fb"
    rest.ownership.found = THERE
    for method, resource in (
        ("PUT", ""),
        ("DELETE", "?force=true"),
        ("GET", "/internalStats?metadata=true"),
        ("GET", "/lastMessageId"),
        ("GET", "/messageid/5"),
        ("GET", "/subscriptions"),
        ("PUT", "/subscription/s%2F1"),
        ("DELETE", "/subscription/s?force=false"),
        ("PUT", "/unload"),
        ("GET", "/quireUnused"),
    ):
        assert await rest.sent_to(method, f"{topic}{resource}") == f"http://other:8080{topic}{resource}"
    assert [each for each in rest.administration.asked if each[0] != "partitions"] == []
    rest.ownership.found = Redirect("pulsar://other:6650", "http://other:8080", authoritative=True)
    there = await rest.sent_to("DELETE", f"{topic}?force=true&authoritative=false")
    assert there == f"http://other:8080{topic}?force=true&authoritative=true"


async def test_a_partitioned_topic_is_anybodys(rest: ClusterRest) -> None:
    rest.ownership.found = THERE
    rest.administration.partition_count = 3
    topic = "/admin/v2/persistent/public/default/t"
    assert await rest.status("PUT", f"{topic}/subscription/s") == 204
    assert await rest.status("PUT", f"{topic}/unload") == 204
    assert await rest.sent_to("PUT", f"{topic}-partition-1/unload")
