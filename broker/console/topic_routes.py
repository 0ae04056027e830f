"""Routes of the data behind the pages of topics. Each has a row in broker.security.authorization.routes."""

from __future__ import annotations

from starlette.routing import BaseRoute

from broker.admin.requests import Service


def topic_routes(service: Service) -> list[BaseRoute]:
    """Return the routes."""
    return []
