"""Routes of the data behind the pages of topics. Each has a row in broker.security.authorization.routes."""

from __future__ import annotations

from typing import Final

from starlette.routing import BaseRoute

from broker.admin.requests import Service
from broker.admin.resource import Handler, Resource
from broker.console.message_handlers import messages
from broker.console.topic_handlers import TopicPages

BASE: Final = "/console/api"


def topic_routes(service: Service) -> list[BaseRoute]:
    """Return the routes."""

    def at(path: str, GET: Handler) -> Resource:
        return Resource(f"{BASE}/{path}", service, statuses=None, GET=GET)

    pages = TopicPages()
    namespace = "{tenant}/{namespace}"
    return [
        at("whoami", GET=pages.whoami),
        at("topics", GET=pages.topics),
        at("topic-events", GET=pages.events),
        at("loaded-topics", GET=pages.loaded),
        at(f"topics/{namespace}", GET=pages.topics),
        at(f"topic-events/{namespace}", GET=pages.events),
        at(f"messages/{namespace}/{{topic}}", GET=messages),
    ]
