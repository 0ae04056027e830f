"""Ports of a bookie for operators: the HTTP server, and the port of the metrics alone that is there without it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from bookie.bookie import Bookie
from bookie.integrity.metrics import register_integrity
from bookie.metrics import register
from bookie.sanity import SanityWatch
from bookie.scrubber.metrics import register_scrubber
from quire.metadata.store import MetadataStore
from quire.servers.addresses import naming
from quire.servers.bookie.config import BookieServerConfig
from quire.servers.bookie.peer_jobs import PeerJobs
from quire.servers.bookie.web import web_app
from quire.servers.machine_metrics import Certified, register_machine
from quire.service.http import make_metrics_app, serve_web
from quire.service.measuring.loop_watch import watch_loop
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from quire.world.doors import World


async def serve_web_ports(
    world: World,
    bookie: Bookie,
    metadata: MetadataStore,
    config: BookieServerConfig,
    counts: ConnectionCounts,
    certified: Certified | None,
    jobs: PeerJobs,
    register_beside: Callable[[Metrics], None] | None = None,
    *,
    nursery: trio.Nursery,
    stop: trio.Event,
) -> tuple[str, int] | None:
    """Start what is configured, in `nursery`; return host and port of the HTTP server, None if there is none.

    `register_beside` adds the metrics of another server in the process.
    `certified`: TLS of the bookie's own port. ConfigError: the files of TLS cannot be used; PortError.
    """
    side = await config.http.side(world) if config.http.enabled else None
    metrics = None
    if config.metrics.served:
        metrics = bookie_metrics(bookie, counts, config, jobs)
        register_machine(metrics, {"bookiePort": certified, "httpServerPort": side})
        watch_loop(metrics)
        if register_beside is not None:
            register_beside(metrics)
        if config.metrics.sanity:
            watch = SanityWatch(bookie)
            metrics.gauge(
                "bookie_SERVER_SANITY",
                "1: the last entry that the bookie wrote and read for a check was right, 0: it was not, -1: none yet.",
                lambda: watch.passed,
            )
            nursery.start_soon(watch.run, name="bookie sanity")
    if config.http.enabled:
        app = web_app(bookie, metadata, config, nursery, metrics, jobs)
        web = partial(serve_web, app, config.http.host, config.http.port, stop=stop, tls=side)
        with naming("httpServerPort", config.http.host, config.http.port):
            _, port = await nursery.start(web, name="web")
        return config.bookie.host, port
    if metrics is not None and config.metrics.has_own_port:
        host, port = config.metrics.own_host, config.metrics.own_port
        own = partial(serve_web, make_metrics_app(metrics), host, port, stop=stop)
        with naming("prometheusStatsHttpPort", host, port):
            await nursery.start(own, name="metrics")
    return None


def bookie_metrics(bookie: Bookie, counts: ConnectionCounts, config: BookieServerConfig, jobs: PeerJobs) -> Metrics:
    """Return the metrics of the bookie itself."""
    metrics = Metrics(window_s=config.metrics.window_s)
    register(metrics, bookie, counts)
    register_integrity(metrics, bookie, jobs.integrity.progress)
    register_scrubber(metrics, jobs.scrubber)
    return metrics
