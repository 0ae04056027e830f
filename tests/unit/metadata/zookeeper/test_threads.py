from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from quire.metadata.zookeeper.config import Tls, ZooKeeperConfig
from quire.metadata.zookeeper.threads import Link, _Contexts, _Handler, _tls_context
from quire.servers.errors import InternalError
from quire.servers.process import end_at_fault
from quire.service.log import Event
from quire.world.faults import Faults
from quire.world.unwrap import leaves
from tests.support.certificates import Authority

pytestmark = pytest.mark.real_clock


class Decrypted:
    """A TLS socket that has already decrypted data, on a connection without new data."""

    def __init__(self, inner: socket.socket, pending: int) -> None:
        self._inner = inner
        self._pending = pending

    def pending(self) -> int:
        return self._pending

    def fileno(self) -> int:
        return self._inner.fileno()


class Nobody:
    def connected(self, session: int) -> None: ...

    def disconnected(self) -> None: ...

    def session_expired(self) -> None: ...

    def ended(self, why: str) -> None: ...


def test_what_tls_has_decrypted_is_ready_at_once_and_a_silent_socket_is_not() -> None:
    left, right = socket.socketpair()
    with left, right:
        handler = _Handler(None)
        ready, silent = Decrypted(left, 3), Decrypted(right, 0)
        started = time.monotonic()
        assert handler.select([ready, silent], [], [], 10) == ([ready], [], [])
        assert time.monotonic() - started < 5
        assert handler.select([silent], [], [], 0.01) == ([], [], [])
        left.send(b"x")
        assert handler.select([silent], [silent], [], None) == ([silent], [silent], [])


async def test_posts_from_another_thread_come_in_order() -> None:
    link = Link(ZooKeeperConfig(servers=(("127.0.0.1", 1),)), Nobody())
    got: list[int] = []
    done = trio.Event()

    def post_all() -> None:
        for number in range(2000):
            link.post(got.append, number)
        link.post(done.set)

    thread = threading.Thread(target=post_all)
    thread.start()
    with trio.fail_after(10):
        await done.wait()
    thread.join()
    assert got == list(range(2000))
    link.stop()


async def test_posts_after_the_end_of_the_loop_are_for_nobody() -> None:
    posts: list[Callable[..., None]] = []

    async def main() -> None:
        posts.append(Link(ZooKeeperConfig(servers=(("127.0.0.1", 1),)), Nobody()).post)
        await trio.lowlevel.checkpoint()

    await main()
    posts[0](print, "never")


@pytest.mark.expect_error("kazoo failed")
async def test_failures_inside_kazoo_are_errors_of_ours_and_lost_connections_are_not() -> None:
    words = Link(ZooKeeperConfig(servers=(("127.0.0.1", 1),)), Nobody()).words
    words.logger.warning("Connection dropped: %s", "refused")
    assert words.last == "Connection dropped: refused"
    assert logging.getLogger("kazoo") is not words.logger
    words.logger.error("Unhandled exception in connection loop")
    await trio.lowlevel.checkpoint()


def test_certificates_that_cannot_be_read_are_told_at_once() -> None:
    with pytest.raises(OSError, match="No such file"):
        _tls_context(Tls(ca_file="/nowhere/ca.pem"))


def test_changed_certificates_are_used_for_the_next_connection_and_broken_ones_never(
    tmp_path: Path, log_events: list[Event]
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("localhost", file="own")
    made = _Contexts(Tls(ca_file=str(authority.trust), certificate_file=str(pair.certificate), key_file=str(pair.key)))
    first = made.current()
    assert made.current() is first
    authority.issue("localhost", file="own")
    second = made.current()
    assert second is not first
    assert made.current() is second
    pair.key.write_text("none")
    assert made.current() is second
    pair.key.unlink()
    assert made.current() is second
    authority.issue("localhost", file="own")
    assert made.current() is not second
    names = [event["event"] for event in log_events]
    assert names == [
        "tls files changed, used for new connections",
        *["tls files cannot be used, the previous ones stay"] * 2,
        "tls files changed, used for new connections",
    ]


@pytest.mark.expect_error("internal error, the server ends")
async def test_a_post_that_raises_ends_a_server_in_order_and_the_others_are_made() -> None:
    def boom() -> None:
        raise ValueError("an event")

    async def main() -> None:
        faults = Faults()
        got: list[int] = []
        link = Link(ZooKeeperConfig(servers=(("127.0.0.1", 1),)), Nobody(), faults)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end_at_fault, faults)
                await trio.testing.wait_all_tasks_blocked()
                link.post(boom)
                link.post(got.append, 1)
                await trio.sleep(10)
        finally:
            link.stop()
            assert got == [1]

    with pytest.raises(ExceptionGroup) as raised:
        await main()
    (error,) = leaves(raised.value)
    assert isinstance(error, InternalError)
    assert "what an answer or event of ZooKeeper causes: ValueError" in str(error)
