"""The session of a ZooKeeper store, without a server: the handling of answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kazoo import exceptions
from kazoo.protocol.serialization import Exists, GetChildren

from quire.metadata.zookeeper.calls import Call
from quire.metadata.zookeeper.config import ZooKeeperConfig
from quire.metadata.zookeeper.session import Session
from tests.support.watches import heard


@asynccontextmanager
async def with_session(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Session, list[tuple[Any, Call]]]]:
    session = Session(ZooKeeperConfig(servers=(("127.0.0.1", 1),)))
    sent: list[tuple[Any, Call]] = []
    monkeypatch.setattr(session.link, "send", lambda request, call: sent.append((request, call)))
    try:
        session.connected(7)
        yield session, sent
    finally:
        session.link.stop()


@pytest.mark.real_clock
@pytest.mark.parametrize("kind", [Exists, GetChildren])
async def test_a_watch_that_may_not_read_is_told_and_the_log_says_why(kind, monkeypatch, log_events):
    async with with_session(monkeypatch) as (session, sent):
        watch = session.watches.add("/admin/policies")
        [call] = [call for request, call in sent if type(request) is kind]
        assert not await heard(watch, watch.path)
        session.calls.answered(call, None, exceptions.NoAuthError())
        assert await heard(watch, watch.path)
        [event] = [each for each in log_events if each["event"] == "metadata watch refused"]
        assert event["path"] == "/admin/policies"
        assert event["reason"] == "/admin/policies: these credentials lack the right"


@pytest.mark.real_clock
async def test_a_node_that_is_not_there_and_a_connection_that_goes_are_no_refusals(monkeypatch, log_events):
    async with with_session(monkeypatch) as (session, sent):
        watch = session.watches.add("/a")
        (_, node), (_, children) = sent
        session.calls.answered(children, None, exceptions.NoNodeError())
        session.calls.answered(node, None, exceptions.ConnectionLoss())
        assert not await heard(watch, watch.path)
        session.disconnected()
        session.connected(7)
        assert await heard(watch, watch.path)
        assert not [each for each in log_events if each["event"] == "metadata watch refused"]
