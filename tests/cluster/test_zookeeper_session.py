"""The ZooKeeper store over lost connections, lost answers and lost sessions, against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from quire.metadata import bookies
from quire.metadata.errors import (
    BadVersionError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
    NotAllowedError,
    SessionExpiredError,
    ValueTooLargeError,
)
from quire.metadata.local import ephemerals
from quire.metadata.store import ANY_VERSION, Changed, Create, Kind, Node, Put
from quire.metadata.zookeeper.store import SessionExpiredPolicy, ZooKeeperStore, open_store
from quire.service import log
from quire.world.real import real_world
from tests.support.proxy import Proxy, proxy
from tests.support.refusals import raises
from tests.support.server import free_port
from tests.support.zookeeper import (
    PATIENCE_S,
    START_DEADLINE_S,
    ZooKeeperProcess,
    expire,
    opened,
    own_root,
    shared_server,
    until,
)

pytestmark = pytest.mark.cluster

RECONNECT = SessionExpiredPolicy.RECONNECT
INFO = bookies.BookieServiceInfo(endpoints=(bookies.Endpoint(host="127.0.0.1", port=3181),))
STORY_S = 3 * START_DEADLINE_S
"""Deadline in seconds of stories that start servers."""
LONG_SESSION_S = START_DEADLINE_S
"""Timeout in seconds of a session that outlives a start of its server, which takes long on a busy machine."""
BOTH = pytest.mark.parametrize("policy", list(SessionExpiredPolicy))


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """Run a server for tests that kill and pause it and count its watches; no other test file uses it."""
    settings = f"maxSessionTimeout={int(LONG_SESSION_S * 1000)}\n"
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), tick_ms=1000, settings=settings).start()
    yield server
    server.kill()


@asynccontextmanager
async def through_proxy(
    *, framed: bool = False, **settings: Any
) -> AsyncIterator[tuple[ZooKeeperStore, ZooKeeperStore, Proxy]]:
    """Yield a store with these settings behind a proxy, a store that sees the same nodes directly, and the proxy."""
    root = own_root()
    async with (
        proxy(shared_server().port, framed=framed) as link,
        opened(shared_server().config(root)) as direct,
        opened(replace(shared_server().config(root, **settings), servers=(("127.0.0.1", link.port),))) as store,
    ):
        yield store, direct, link


async def lose_answer(
    store: ZooKeeperStore, link: Proxy, happened: Callable[[], Awaitable[bool]], call: Callable[[], Awaitable[Any]]
) -> Any:
    """Make a call, let the server do it, and cut before its answer arrives. Return the call's result or its error."""
    outcome: list[Any] = []

    async def ask() -> None:
        try:
            outcome.append(await call())
        except Exception as error:
            outcome.append(error)

    await store.get("/")  # connected
    async with trio.open_nursery() as nursery:
        link.answers_flow = False
        nursery.start_soon(ask, name="ask")
        await until(happened, "the server did it")
        link.cut()
        link.answers_flow = True
    return outcome[0]


# ---------------------------------------------------------------------------------------------------- lost connections


@pytest.mark.real_clock
async def test_a_read_whose_answer_is_lost_is_asked_again() -> None:
    async with through_proxy() as (store, direct, link):
        await direct.create("/a", b"x")
        asked = trio.Event()

        async def get() -> Node | None:
            asked.set()
            return await store.get("/a")

        async def happened() -> bool:
            return asked.is_set()

        assert await lose_answer(store, link, happened, get) == Node(b"x", 0)


@pytest.mark.real_clock
async def test_an_ephemeral_create_whose_answer_is_lost_is_found_to_be_made() -> None:
    async with through_proxy() as (store, direct, link):

        async def happened() -> bool:
            return await direct.get("/a") is not None

        async def create() -> str:
            return await store.create("/a", b"x", kind=Kind.EPHEMERAL)

        assert await lose_answer(store, link, happened, create) == "/a"
        assert await store.get("/a") == Node(b"x", 0, ephemeral=True, mine=True)


@pytest.mark.real_clock
async def test_a_create_that_the_server_never_got_is_made_again() -> None:
    async def _is(value: bool) -> bool:
        await trio.lowlevel.checkpoint()
        return value

    async with through_proxy() as (store, direct, link):
        link.cut(refuse=True)
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(store.create, f"/n{number}", b"x", name=f"{number}")
            await until(lambda: _is(not store.is_connected), "the connection is lost")
            link.cut()
        assert len(await direct.children("/")) == 20


@pytest.mark.real_clock
async def test_a_persistent_create_whose_answer_is_lost_says_that_the_outcome_is_unknown() -> None:
    """Another client may have made the same node at that moment."""
    async with through_proxy() as (store, direct, link):

        async def happened() -> bool:
            return await direct.get("/a") is not None

        async def create() -> str:
            return await store.create("/a", b"x")

        assert isinstance(await lose_answer(store, link, happened, create), MetadataUnavailableError)
        await raises(NodeExistsError, store.create("/a", b"x"))


@pytest.mark.real_clock
async def test_puts_deletes_and_multis_whose_answer_is_lost_say_that_the_outcome_is_unknown() -> None:
    async with through_proxy() as (store, direct, link):
        await direct.create("/a", b"x")

        async def was_put() -> bool:
            node = await direct.get("/a")
            return node is not None and node.version == 1

        async def was_done() -> bool:
            return await direct.get("/b") is not None

        async def was_deleted() -> bool:
            return await direct.get("/a") is None

        outcomes = [
            await lose_answer(store, link, was_put, lambda: store.put("/a", b"y", 0)),
            await lose_answer(store, link, was_done, lambda: store.multi([Create(path="/b")])),
            await lose_answer(store, link, was_deleted, lambda: store.delete("/a")),
        ]
        assert all(isinstance(outcome, MetadataUnavailableError) for outcome in outcomes), outcomes
        assert await store.children("/") == ["b"]


@pytest.mark.real_clock
@pytest.mark.parametrize("at_once", [1, 10])
async def test_a_lost_sequential_create_leaves_no_node_that_nobody_knows_of(at_once: int) -> None:
    async with through_proxy() as (store, direct, link):
        await store.create("/ids")
        kept = await store.create("/ids/ID-", kind=Kind.EPHEMERAL, sequential=True)
        foreign = await direct.create("/ids/ID-", kind=Kind.EPHEMERAL, sequential=True)

        async def happened() -> bool:
            return len(await direct.children("/ids")) == 2 + at_once

        async def create() -> list[str]:
            made: list[str] = []

            async def one() -> None:
                made.append(await store.create("/ids/ID-", kind=Kind.EPHEMERAL, sequential=True))

            async with trio.open_nursery() as nursery:
                for number in range(at_once):
                    nursery.start_soon(one, name=f"{number}")
            return made

        made = await lose_answer(store, link, happened, create)
        assert len(set(made)) == at_once
        assert min(made) > f"/ids/ID-{1 + at_once:010d}"

        async def swept() -> bool:
            return [f"/ids/{name}" for name in await direct.children("/ids")] == sorted([kept, foreign, *made])

        await until(swept, "the lost nodes are gone, and only they")


@pytest.mark.real_clock
async def test_a_sequential_node_whose_asker_has_gone_is_deleted() -> None:
    async with through_proxy() as (store, direct, link):
        await store.create("/ids")
        link.answers_flow = False
        with trio.move_on_after(0.05):
            await store.create("/ids/ID-", kind=Kind.EPHEMERAL, sequential=True)
        await until(lambda: count(direct, "/ids", 1), "the node is made")
        link.cut()
        link.answers_flow = True
        assert await store.create("/ids/ID-", kind=Kind.EPHEMERAL, sequential=True) == "/ids/ID-0000000001"
        await until(lambda: count(direct, "/ids", 1), "the node is deleted")
        assert await direct.children("/ids") == ["ID-0000000001"]
        # The same with a connection that stays.
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    await store.create("/ids/ID-", kind=Kind.EPHEMERAL, sequential=True)

                nursery.start_soon(ask, name="ask")
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
                scope.cancel()
        await store.create("/after")
        await until(lambda: count(direct, "/ids", 1), "the node is deleted")


async def count(store: ZooKeeperStore, path: str, number: int) -> bool:
    return len(await store.children(path)) == number


@pytest.mark.real_clock
async def test_watches_tell_what_happened_while_there_was_no_connection() -> None:
    async with through_proxy() as (store, direct, link):
        await store.create("/a")
        watch = store.watch("/a")
        await store.get("/a")
        link.cut(refuse=True)
        await direct.put("/a", b"new", 0)
        heard = False
        with trio.move_on_after(0.3):
            heard = bool(await watch.next())
        assert not heard, "told without a connection"
        link.cut()
        assert await watch.next() == Changed("/a")
        node = await store.get("/a")
        assert node is not None
        assert node.value == b"new"
        # And it goes on telling.
        for number in range(3):
            await direct.create(f"/a/{number}")
            assert await watch.next() == Changed("/a")
            assert str(number) in await store.children("/a")


@pytest.mark.real_clock
async def test_a_call_ends_at_its_time_while_nobody_answers() -> None:
    async with through_proxy(call_timeout_s=0.3) as (store, _, link):
        link.answers_flow = False
        started = trio.current_time()
        await raises(MetadataUnavailableError, store.get("/a"), "within")
        await raises(MetadataUnavailableError, store.create("/a"), "within")
        assert trio.current_time() - started < 3
        link.cut()
        link.answers_flow = True
        assert await store.get("/") is not None


# ------------------------------------------------------------------------------------------------ broken connections


def number_of(frame: bytes) -> int:
    """Return the number of a request or answer; not for the first frames of a connection."""
    return int.from_bytes(frame[:4], signed=True)


def numbers_of_requests(link: Proxy) -> list[int]:
    """Return a list that gets the number of each request that passes from now on."""
    numbers: list[int] = []

    def note(frame: bytes) -> Iterable[bytes]:
        if number_of(frame) > 0:
            numbers.append(number_of(frame))
        return (frame,)

    link.tamper_requests = note
    return numbers


class Breaks:
    """A change of answers, once from `begin` on: the first is held back, and `next_one` replaces it and the second."""

    def __init__(self, link: Proxy, next_one: Callable[[bytes, bytes], Iterable[bytes]]) -> None:
        self._link = link
        self._next_one = next_one
        self._kept = b""
        self.done = False

    def begin(self) -> None:
        self._link.tamper_answers = self._tamper

    def _tamper(self, frame: bytes) -> Iterable[bytes]:
        if self.done or number_of(frame) <= 0:
            return (frame,)
        if not self._kept:
            self._kept = frame
            return ()
        self.done = True
        return self._next_one(self._kept, frame)


BREAKS: dict[str, Callable[[bytes, bytes], Iterable[bytes]]] = {
    "lost": lambda first, second: (second,),
    "overtaken": lambda first, second: (second, first),
    "twice": lambda first, second: (first, first, second),
    "of nobody": lambda first, second: (bytes.fromhex("fffffffc") + first[4:], second),  # as one to credentials
}


@pytest.mark.real_clock
@BOTH
@pytest.mark.parametrize("how", BREAKS)
async def test_an_answer_out_of_turn_costs_the_connection_and_neither_the_session_nor_an_answer(
    policy: SessionExpiredPolicy, how: str, log_events: list[log.Event]
) -> None:
    async with through_proxy(policy=policy, framed=True) as (store, _, link):
        await store.create("/me", kind=Kind.EPHEMERAL)
        for name in "abcdef":
            await store.create(f"/{name}", name.encode())
        session, breaks = store.session, Breaks(link, BREAKS[how])
        outcome: list[Any] = []

        async def put() -> None:
            try:
                outcome.append(await store.put("/a", b"new", 0))
            except MetadataUnavailableError as error:
                outcome.append(error)

        async def read(name: str) -> None:
            assert await store.get(f"/{name}") == Node(name.encode(), 0), "the answer to another request"

        breaks.begin()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, name="put")
            await trio.testing.wait_all_tasks_blocked()
            for name in "bcdef":
                nursery.start_soon(read, name, name=name)
        assert breaks.done
        if how == "twice":
            assert outcome == [1], "it was answered before that"
        else:
            assert isinstance(outcome[0], MetadataUnavailableError), outcome
        assert await store.get("/a") == Node(b"new", 1)
        assert await store.get("/me") == Node(b"", 0, ephemeral=True, mine=True)
        assert store.session == session
        assert not store.expired.is_set()
        losses = [event for event in log_events if event["event"] == "metadata connection lost"]
        assert len(losses) == 1
        assert " came " in losses[0]["reason"], "it says what is wrong"


@pytest.mark.real_clock
@BOTH
@pytest.mark.expect_error("kazoo failed")
async def test_an_answer_that_breaks_kazoo_costs_the_connection_and_not_the_session(
    policy: SessionExpiredPolicy,
) -> None:
    """Covers a frame too short for an answer, an unknown error code, and an event that is cut."""

    def cut_short(first: bytes, second: bytes) -> Iterable[bytes]:
        return (first[:3], second)

    def unknown_error(first: bytes, second: bytes) -> Iterable[bytes]:
        return (first[:12] + (-999).to_bytes(4, signed=True), second)

    def strange_event(first: bytes, second: bytes) -> Iterable[bytes]:
        return ((-1).to_bytes(4, signed=True) + bytes(12) + b"\x7f", second)

    async with through_proxy(policy=policy, framed=True) as (store, _, link):
        await store.create("/me", kind=Kind.EPHEMERAL)
        await store.create("/a", b"a")
        session = store.session
        for version, how in enumerate((cut_short, unknown_error, strange_event)):
            breaks = Breaks(link, how)
            breaks.begin()
            async with trio.open_nursery() as nursery:

                async def put(version: int) -> None:
                    await raises(MetadataUnavailableError, store.put("/a", b"new", version))

                nursery.start_soon(put, version, name="put")
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(store.children, "/", name="children")
            assert breaks.done
            assert await store.get("/a") == Node(b"new", version + 1)
        assert await store.get("/me") == Node(b"", 0, ephemeral=True, mine=True)
        assert store.session == session
        assert not store.expired.is_set()
        assert store._session.calls.in_flight == 0, "a call that is never answered keeps its place"


@pytest.mark.real_clock
async def test_an_answer_that_is_not_understood_is_an_unknown_outcome_of_that_call_alone(
    expect_error: Callable[[str], None],
) -> None:
    expect_error("kazoo failed")
    async with through_proxy(framed=True) as (store, _, link):
        await store.create("/a")
        breaks = Breaks(link, lambda first, second: (first[:20], second))
        breaks.begin()
        async with trio.open_nursery() as nursery:

            async def put() -> None:
                await raises(MetadataUnavailableError, store.put("/a", b"new", 0), "cannot understand")

            nursery.start_soon(put, name="put")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(store.children, "/", name="children")
        assert await store.get("/a") == Node(b"new", 1)


@pytest.mark.real_clock
@BOTH
async def test_a_broken_connection_whose_session_is_gone_too_begins_a_new_one_or_ends_the_store(
    policy: SessionExpiredPolicy, log_events: list[log.Event]
) -> None:
    async with through_proxy(policy=policy, framed=True, session_timeout_s=0.6) as (store, direct, link):
        await store.create("/me", kind=Kind.EPHEMERAL)
        session = store.session

        def lose_and_refuse(first: bytes, second: bytes) -> Iterable[bytes]:
            link.refuse()
            return (second,)

        Breaks(link, lose_and_refuse).begin()
        store.watch("/me")  # two requests

        async def is_given_up() -> bool:
            return await direct.get("/me") is None

        await until(is_given_up, "the server gives the session up")
        link.refuse(False)
        if policy is RECONNECT:
            await store.create("/me", kind=Kind.EPHEMERAL)
            assert store.session != session
            assert not store.expired.is_set()
        else:
            await store.expired.wait()
            await raises(SessionExpiredError, store.get("/"), "the session has expired")
            ends = [event for event in log_events if event["event"] == "metadata session ended"]
            assert [event["reason"] for event in ends] == ["the session has expired"]


@pytest.mark.real_clock
async def test_a_number_of_a_request_never_comes_again_in_a_session() -> None:
    """Otherwise a write of one connection could answer a request of the next one, at another server."""
    async with through_proxy(framed=True) as (store, _, link):
        numbers = numbers_of_requests(link)
        session = store.session
        await store.create("/a")
        for _ in range(3):
            link.cut()
            for _ in range(5):
                assert await store.get("/a") is not None
        assert store.session == session
        assert len(numbers) >= 16
        assert numbers == sorted(set(numbers))


@pytest.mark.real_clock(seconds=STORY_S)
async def test_a_late_commit_of_a_former_connection_answers_no_request_of_the_next(tmp_path: Path) -> None:
    """A write hangs at the leader, because the other voter is paused. The session moves to an observer and sends other
    requests there. With kazoo alone, the delete is reported as done, and the put is never answered."""
    ports = [(free_port(), free_port()) for _ in range(3)]
    kinds = ("participant", "participant", "observer")
    settings = "initLimit=60\nsyncLimit=60\nstandaloneEnabled=false\n" + "".join(
        f"server.{number}=127.0.0.1:{peer}:{vote}:{kind}\n"
        for number, ((peer, vote), kind) in enumerate(zip(ports, kinds, strict=True), 1)
    )
    members = [
        ZooKeeperProcess(tmp_path / f"zk{number}", tick_ms=500, settings=settings, number=number)
        for number in (1, 2, 3)
    ]
    members[2].conf.write_text(members[2].conf.read_text() + "peerType=observer\n")
    try:
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(trio.to_thread.run_sync, member.start, name="start")
        voters, observer = members[:2], members[2]
        leader, other = voters if voters[0].mode() == "leader" else voters[::-1]
        async with proxy(leader.port, framed=True) as link:
            numbers = numbers_of_requests(link)
            config = replace(leader.config("/", session_timeout_s=9.0), servers=(("127.0.0.1", link.port),))
            async with opened(config) as store:
                await store.create("/kept", b"x")
                session = store.session

                async def hangs(at: ZooKeeperProcess) -> bool:
                    return await trio.to_thread.run_sync(at.monitor, "zk_outstanding_requests") > 0

                async def once_moved(late: Callable[[], Awaitable[Any]], new: Callable[[], Awaitable[Any]]) -> Any:
                    outcome: list[Any] = []

                    async def ask(call: Callable[[], Awaitable[Any]]) -> None:
                        try:
                            outcome.append(await call())
                        except Exception as error:
                            outcome.append(error)

                    link.target_port = leader.port
                    link.cut()
                    await store.get("/")
                    other.pause()
                    try:
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(ask, late, name="late")
                            await until(partial(hangs, leader), "the write hangs")
                            number = numbers[-1]
                            numbers.clear()
                            link.target_port = observer.port
                            link.cut()
                            while len(numbers) < number - 1:
                                await store.get("/kept")
                            nursery.start_soon(ask, new, name="new")
                            await until(partial(hangs, observer), "the other write hangs")
                            other.resume()
                    finally:
                        other.resume()
                    assert isinstance(outcome[0], MetadataUnavailableError), outcome
                    assert store.session == session
                    return outcome[1]

                async def put() -> int:
                    return await store.put("/kept", b"y", 0)

                async def delete() -> None:
                    await store.delete("/kept", 7)

                async def make() -> list[str]:
                    return await store.multi([Create(path="/late")])

                async def put_wrongly() -> int:
                    return await store.put("/kept", b"z", 7)

                assert isinstance(await once_moved(put, delete), BadVersionError)
                assert await store.get("/kept") == Node(b"y", 1)
                assert isinstance(await once_moved(make, put_wrongly), BadVersionError)
                assert await store.children("/") == ["kept", "late", "zookeeper"]
    finally:
        for member in members:
            member.kill()


# --------------------------------------------------------------------------------------------------- killed and paused


@pytest.mark.real_clock(seconds=STORY_S)
async def test_a_session_outlives_a_killed_and_a_paused_server(own_server: ZooKeeperProcess) -> None:
    server = own_server
    config = server.config(own_root(), session_timeout_s=LONG_SESSION_S, call_timeout_s=START_DEADLINE_S)
    async with opened(config) as store, opened(replace(config, call_timeout_s=0.5)) as other:
        await store.create("/me", b"x", kind=Kind.EPHEMERAL)
        watch = other.watch("/kept")
        server.kill()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.create, "/kept", b"y", name="create")
            await trio.to_thread.run_sync(server.start)
        session = store.session
        assert await store.get("/me") == Node(b"x", 0, ephemeral=True, mine=True)
        await watch.next()
        assert await store.get("/kept") == Node(b"y", 0)

        async with trio.open_nursery() as nursery:
            server.pause()
            try:
                nursery.start_soon(store.put, "/kept", b"z", 0, name="put")
                await raises(MetadataUnavailableError, other.get("/kept"))
            finally:
                server.resume()
        await other.sync()
        assert await other.get("/kept") == Node(b"z", 1)
        assert await store.get("/me") == Node(b"x", 0, ephemeral=True, mine=True)
        assert store.session == session


@pytest.mark.real_clock
async def test_a_connection_that_a_starting_server_never_answers_does_not_cost_the_session() -> None:
    """A server that has no database yet cannot close a connection, and does not answer it either."""
    silent: list[trio.SocketStream] = []
    config = shared_server().config(own_root())

    async def serve(stream: trio.SocketStream) -> None:
        if not silent:
            silent.append(stream)
            async with stream:
                await trio.sleep_forever()
        server = await trio.open_tcp_stream("127.0.0.1", shared_server().port)
        async with server, trio.open_nursery() as pipes:
            pipes.start_soon(pipe, stream, server)
            await pipe(server, stream)
            pipes.cancel_scope.cancel()

    async def pipe(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        async for data in source:
            await sink.send_all(data)

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        # (with all of the session's time for the first connection this would be too late)
        config = replace(config, servers=(("127.0.0.1", port),), session_timeout_s=12, connect_timeout_s=11)
        async with opened(config) as store:
            await store.create("/me", kind=Kind.EPHEMERAL)
        assert silent
        nursery.cancel_scope.cancel()


# ------------------------------------------------------------------------------------------------------ lost sessions


@pytest.mark.real_clock
async def test_an_expired_session_is_the_end_of_the_store_under_shutdown() -> None:
    async with opened(shared_server().config(own_root())) as store:
        await store.create("/me", kind=Kind.EPHEMERAL)
        watch = store.watch("/me")
        await expire(store, shared_server().port)
        await store.expired.wait()
        await raises(SessionExpiredError, store.get("/me"))
        await raises(SessionExpiredError, watch.next())
        await raises(SessionExpiredError, store.watch("/me").next())


@pytest.mark.real_clock
async def test_under_reconnect_a_new_session_begins_and_what_is_kept_is_made_anew() -> None:
    config = shared_server().config(own_root(), policy=RECONNECT)
    async with opened(config) as store, opened(config) as other, trio.open_nursery() as nursery:
        sessions: list[int] = []
        store.on_new_session(sessions.append)
        first = store.session
        await store.create("/other", kind=Kind.EPHEMERAL)
        await nursery.start(ephemerals.keep, store, "/me", b"here")
        watch = store.watch("/somewhere")
        for _ in range(2):
            await expire(store, shared_server().port)
            await watch.next()  # every watch is told

            async def is_back() -> bool:
                node = await store.get("/me")
                return node == Node(b"here", 0, ephemeral=True, mine=True)

            await until(is_back, "the node is made anew")
        assert len(sessions) == 2
        assert sessions[-1] == store.session != first
        assert await other.get("/other") is None
        assert not store.expired.is_set()
        nursery.cancel_scope.cancel()


@pytest.mark.real_clock
async def test_a_bookie_stays_registered_over_a_lost_session() -> None:
    config = shared_server().config(own_root(), policy=RECONNECT)
    async with opened(config) as store, opened(config) as other, trio.open_nursery() as nursery:
        await nursery.start(bookies.keep_registered, store, "127.0.0.1:3181", INFO)
        await expire(store, shared_server().port)

        async def is_back() -> bool:
            return await bookies.available(other) == ["127.0.0.1:3181"]

        await until(is_back, "the bookie is registered")
        assert await bookies.service_info(other, "127.0.0.1:3181") == INFO
        nursery.cancel_scope.cancel()


@pytest.mark.real_clock
async def test_the_node_of_an_own_former_session_is_waited_for() -> None:
    """A killed bookie starts again while its old session still lives."""
    async with through_proxy(session_timeout_s=1.0) as (store, direct, link):
        await bookies.register(store, "bk1:3181", INFO)
        link.cut(refuse=True)
        await raises(NodeExistsError, bookies.register(direct, "bk1:3181", INFO, wait_s=0.1), "another session")
        await bookies.register(direct, "bk1:3181", INFO, wait_s=PATIENCE_S)
        node = await direct.get(bookies.registration_path("bk1:3181"))
        assert node is not None
        assert node.mine


# --------------------------------------------------------------------------------------------------------- two clients


@pytest.mark.real_clock
async def test_of_two_clients_one_wins_and_both_see_it() -> None:
    config = shared_server().config(own_root())
    async with opened(config) as one, opened(config) as two:
        await one.create("/a")
        watches = [store.watch("/a") for store in (one, two)]
        outcomes: list[str] = []

        async def put(store: ZooKeeperStore, name: str) -> None:
            try:
                await store.put("/a", name.encode(), 0)
                outcomes.append(name)
            except BadVersionError:
                node = await store.get("/a")
                assert node is not None
                assert node.version == 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, one, "one", name="one")
            nursery.start_soon(put, two, "two", name="two")
        assert len(outcomes) == 1
        for store, watch in zip((one, two), watches, strict=True):
            await watch.next()
            await store.sync("/a")
            assert await store.get("/a") == Node(outcomes[0].encode(), 1)


@pytest.mark.real_clock
async def test_many_calls_at_once_are_all_answered() -> None:
    config = shared_server().config(own_root())
    async with opened(config) as store:
        numbers: list[int] = []

        async def work(number: int) -> None:
            path = await store.create("/many/n-", b"%d" % number, sequential=True, make_parents=True)
            numbers.append(int(path[-10:]))
            assert await store.get(path) == Node(b"%d" % number, 0)

        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(work, number, name=f"{number}")
        assert sorted(numbers) == list(range(1000))


@pytest.mark.real_clock
async def test_a_multi_makes_parents_that_two_clients_want_at_once() -> None:
    config = shared_server().config(own_root())
    async with opened(config) as one, opened(config) as two:
        await one.create("/count", b"")

        async def make(store: ZooKeeperStore, number: int) -> None:
            put = Put(path="/count", value=b"%d" % number, version=ANY_VERSION)
            await store.multi([put, Create(path=f"/x/y/{number % 5}/z{number}", make_parents=True)])

        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(make, (one, two)[number % 2], number, name=f"{number}")
        found = [name for folder in await one.children("/x/y") for name in await one.children(f"/x/y/{folder}")]
        assert sorted(found) == sorted(f"z{number}" for number in range(60))
        node = await one.get("/count")
        assert node is not None
        assert node.version == 60, "each multi was done once"


# ------------------------------------------------------------------------------------------------------ rights, bounds


@pytest.mark.real_clock
async def test_what_is_made_securely_others_may_only_read() -> None:
    open_to_all = shared_server().config(own_root())
    secure = replace(open_to_all, auth=(("digest", "quire:secret"),), secure=True)
    async with opened(open_to_all) as other, opened(secure) as store:
        await store.create("/a/b", b"x", make_parents=True)
        assert await other.get("/a/b") == Node(b"x", 0)
        for call in (
            lambda: other.put("/a/b", b"y", 0),
            lambda: other.delete("/a/b"),
            lambda: other.create("/a/c"),
            lambda: other.multi([Put(path="/a/b", value=b"y", version=0)]),
        ):
            await raises(NotAllowedError, call())
        assert await store.put("/a/b", b"y", 0) == 1


@pytest.mark.real_clock
async def test_a_request_above_the_servers_bound_is_refused_before_it_is_sent() -> None:
    config = shared_server().config(own_root())
    async with opened(config) as store:
        session = store.session
        for size in range(0xFFFFF - 200, 0xFFFFF):
            try:
                store._requests.commit((Create(path="/a", value=bytes(size)),), single=True)
            except ValueTooLargeError:
                break
        await store.create("/a", bytes(size - 1))
        await raises(ValueTooLargeError, store.create("/b", bytes(size)), r"jute\.maxbuffer")
        await raises(ValueTooLargeError, store.multi([Create(path=f"/{name}", value=bytes(600_000)) for name in "bc"]))
        node = await store.get("/a")
        assert node is not None
        assert len(node.value) == size - 1
        assert store.session == session


@pytest.mark.real_clock(seconds=STORY_S)
async def test_watches_that_nobody_has_are_taken_back_from_the_server(own_server: ZooKeeperProcess) -> None:
    async with opened(replace(own_server.config(own_root()), idle_watches_max=5)) as store:
        kept = store.watch("/kept")
        for number in range(20):
            await store.create(f"/{number}")
            store.watch(f"/{number}").close()
        await store.sync()
        # 5 idle ones and the kept one: one arming for each node, and one for each list of children there is.
        assert own_server.monitor("zk_watch_count") == 11
        link = store._session.link._client
        assert len(link._data_watchers) == 6
        assert len(link._child_watchers) == 5
        watch = store.watch("/3")
        await store.put("/3", b"x", 0)
        assert await watch.next() == Changed("/3")
        await store.create("/kept")
        assert await kept.next() == Changed("/kept")


@pytest.mark.real_clock
async def test_a_missing_chroot_is_refused_unless_it_is_to_be_made() -> None:
    config = replace(shared_server().config(own_root() + "/deeper"), make_chroot=False)
    await raises(NoNodeError, open_store(real_world(), config), "deeper")
    async with opened(replace(config, make_chroot=True)) as store:
        await store.create("/a")
    async with opened(config) as store:
        assert await store.children("/") == ["a"]


@pytest.mark.real_clock
async def test_a_server_that_is_not_there_is_said_to_be_so_in_time() -> None:
    config = replace(shared_server().config("/"), servers=(("127.0.0.1", free_port()),), connect_timeout_s=0.3)
    with pytest.raises(MetadataUnavailableError, match=r"ZooKeeper does not answer at 127\.0\.0\.1"):
        await open_store(real_world(), config)
