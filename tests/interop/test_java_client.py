"""Topics by Pulsar's own Java client: the stories of tests/interop/pulsar, by both versions of the client on one
server, on two brokers, and on a server with TLS and tokens. A program tells all stories at once, each with a client of
its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.java_client import CURRENT, FORMER, STORIES, run
from tests.interop.secured import Secured
from tests.support.broker_process import BrokerCluster
from tests.support.process import start_all
from tests.support.server import standalone
from tests.support.zookeeper import shared_server

DEADLINE_S = 420.0


@contextmanager
def one_server(folder: Path) -> Iterator[tuple[str, ...]]:
    with standalone(folder) as server:
        yield server.url, server.web


@contextmanager
def secured_server(folder: Path) -> Iterator[tuple[str, ...]]:
    """A server with TLS, of which an administrator with a token is the client."""
    secured = Secured(folder)
    with secured.served():
        yield (str(secured.clients()),)


@contextmanager
def two_brokers(folder: Path) -> Iterator[tuple[str, ...]]:
    cluster = BrokerCluster(folder / "cluster", shared_server())
    try:
        cluster.start_bookies()
        first, second = cluster.broker(), cluster.broker()
        start_all(first, second)
        yield f"pulsar://127.0.0.1:{first.port},127.0.0.1:{second.port}", first.web
    finally:
        cluster.end()
    for broker in cluster.brokers:
        broker.check_log()


ROOMS = {
    f"{FORMER}-on-one-server": (FORMER, one_server),
    f"{CURRENT}-on-one-server": (CURRENT, one_server),
    f"{CURRENT}-on-two-brokers": (CURRENT, two_brokers),
    f"{CURRENT}-with-tls-and-tokens": (CURRENT, secured_server),
}


@pytest.fixture(scope="module", params=ROOMS)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The stories of one room, and their ends."""
    client, room = ROOMS[request.param]
    with room(tmp_path_factory.mktemp("room")) as arguments:
        lines = run("Stories", *arguments, client=client, seconds=DEADLINE_S)
    found = re.split(r"^story ([\w-]+) ", lines, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize("story", STORIES)
def test_the_story_holds(told: dict[str, str], story: str) -> None:
    assert told[story].strip() == "holds", told[story]
