"""Watchers of topic lists: what they are told, and that nothing of them stays."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

from broker import replies
from broker.connections.topic_lists import namespaces, views, watchers
from broker.connections.topic_lists.hashes import topics_hash
from broker.connections.topic_lists.patterns import topic_pattern
from broker.connections.topic_lists.views import change, view_of
from broker.errors import NotAllowedError
from managed_ledger.stored_list import log_path
from quire.metadata.errors import MetadataUnavailableError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.pulsar_frames import C
from tests.support.waiting import until
from tests.unit.broker.peers import Peer, Room, in_broker

PATTERN = "public/default/(or|off).*"


def full(*names: str) -> list[str]:
    return [f"persistent://public/default/{name}" for name in names]


def ask(peer: Peer, watcher_id: int = 1, **options: Any) -> None:
    fields = {"namespace": "public/default", "topics_pattern": PATTERN, **options}
    body = pb.CommandWatchTopicList(request_id=peer.next_id(), watcher_id=watcher_id, **fields)
    peer.send(C(type=C.WATCH_TOPIC_LIST, watchTopicList=body))


async def watch(peer: Peer, watcher_id: int = 1, **options: Any) -> pb.CommandWatchTopicListSuccess:
    ask(peer, watcher_id, **options)
    found = (await peer.expect(C.WATCH_TOPIC_LIST_SUCCESS)).watchTopicListSuccess
    assert found.watcher_id == watcher_id
    return found


async def update(peer: Peer) -> tuple[list[str], list[str], str]:
    found = (await peer.expect(C.WATCH_TOPIC_UPDATE)).watchTopicUpdate
    return list(found.new_topics), list(found.deleted_topics), found.topics_hash


async def unwatch(peer: Peer, watcher_id: int = 1) -> None:
    """End a watcher. Any other answer than SUCCESS leaves the Java client waiting for the end of its consumer."""
    body = pb.CommandWatchTopicListClose(request_id=peer.next_id(), watcher_id=watcher_id)
    peer.send(C(type=C.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=body))
    assert (await peer.expect(C.SUCCESS)).success.request_id == body.request_id


async def make(room: Room, *names: str) -> None:
    for name in names:
        await room.broker.administration.create_topic(TopicName.parse(name))


def watched(room: Room) -> int:
    return room.broker.topic_lists.count


async def test_a_watcher_gets_the_list_and_then_what_is_made_and_deleted(room: Room, peer: Peer) -> None:
    await make(room, "orders", "lorries")
    found = await watch(peer)
    assert (list(found.topic), found.topics_hash) == (full("orders"), topics_hash(full("orders")))
    await make(room, "offers", "other")
    assert await update(peer) == (full("offers"), [], topics_hash(full("orders", "offers")))
    await room.broker.administration.create_partitioned_topic(TopicName.parse("orders2"), 2)
    parts = full("orders2-partition-0", "orders2-partition-1")
    assert await update(peer) == (parts, [], topics_hash(full("orders", "offers") + parts))
    await room.broker.administration.delete_topic(TopicName.parse("orders"))
    assert await update(peer) == ([], full("orders"), topics_hash(full("offers") + parts))
    await room.broker.administration.delete_topic(TopicName.parse("lorries"))
    await peer.silent()


async def test_a_topic_that_another_broker_made_reaches_the_watcher(room: Room, peer: Peer) -> None:
    assert list((await watch(peer, namespace="new/namespace", topics_pattern=".*")).topic) == []
    await room.cluster.stores[0].create("/managed-ledgers/new/namespace/persistent/t", make_parents=True)
    assert (await update(peer))[0] == ["persistent://new/namespace/t"]


async def test_a_list_that_the_client_has_is_not_sent_again(room: Room, peer: Peer) -> None:
    await make(room, "orders")
    first = await watch(peer)
    again = await watch(peer, 2, topics_hash=first.topics_hash)
    assert (list(again.topic), again.topics_hash) == ([], first.topics_hash)
    assert list((await watch(peer, 3, topics_hash="00000000")).topic) == full("orders")


async def test_a_watcher_ends_at_its_close_or_with_its_connection_and_nothing_stays(room: Room) -> None:
    peer, other = await room.connect(), await room.connect()
    await watch(peer)
    await watch(peer, 2, topics_pattern="public/default/a.*")
    await watch(other)
    await unwatch(peer)
    await unwatch(peer)  # known or not
    await make(room, "orders")
    assert (await update(other))[0] == full("orders")
    await peer.silent()
    assert watched(room) == 1
    await peer.closed_by_us()
    await unwatch(other)
    assert watched(room) == 0
    await make(room, "orders2")
    await other.silent()
    assert list((await watch(other)).topic) == full("orders", "orders2")


async def test_the_same_id_again_replaces_the_watcher(room: Room, peer: Peer) -> None:
    await watch(peer)
    await watch(peer, topics_pattern="public/default/a.*")
    await make(room, "orders", "apples")
    assert (await update(peer))[0] == full("apples")
    await peer.silent()
    await unwatch(peer)
    assert watched(room) == 0


async def test_a_connection_that_ends_while_its_watcher_is_made_leaves_nothing(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "RETRY_MIN_S", 0.1)
    store = room.cluster.stores[0]
    children = store.children

    async def away(path: str) -> list[str]:
        raise MetadataUnavailableError("away")

    monkeypatch.setattr(store, "children", away)
    peer, closing = await room.connect(), await room.connect()
    ask(peer)
    ask(closing)
    await until(lambda: watched(room) == 1)
    body = pb.CommandWatchTopicListClose(request_id=9, watcher_id=1)
    closing.send(C(type=C.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=body))
    await closing.expect(C.SUCCESS)
    await peer.closed_by_us()
    monkeypatch.setattr(store, "children", children)
    assert (await closing.error())[0] == pb.ServiceNotReady
    await until(lambda: watched(room) == 0)
    assert list((await watch(closing)).topic) == []


async def test_lists_that_cannot_be_read_now_are_read_later_and_nothing_is_missed(
    room: Room, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watch(peer)
    store = room.cluster.stores[0]
    children = store.children

    asked = 0

    async def away(path: str) -> list[str]:
        nonlocal asked
        asked += 1
        raise MetadataUnavailableError("away")

    monkeypatch.setattr(store, "children", away)
    await store.create(log_path("public/default/persistent/orders"), make_parents=True)
    await until(lambda: asked >= 2)  # it was tried again
    monkeypatch.setattr(store, "children", children)
    assert (await update(peer))[0] == full("orders")


async def test_the_last_other_watcher_of_a_pattern_may_end_while_one_is_made(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await room.connect(), await room.connect()
    await watch(first)
    offload = room.broker.context.world.offload
    run, ended = offload.run, trio.Event()

    async def slow_run(job: Callable[[], Any], *, name: str = "") -> Any:
        if name == "answer with a list of topics":
            await unwatch(first)
            ended.set()
        return await run(job, name=name)

    monkeypatch.setattr(offload, "run", slow_run)
    await watch(second)
    assert ended.is_set()
    await make(room, "orders")
    assert (await update(second))[0] == full("orders")
    await unwatch(second)
    assert watched(room) == 0


async def test_patterns_are_matched_and_lists_encoded_in_a_worker(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    offload = room.broker.context.world.offload
    run, in_worker, seen = offload.run, [False], []

    async def watched_run(job: Callable[[], Any], *, name: str = "") -> Any:
        def working() -> Any:
            in_worker[0] = True
            try:
                return job()
            finally:
                in_worker[0] = False

        return await run(working, name=name)

    def noted(of: Any) -> Any:
        def call(*arguments: Any) -> Any:
            seen.append((of.__name__, in_worker[0]))
            return of(*arguments)

        return call

    monkeypatch.setattr(offload, "run", watched_run)
    monkeypatch.setattr(views, "topic_pattern", noted(topic_pattern))
    monkeypatch.setattr(views, "topics_hash", noted(topics_hash))
    monkeypatch.setattr(replies, "topic_list", noted(replies.topic_list))
    peer = await room.connect()
    await watch(peer)
    await make(room, "orders")
    await update(peer)
    assert {name for name, _ in seen} == {"topic_pattern", "topics_hash", "topic_list"}
    assert all(where for _, where in seen), seen


async def test_what_is_not_watched_is_refused(room: Room, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[tuple[dict[str, Any], pb.ServerError]] = [
        ({"topics_pattern": "x" * 51}, pb.NotAllowedError),
        ({"topics_pattern": "(?=x)"}, pb.NotAllowedError),
        ({"namespace": "public"}, pb.InvalidTopicName),
    ]
    for options, code in refused:
        ask(peer, **options)
        assert (await peer.error())[0] == code
    assert watched(room) == 0
    monkeypatch.setattr(watchers, "WATCHERS_MAX", 2)
    monkeypatch.setattr(namespaces, "PATTERNS_MAX", 1)
    await watch(peer)
    ask(peer, 2, topics_pattern="other")
    assert (await peer.error())[0] == pb.NotAllowedError
    await watch(peer, 2)
    ask(peer, 3)
    assert (await peer.error())[0] == pb.NotAllowedError
    monkeypatch.setattr(namespaces, "NAMESPACES_MAX", 1)
    other = await room.connect()
    ask(other, namespace="public/other")
    assert (await other.error())[0] == pb.NotAllowedError
    await make(room, "orders", "offers")
    monkeypatch.setattr(namespaces, "PATTERNS_MAX", 2)
    monkeypatch.setattr(namespaces, "NAMES_MAX", 3)
    ask(other, topics_pattern="public/default/o.*")
    await peer.expect(C.WATCH_TOPIC_UPDATE)
    monkeypatch.setattr(views, "LIST_BYTES_MAX", 10)
    with pytest.raises(NotAllowedError):
        view_of(".*", [TopicName.parse("orders")])


@pytest.mark.parametrize("on", [True, False])
async def test_clients_are_told_whether_there_are_watchers(on: bool) -> None:
    async with in_broker(pattern_evaluation=on) as room:
        peer = room.open()
        peer.ask_connect()
        flags = (await peer.expect(C.CONNECTED)).connected.feature_flags
        assert flags.supports_topic_watchers is on
        ask(peer)
        await peer.expect(C.WATCH_TOPIC_LIST_SUCCESS if on else C.ERROR)


def test_updates_lead_step_by_step_to_the_new_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "UPDATE_NAMES_MAX", 3)
    rng = random.Random(7)
    space = NamespaceName("public", "default")
    every = [TopicName.parse(f"{space}/{letter}{number}") for letter in "abc" for number in range(8)]
    topics: list[TopicName] = []
    view = view_of("public/default/[ab].*", topics)
    seen: list[str] = []
    for _ in range(300):
        new = rng.sample(every, rng.randrange(len(every)))
        added = [name for name in new if name not in topics]
        removed = [name for name in topics if name not in new]
        view, updates = change(view, added, removed)
        for each in updates:
            assert 0 < len(each.added) + len(each.removed) <= 3
            assert set(each.removed) <= set(seen)
            assert not set(each.added) & set(seen)
            seen = [name for name in seen if name not in each.removed] + list(each.added)
            assert each.topics_hash == topics_hash(seen)
        topics = new
        assert sorted(seen) == sorted(name.full for name in topics if name.local[0] in "ab")
        assert (set(view.names), view.topics_hash) == (set(seen), topics_hash(seen))
