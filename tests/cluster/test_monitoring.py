"""A standalone server under a real Prometheus: each query of its dashboard has a value, alerts fire on their faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from quire.client.client import Client, open_client
from quire.client.consumer import Consumer, ConsumerOptions
from quire.client.packing import pack
from quire.world.real import RealClock, real_world
from tests.support import web
from tests.support.monitoring import every_query_has_a_value, fires, firing_by_faults, rules_are_healthy, scraping
from tests.support.server import StandaloneProcess, standalone
from tools.monitoring.dashboards import STANDALONE
from tools.monitoring.load import Counts, quiet_load
from tools.monitoring.spark_panels import SPARK

pytestmark = [pytest.mark.cluster, pytest.mark.real_clock]
CONF: dict[str, object] = {
    "statsUpdateFrequencyInSecs": 1,
    "backlogQuotaCheckIntervalInSeconds": 1,
}
PUBLIC = "persistent://public/default"


class TwoHoursAgo(RealClock):
    """Clock of a producer whose messages are old."""

    def wall_ms(self) -> int:
        return super().wall_ms() - 2 * 3600 * 1000


def policy(server: StandaloneProcess, namespace: str, name: str, value: dict[str, object]) -> None:
    base = f"{server.web}/admin/v2/namespaces/public/{namespace}"
    assert web.request("PUT", base).status_code == 204
    answer = web.request("POST", f"{base}/{name}", json=value)
    assert answer.status_code == 204, answer.text


async def publish(client: Client, topic: str, count: int, size: int = 200) -> None:
    producer = await client.producer(topic)
    await producer.send(pack([b"x" * size] * count, batch=False))
    await producer.flush()


async def publish_forever(client: Client, topic: str) -> None:
    """Publish as fast as the topic takes it."""
    producer = await client.producer(topic)
    while True:
        await producer.send(pack([b"x"] * 20, batch=False))
        await producer.flush()


async def receive_forever(consumer: Consumer) -> None:
    """Take what comes and acknowledge nothing."""
    while True:
        await consumer.receive()


async def plant(server: StandaloneProcess, client: Client, nursery: trio.Nursery) -> None:
    """Plant what clients can do wrong: one fault for each alert about topics."""
    await client.consumer(f"{PUBLIC}/stuck", "s", ConsumerOptions(type="Shared", earliest=True, window=1))
    holder = await client.consumer(f"{PUBLIC}/held", "s", ConsumerOptions(type="Shared", earliest=True))
    nursery.start_soon(receive_forever, holder)
    await client.subscription(f"{PUBLIC}/stream", "spark-stopped")
    await client.subscription("persistent://public/small/t", "s")
    await publish(client, f"{PUBLIC}/stuck", 5)
    await publish(client, f"{PUBLIC}/held", 1500)
    await publish(client, f"{PUBLIC}/stream", 3)
    await publish(client, "persistent://public/small/t", 20)
    nursery.start_soon(publish_forever, client, "persistent://public/slow/t")
    async with open_client(replace(real_world(), clock=TwoHoursAgo()), server.url) as late:
        await late.subscription(f"{PUBLIC}/old", "s")
        await publish(late, f"{PUBLIC}/old", 3)


async def test_each_query_of_the_dashboards_has_a_value_and_alerts_about_topics_fire_on_their_faults_only(
    tmp_path: Path,
) -> None:
    with (
        standalone(tmp_path / "server", CONF) as server,
        scraping(tmp_path / "prometheus", {"quire-standalone": [f"127.0.0.1:{server.web_port}"]}) as prometheus,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quiet_load, server.url, Counts())
            await every_query_has_a_value(prometheus, [STANDALONE, SPARK])
            await rules_are_healthy(prometheus)
            assert await firing_by_faults(prometheus) == set()

            policy(server, "slow", "publishRate", {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1})
            quota = {"limitSize": 1000, "policy": "producer_request_hold"}
            policy(server, "small", "backlogQuota", quota)
            async with open_client(real_world(), server.url) as client, trio.open_nursery() as planted:
                await plant(server, client, planted)
                expected = {
                    "QuireSubscriptionStandsStill",
                    "QuireConsumerHoldsUnacked",
                    "QuireSparkQueryLags",
                    "QuireProducersThrottled",
                    "QuireBacklogQuotaExceeded",
                    "QuireBacklogAgeGrows",
                }
                for name in sorted(expected):
                    await fires(prometheus, name)
                assert await firing_by_faults(prometheus) <= expected
                planted.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
