"""Routes of the data behind the pages of topics. Each has a row in broker.security.authorization.routes."""

from __future__ import annotations

from typing import Final

from starlette.routing import BaseRoute

from broker.admin.requests import Service
from broker.admin.resource import Handler, Resource
from broker.console.messages.handlers import messages
from broker.console.topics.handlers import TopicPages

BASE: Final = "/console/api"


def topic_routes(service: Service) -> list[BaseRoute]:
    """Return the routes."""

    def at(path: str, get: Handler) -> Resource:
        return Resource(f"{BASE}/{path}", service, GET=get)

    pages = TopicPages()
    namespace = "{tenant}/{namespace}"
    return [
        at("whoami", pages.whoami),
        at("topics", pages.topics),
        at("topic-events", pages.events),
        at("loaded-topics", pages.loaded),
        at(f"topics/{namespace}", pages.topics),
        at(f"topic-events/{namespace}", pages.events),
        at(f"messages/{namespace}/{{topic}}", messages),
    ]
