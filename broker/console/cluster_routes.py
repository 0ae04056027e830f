"""Routes of the data behind the cluster pages. Each has a row in broker.security.authorization.routes."""

from __future__ import annotations

from functools import partial

from starlette.routing import BaseRoute

from broker.admin.errors import Statuses
from broker.admin.requests import Service
from broker.admin.resource import Resource
from broker.console.cluster_handlers import BASE, ClusterPages
from broker.console.cluster_ports import ClusterParts
from broker.errors import InvalidTopicError, TopicNotFoundError

LEDGERS_OF_TOPIC_ANSWERS: Statuses = {TopicNotFoundError: 404, InvalidTopicError: 412}


def cluster_routes(service: Service, parts: ClusterParts) -> list[BaseRoute]:
    """Return the routes."""

    at = partial(Resource, service=service)
    pages = ClusterPages(service, parts)
    return [
        at(f"{BASE}/brokers", GET=pages.brokers),
        at(f"{BASE}/brokers/events", GET=pages.brokers_events),
        at(f"{BASE}/bundles/{{tenant}}/{{namespace}}", GET=pages.ring),
        at(f"{BASE}/survey", POST=pages.survey),
        at(f"{BASE}/survey/events", GET=pages.survey_events),
        at(f"{BASE}/ledgers", statuses={"GET": LEDGERS_OF_TOPIC_ANSWERS}, GET=pages.ledgers),
        at(f"{BASE}/loss/{{bookie}}", GET=pages.loss),
        at(f"{BASE}/bookies", GET=pages.bookies),
        at(f"{BASE}/repairs", GET=pages.repairs),
        at(f"{BASE}/repairs/events", GET=pages.repairs_events),
        at(f"{BASE}/warnings", GET=pages.warnings),
        at(f"{BASE}/warnings/events", GET=pages.warnings_events),
    ]
