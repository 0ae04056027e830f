"""bookie/settings/sockets.py and quire/world/socket_options.py: the kernel's options of connections to a bookie."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace

import pytest
import trio

from quire.servers.bookie.config import BOOKIE
from quire.service.errors import ConfigError
from quire.world.real import real_world
from quire.world.real_network import RealStream
from tests.support.refusals import refuses
from tests.unit.bookie.build import CONFIG

pytestmark = pytest.mark.real_clock


@pytest.mark.parametrize(
    ("key", "value", "level", "option", "found"),
    [
        ("tcp_no_delay", True, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        ("tcp_no_delay", False, socket.IPPROTO_TCP, socket.TCP_NODELAY, 0),
        ("keep_alive", True, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        ("keep_alive", False, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0),
        ("keep_idle_s", 71, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 71),
        ("keep_interval_s", 13, socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 13),
        ("keep_count", 4, socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    ],
)
async def test_a_connection_has_the_option_that_its_key_asks_for(
    key: str, value: bool | int, level: int, option: int, found: int
) -> None:
    listener = await real_world().network.listen("127.0.0.1", 0, replace(CONFIG, **{key: value}).sockets)  # type: ignore[arg-type]
    client = await real_world().network.connect(*listener.address)
    with trio.fail_after(10):
        accepted = await listener.accept()
    assert isinstance(accepted, RealStream)
    assert accepted.socket.getsockopt(level, option) == found
    for each in (accepted, client, listener):
        each.close()


@pytest.mark.parametrize(("linger_s", "is_reset"), [(-1, False), (0, True)])
async def test_a_close_resets_the_connection_if_server_tcp_linger_is_0(linger_s: int, is_reset: bool) -> None:
    listener = await real_world().network.listen("127.0.0.1", 0, replace(CONFIG, linger_s=linger_s).sockets)
    client = await real_world().network.connect(*listener.address)
    with trio.fail_after(10):
        accepted = await listener.accept()
        assert isinstance(accepted, RealStream)
        expected = struct.pack("ii", int(is_reset), 0)
        assert accepted.socket.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == expected
        accepted.close()
        try:
            assert await client.receive_into(memoryview(bytearray(1))) == 0
            assert not is_reset
        except ConnectionResetError:
            assert is_reset
    client.close()
    listener.close()


def test_a_linger_that_would_stop_the_bookie_at_each_close_is_refused(tmp_path: pytest.TempPathFactory) -> None:
    path = f"{tmp_path}/its.conf"
    with open(path, "w") as file:
        file.write("serverTcpLinger=5\n")
    refuses(ConfigError, lambda: BOOKIE.load(path), "serverTcpLinger")
