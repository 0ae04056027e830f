"""The tables of permissions: every command that has a handler, and every route of the web port, has a row, and no row
is left over. docs/security.md is made of them (tests/unit/test_conf.py)."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route

from broker.admin.resource import Resource
from broker.admin.resources import routes
from broker.security.authorization.commands import COMMANDS
from broker.security.authorization.document import permissions
from broker.security.authorization.permissions import Permission
from broker.security.authorization.routes import ROUTES, row_of
from quire.service.http import Health, make_app
from quire.service.metrics import Metrics
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.unit.broker.admin.cluster_fakes import ClusterRest
from tests.unit.broker.peers import Room, in_broker

OPEN = {("GET", "/status.html"), ("GET", "/metrics")}
"""Resources of the web port without a row: the first is for load balancers, the second has a key of its own
(authenticateMetricsEndpoint)."""
WITHOUT_HANDLER = {pb.BaseCommand.SEND}
"""Commands that are no entry of the table of handlers."""


def handled(room: Room) -> set[int]:
    return set(room.broker._requests.by_type)


async def test_every_command_with_a_handler_has_a_row() -> None:
    async with in_broker(transactions=True) as room:
        known = handled(room)
    missing = {pb.BaseCommand.Type.Name(kind) for kind in known - COMMANDS.keys()}
    assert not missing, f"broker.security.authorization.commands has no row for {missing}"
    assert COMMANDS.keys() - known == WITHOUT_HANDLER, "rows of commands that are not served"


def served_routes() -> set[tuple[str, str]]:
    async def check() -> None: ...

    rest = ClusterRest()
    every = [*routes(rest.service), *rest.also]
    app: Starlette = make_app(Metrics(), Health(is_ready=lambda: True, check=check), every)
    found: set[tuple[str, str]] = set()
    for each in app.routes:
        if isinstance(each, Resource):
            found |= {(method, each.pattern) for method in each.methods}
        elif isinstance(each, Route):
            found |= {(method, each.path) for method in each.methods or ()}
    return {(method, pattern) for method, pattern in found if method != "HEAD"}


def test_every_route_has_a_row() -> None:
    missing = sorted(served_routes() - ROUTES.keys() - OPEN)
    assert not missing, f"broker.security.authorization.routes has no row for {missing}"


def test_every_row_has_a_route() -> None:
    left_over = sorted(ROUTES.keys() - served_routes())
    assert not left_over, f"rows of calls that are not served: {left_over}"


def test_a_head_needs_what_its_get_needs() -> None:
    pattern = "/admin/v2/tenants"
    assert row_of("HEAD", pattern) == row_of("GET", pattern)
    assert row_of("HEAD", "/admin/v2/unheard-of") is None


def test_what_is_open_is_listed_here() -> None:
    found = sorted(pattern for (_, pattern), route in ROUTES.items() if route.permission is Permission.NOTHING)
    assert found == ["/admin/v2/brokers/ready", "/admin/v2/brokers/version", "/admin/v2/clusters", "/openapi.json"]
    names = [pb.BaseCommand.Type.Name(kind) for kind, row in COMMANDS.items() if row.permission is Permission.NOTHING]
    assert names == [
        "CONNECT",
        "AUTH_RESPONSE",
        "PING",
        "PONG",
        "WATCH_TOPIC_LIST_CLOSE",
        "SEND",
        "CLOSE_PRODUCER",
        "FLOW",
        "ACK",
        "REDELIVER_UNACKNOWLEDGED_MESSAGES",
        "CLOSE_CONSUMER",
    ]


def test_the_page_has_a_line_for_each_command_and_names_each_route() -> None:
    text = permissions()
    assert all(f"| {pb.BaseCommand.Type.Name(kind)} |" in text for kind in COMMANDS)
    assert all(f"`{pattern}`" in text for _, pattern in ROUTES)
