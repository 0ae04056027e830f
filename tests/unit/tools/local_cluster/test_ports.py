"""Ports for servers that use them again after a restart."""

from __future__ import annotations

import socket
from pathlib import Path

from tools.local_cluster.ports import free_ports


def test_ports_are_free_and_different_and_none_that_the_kernel_gives_to_connections():
    found = free_ports(30)
    assert len(set(found)) == 30
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(found) < first
    for port in found:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


def test_a_port_on_which_somebody_listens_is_not_given_away():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_ports(1)[0]))
        listener.listen()
        taken = listener.getsockname()[1]
        assert taken not in free_ports(200)
