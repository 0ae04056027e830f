"""The web port of a standalone server: status, health, metrics. Imported after the binary port is served."""

from __future__ import annotations

import trio

from bookie.bookie import Bookie
from broker.server import Broker
from broker.stats import register
from quire.cli.standalone_config import StandaloneConfig
from quire.service.http import Health, make_app, serve_http
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts


async def serve_web(
    broker: Broker,
    bookie: Bookie,
    counts: ConnectionCounts,
    config: StandaloneConfig,
    *,
    stop: trio.Event,
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop` is set; starts with the address it listens on."""
    metrics = Metrics()
    register(metrics, broker, counts, config.cluster_name)
    stats = bookie.stats
    metrics.counter("bookie_adds", "Entries added", lambda: stats.adds)
    metrics.counter("bookie_add_bytes", "Bytes of entries added", lambda: stats.add_bytes)
    metrics.counter("bookie_reads", "Read requests served", lambda: stats.reads)
    metrics.counter("bookie_journal_syncs", "Commit groups written and synced", lambda: stats.journal_syncs)
    health = Health(is_ready=lambda: not stop.is_set(), check=broker.check_health)
    await serve_http(
        make_app(metrics, health), config.bind_address, config.web_port, stop=stop, task_status=task_status
    )
