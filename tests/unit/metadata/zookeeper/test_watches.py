from __future__ import annotations

import pytest
from kazoo.protocol.states import EventType

from quire.metadata.errors import InvalidPathError, SessionExpiredError
from quire.metadata.zookeeper.watches import Arming, ZooKeeperWatches
from tests.support.refusals import raises, refuses
from tests.support.watches import heard

pytestmark = pytest.mark.real_clock


class Server:
    """A server that records the armed watches."""

    def __init__(self, idle_max: int = 10) -> None:
        self.log: list[str] = []
        self.node: dict[str, Arming] = {}
        self.children: dict[str, Arming] = {}
        self.taken_back: list[tuple[str, int]] = []
        self.zxid = 5
        self.watches = ZooKeeperWatches(
            arm_node=self._arm_node,
            arm_children=self._arm_children,
            take_back=lambda path, armings: self.taken_back.append((path, len(armings))),
            newest=lambda: self.zxid,
            post=lambda arming, event: self.watches.fired(arming, event),
            idle_max=idle_max,
        )

    def _arm_node(self, arming: Arming) -> None:
        self.node[arming.path] = arming
        self.log.append(f"node {arming.path}")

    def _arm_children(self, arming: Arming) -> None:
        self.children[arming.path] = arming
        self.log.append(f"children {arming.path}")


@pytest.fixture
def server() -> Server:
    server = Server()
    server.watches.connected()
    return server


async def test_an_arming_that_fired_is_armed_again_before_the_watch_is_told(server: Server) -> None:
    watch = server.watches.add("/a")
    assert server.log == ["node /a", "children /a"]
    assert not await heard(watch, watch.path)
    for event, again in (
        (EventType.CHANGED, ["node /a"]),
        (EventType.DELETED, ["node /a", "children /a"]),
    ):
        server.log.clear()
        server.watches.fired(server.node["/a"], event)
        assert server.log == again
        assert await heard(watch, watch.path)
        assert not await heard(watch, watch.path)
    server.log.clear()
    server.watches.fired(server.children["/a"], EventType.CHILD)
    assert server.log == ["children /a"]
    assert await heard(watch, watch.path)


async def test_one_deletion_told_twice_is_one_change(server: Server) -> None:
    watch = server.watches.add("/a")
    node, children = server.node["/a"], server.children["/a"]
    server.watches.fired(node, EventType.DELETED)
    assert await heard(watch, watch.path)
    server.watches.fired(children, EventType.DELETED)
    assert not await heard(watch, watch.path)


def test_the_children_of_a_node_that_comes_are_watched_from_then_on(server: Server) -> None:
    server.watches.add("/a")
    server.watches.no_children(server.children["/a"])
    server.log.clear()
    server.watches.fired(server.node["/a"], EventType.CREATED)
    assert server.log == ["node /a", "children /a"]


async def test_a_change_between_the_making_of_a_watch_and_its_arming_is_told(server: Server) -> None:
    watch = server.watches.add("/a")
    server.watches.node_armed(server.node["/a"], 5)
    assert not await heard(watch, watch.path)
    server.watches.node_armed(server.node["/a"], 6)
    assert await heard(watch, watch.path)
    server.watches.fired(server.node["/a"], EventType.CHANGED)
    assert await heard(watch, watch.path)
    # From the second arming on whoever was told reads after it.
    server.watches.node_armed(server.node["/a"], 9)
    assert not await heard(watch, watch.path)


async def test_without_a_connection_nothing_is_told_and_with_the_next_one_everything() -> None:
    server = Server()
    server.watches.connected()
    watches = [server.watches.add(path) for path in ("/a", "/b")]
    server.watches.fired(server.node["/a"], EventType.CHANGED)  # and nobody has listened yet
    old = server.node["/a"]
    server.watches.disconnected()
    watches.append(server.watches.add("/c"))
    server.watches.fired(old, EventType.NONE)
    server.watches.fired(old, EventType.CHANGED)
    assert [await heard(watch, watch.path) for watch in watches] == [False] * 3
    server.log.clear()
    server.watches.connected()
    assert sorted(server.log) == sorted(f"{kind} /{name}" for name in "abc" for kind in ("node", "children"))
    assert [await heard(watch, watch.path) for watch in watches] == [True] * 3


def test_the_armings_of_a_closed_watch_serve_the_next_one_until_there_are_too_many() -> None:
    server = Server(idle_max=2)
    server.watches.connected()
    server.watches.add("/a").close()
    server.log.clear()
    server.watches.add("/a").close()
    assert server.log == []
    server.watches.add("/b").close()
    server.watches.no_children(server.children["/b"])
    assert server.taken_back == []
    server.watches.add("/c").close()
    assert server.taken_back == [("/a", 2)]
    server.watches.add("/d").close()
    assert server.taken_back == [("/a", 2), ("/b", 1)]
    # One that fires while nobody watches is not armed again, and not idle any more.
    server.log.clear()
    server.watches.fired(server.node["/c"], EventType.DELETED)
    server.watches.add("/e").close()
    assert server.log == ["node /e", "children /e"]
    assert len(server.taken_back) == 2


async def test_bad_paths_are_refused_and_ended_watches_say_so() -> None:
    server = Server()
    refuses(InvalidPathError, lambda: server.watches.add("a"))
    watch = server.watches.add("/a")
    server.watches.fail(SessionExpiredError("over"))
    await raises(SessionExpiredError, watch.next())
    watch.close()


async def test_an_arming_that_is_refused_is_told_once_and_tried_again_later(server: Server) -> None:
    watch = server.watches.add("/a")
    refused = server.children["/a"]
    server.watches.refused(refused)
    assert await heard(watch, watch.path)
    server.watches.refused(refused)
    assert not await heard(watch, watch.path)
    server.log.clear()
    server.watches.fired(server.node["/a"], EventType.CHANGED)
    assert server.log == ["node /a", "children /a"]
    server.watches.refused(server.node["/a"])
    assert await heard(watch, watch.path)
    watch.close()
    server.watches.refused(server.children["/a"])
    assert server.watches._armed == {}, "nothing is left of it"
