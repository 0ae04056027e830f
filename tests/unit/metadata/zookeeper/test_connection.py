from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
from kazoo.exceptions import ConnectionLoss

from quire.metadata.zookeeper.config import ZooKeeperConfig
from quire.metadata.zookeeper.connection import Connection
from quire.metadata.zookeeper.threads import Link

pytestmark = pytest.mark.real_clock


class Observer:
    """An observer that records the ends of the session."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def connected(self, session: int) -> None: ...

    def disconnected(self) -> None: ...

    def session_expired(self) -> None: ...

    def ended(self, why: str) -> None:
        self.ends.append(why)


def broken_link(
    observer: Observer, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> tuple[Link, threading.Semaphore]:
    """Return a link that always fails before it connects, and a semaphore that each attempt releases."""
    link = Link(ZooKeeperConfig(servers=(("127.0.0.1", 1),), retry_first_s=0.01, retry_max_s=0.01), observer)
    attempts = threading.Semaphore(0)

    def fail() -> Any:
        attempts.release()
        raise error

    monkeypatch.setattr(link._client._connection, "_expand_client_hosts", fail)
    return link, attempts


@pytest.mark.parametrize("error", [ValueError("planted"), ConnectionLoss(), OSError("planted")])
async def test_no_failure_ends_the_thread_that_connects(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer()
    link, attempts = broken_link(observer, error, monkeypatch)
    link.start()
    for _ in range(5):
        assert await trio.to_thread.run_sync(attempts.acquire, True, 10), "it tries no more"
    assert observer.ends == []
    await trio.to_thread.run_sync(link.stop)
    assert link._client._connection.connection_stopped.is_set()
    assert observer.ends == []


async def test_a_client_that_waits_to_try_again_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    link, attempts = broken_link(Observer(), ValueError("planted"), monkeypatch)
    link._client._connection.retry_sleeper.delay = 60
    link.start()
    assert await trio.to_thread.run_sync(attempts.acquire, True, 10)
    with trio.fail_after(5):
        await trio.to_thread.run_sync(link.stop)


async def test_every_client_has_the_mended_connection() -> None:
    link = Link(ZooKeeperConfig(servers=(("127.0.0.1", 1),)), Observer())
    assert type(link._client._connection) is Connection
    await trio.to_thread.run_sync(link.stop)
