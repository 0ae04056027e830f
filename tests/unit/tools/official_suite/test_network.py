"""Obstacles to the suite in the network of this machine."""

from __future__ import annotations

import socket

import pytest

from tools.official_suite import network


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Two ports that nothing has, in place of the standard ones."""
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], two.getsockname()[1]
    monkeypatch.setattr(network, "BROKER_PORT", ports[0])
    monkeypatch.setattr(network, "WEB_PORT", ports[1])
    return ports


def test_a_port_that_is_taken_is_named(free: tuple[int, int]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", free[1]))
        other.listen()
        assert f"port {free[1]} is not free" in network.obstacle()


def test_an_address_that_answers_is_named(free: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_LOST", ("127.0.0.1", free[0]))
    assert "packets to 127.0.0.1 are not lost" in network.obstacle()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setattr(network, "_LOST", server.getsockname())
        assert "accepts connections" in network.obstacle()


def test_an_address_without_an_answer_is_no_obstacle(free: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for client in (first, second):  # they fill the backlog: packets of the next are lost
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        monkeypatch.setattr(network, "_LOST", server.getsockname())
        assert network.obstacle() == ""
