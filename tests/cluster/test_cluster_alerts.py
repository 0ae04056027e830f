"""A cluster under a real Prometheus: each query of its dashboards has a value, and each alert fires on its fault.

The rules have their shipped expressions, with short ranges and without durations (tests/support/monitoring.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from quire.client.client import open_client
from quire.client.packing import pack
from quire.world.real import real_world
from tests.support import web
from tests.support.monitoring import ends, every_query_has_a_value, fires, firing_by_faults, rules_are_healthy, scraping
from tests.support.waiting import until
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Plan
from tools.monitoring.bookie_panels import BOOKIE
from tools.monitoring.dashboards import BROKER
from tools.monitoring.load import Counts, quiet_load
from tools.monitoring.prometheus import Prometheus
from tools.monitoring.quiet import scraped_cluster
from tools.monitoring.spark_panels import SPARK

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.real_clock(seconds=900)]
"""Each of the dozen steps has its own deadline of 60 to 90 s: all together are longer than a test has by default."""
STALL_S = 0.6
"""A bookie that stalls again and again is stopped for so long each time, and runs for RUN_S in between."""
RUN_S = 0.015
PLAN = Plan(
    brokers=2,
    recoveries=1,
    conf={
        Kind.BROKER: {"statsUpdateFrequencyInSecs": 1},
        Kind.RECOVERY: {"lostBookieRecoveryDelay": 0, "auditorPeriodicCheckInterval": 0},
    },
)


class Rig:
    """The cluster, its targets by job, and Prometheus."""

    def __init__(self, cluster: LocalCluster, targets: dict[str, list[str]], prometheus: Prometheus) -> None:
        self.cluster = cluster
        self.targets = targets
        self.prometheus = prometheus


@asynccontextmanager
async def loaded(folder: Path) -> AsyncIterator[Rig]:
    """Run a cluster under a quiet load, scraped by Prometheus."""
    cluster, targets = scraped_cluster(folder / "cluster", PLAN)
    try:
        cluster.up()
        with scraping(folder / "prometheus", targets) as prometheus:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(quiet_load, cluster.service_url, Counts())
                yield Rig(cluster, targets, prometheus)
                nursery.cancel_scope.cancel()
    finally:
        cluster.abandon()


async def stall(cluster: LocalCluster) -> None:
    """Let the first two bookies stall again and again, as on a machine that swaps."""
    nodes = cluster.nodes(Kind.BOOKIE)[:2]
    try:
        while True:
            for node in nodes:
                cluster.pause(node)
            await trio.sleep(STALL_S)
            for node in nodes:
                cluster.resume(node)
            await trio.sleep(RUN_S)
    finally:
        for node in nodes:
            cluster.resume(node)


async def unload(web_url: str) -> None:
    """Unload a namespace again and again: its bundles come and go."""
    while True:
        await trio.to_thread.run_sync(web.request, "PUT", f"{web_url}/admin/v2/namespaces/public/default/unload")
        await trio.sleep(0.7)


async def test_each_query_has_a_value_and_each_alert_of_a_cluster_fires_on_its_fault(tmp_path: Path) -> None:
    async with loaded(tmp_path) as rig:
        cluster, prometheus = rig.cluster, rig.prometheus
        await every_query_has_a_value(prometheus, [BROKER, BOOKIE, SPARK])
        await rules_are_healthy(prometheus)

        async def quiet() -> bool:
            return await firing_by_faults(prometheus) == set()

        await until(quiet, "nothing fires", 30)

        bookie_url = f"http://{rig.targets['quire-bookie'][0]}/api/v1/bookie/state/readonly"
        assert web.request("PUT", bookie_url, json={"readOnly": True}).status_code == 200
        await fires(prometheus, "QuireBookieReadOnly")
        assert web.request("PUT", bookie_url, json={"readOnly": False}).status_code == 200
        await ends(prometheus, "QuireBookieReadOnly")

        [recovery] = cluster.nodes(Kind.RECOVERY)
        cluster.kill(recovery)
        await fires(prometheus, "QuireNoAuditor")
        cluster.start(recovery)
        await ends(prometheus, "QuireNoAuditor")

        async with trio.open_nursery() as faults:
            faults.start_soon(unload, cluster.web_urls[0])
            await fires(prometheus, "QuireOwnershipFlaps", 90)
            faults.cancel_scope.cancel()

        async with trio.open_nursery() as faults:
            faults.start_soon(stall, cluster)
            await fires(prometheus, "QuireStorageWriteSlow")
            await fires(prometheus, "QuireJournalSyncSlow")
            await fires(prometheus, "QuireEventLoopHeld")
            faults.cancel_scope.cancel()

        [zookeeper] = cluster.nodes(Kind.ZOOKEEPER)
        cluster.pause(zookeeper)
        await fires(prometheus, "QuireMetadataSessionLost")
        await fires(prometheus, "QuireBrokerNotReady")
        cluster.resume(zookeeper)
        await ends(prometheus, "QuireMetadataSessionLost")
        await ends(prometheus, "QuireBrokerNotReady")

        victim = cluster.nodes(Kind.BOOKIE)[2]
        cluster.kill(victim)
        await fires(prometheus, "QuireBookieDown")
        await fires(prometheus, "QuireLedgersUnderReplicated", 90)
        cluster.start(victim)
        await ends(prometheus, "QuireBookieDown")

        broker = cluster.nodes(Kind.BROKER)[1]
        cluster.kill(broker)
        await fires(prometheus, "QuireBrokerDown")


async def test_a_ledger_without_a_good_copy_is_reported(tmp_path: Path) -> None:
    async with loaded(tmp_path) as rig:
        cluster, prometheus = rig.cluster, rig.prometheus
        policies = f"{cluster.web_urls[0]}/admin/v2/namespaces/public/single"
        assert web.request("PUT", policies).status_code == 204
        single = {
            "bookkeeperEnsemble": 1,
            "bookkeeperWriteQuorum": 1,
            "bookkeeperAckQuorum": 1,
            "managedLedgerMaxMarkDeleteRate": 0,
        }
        assert web.request("POST", f"{policies}/persistence", json=single).status_code == 204
        async with open_client(real_world(), cluster.service_url) as client:
            for number in range(6):
                topic = f"persistent://public/single/t{number}"
                await client.subscription(topic, "s")
                producer = await client.producer(topic)
                await producer.send(pack([b"x"]))
                await producer.flush()
                await producer.close()
        await trio.to_thread.run_sync(web.request, "PUT", f"{policies}/unload")
        cluster.kill(cluster.nodes(Kind.BOOKIE)[0])
        await fires(prometheus, "QuireLedgersUnreadable", 120)
