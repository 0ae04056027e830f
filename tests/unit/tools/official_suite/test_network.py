"""Obstacles to the suite in the network of this machine."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from tools.official_suite import network

STANDARD = ("BROKER_PORT", "WEB_PORT", "BROKER_TLS_PORT", "WEB_TLS_PORT")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ports that nothing has, in place of the standard ones."""
    with ExitStack() as probes:
        taken = [probes.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in STANDARD]
        ports: list[int] = [each.getsockname()[1] for each in taken]
    for name, port in zip(STANDARD, ports, strict=True):
        monkeypatch.setattr(network, name, port)
    return ports


@pytest.mark.parametrize("which", range(len(STANDARD)), ids=STANDARD)
def test_a_port_that_is_taken_is_named(free: list[int], which: int) -> None:
    with socket.create_server(("127.0.0.1", free[which])):
        assert f"port {free[which]} is not free" in network.obstacle()


def test_an_address_that_answers_is_named(free: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_LOST", ("127.0.0.1", free[0]))
    assert "packets to 127.0.0.1 are not lost" in network.obstacle()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setattr(network, "_LOST", server.getsockname())
        assert "accepts connections" in network.obstacle()


def test_an_address_without_an_answer_is_no_obstacle(free: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for client in (first, second):  # they fill the backlog: packets of the next are lost
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        monkeypatch.setattr(network, "_LOST", server.getsockname())
        assert network.obstacle() == ""
