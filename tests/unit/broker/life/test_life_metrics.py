"""Metrics of quotas and rates."""

from __future__ import annotations

from broker.metrics import register
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from tests.unit.broker.peers import in_broker


async def test_backlogs_quotas_and_held_publishers_are_shown() -> None:
    async with in_broker(quota_bytes=2000, quota_seconds=60, topic_publish_messages=2) as room:
        peer = await room.connect()
        await peer.subscribe()
        await peer.producer()
        await peer.publish(*[b"x" * 1000] * 3)
        await room.broker.quotas.round()
        size = (await room.topic()).ledger.size
        metrics = Metrics()
        register(metrics, room.broker, ConnectionCounts(), "c")
        lines = metrics.exposition().decode().splitlines()
        found = {
            line.split("{")[0].split(" ")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith(("pulsar_storage_backlog", "pulsar_publish_rate", "quire_backlog", "quire_i"))
        }
        assert found == {
            "pulsar_storage_backlog_size": size,
            "pulsar_storage_backlog_age_seconds": -1,
            "pulsar_storage_backlog_quota_limit": 2000,
            "pulsar_storage_backlog_quota_limit_time": 60,
            "pulsar_publish_rate_limit_times": (await room.topic()).rates.times_limited,
            "quire_backlog_quota_exceeded": 1,
            "quire_inactive_topics_deleted": 0,
            "quire_idle_topics_unloaded": 0,
        }
        assert found["pulsar_publish_rate_limit_times"] > 0
