"""The console of a server: its routes, and its door before everything else."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from broker.admin.requests import Service
from broker.console.cluster_ports import ClusterParts
from broker.console.cluster_routes import cluster_routes
from broker.console.config import ConsoleOptions
from broker.console.door import ConsoleDoor
from broker.console.relay import Relay
from broker.console.topics.routes import topic_routes


def console_routes(options: ConsoleOptions, service: Service, parts: ClusterParts) -> list[BaseRoute]:
    """Return the routes of the console's data; none if it is off."""
    return [*topic_routes(service), *cluster_routes(service, parts)] if options.enabled else []


def console_door(options: ConsoleOptions, service: Service, parts: ClusterParts) -> tuple[Middleware, ...]:
    """Return the middleware that comes before all others; none if the console is off."""
    if not options.enabled:
        return ()
    others = None if service.cluster is None else service.cluster.others
    relay = Relay(parts.network, None if others is None else others.tls, deadline_s=service.deadline_s)
    return (Middleware(ConsoleDoor, relay=relay),)
