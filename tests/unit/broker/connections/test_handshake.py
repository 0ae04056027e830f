"""The handshake with authentication, its refresh, and what is refused before it (handshake.py, server.py)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from broker.connections.connection import Connection
from broker.replies import U64_MAX
from broker.security.authentication.credentials import DATA_BYTES_MAX
from broker.security.principal import Principal
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.credentials import TLS, authentication, certificate, token
from tests.support.effort import effort
from tests.support.pulsar_frames import C, frame
from tests.support.waiting import until
from tests.unit.broker.peers import Peer, Room, in_broker


@asynccontextmanager
async def secured(**options: Any) -> AsyncIterator[Room]:
    """Run a broker that authenticates its clients."""
    async with in_broker(authentication=authentication(**options)) as room:
        yield room


def connect(method: str | None = "token", data: str | bytes = "", **more: Any) -> C:
    body = pb.CommandConnect(client_version="test", protocol_version=20, **more)
    if method is not None:
        body.auth_method_name = method
    body.auth_data = data if isinstance(data, bytes) else data.encode()
    return C(type=C.CONNECT, connect=body)


REFRESHES = pb.FeatureFlags(supports_auth_refresh=True)


async def refused(room: Room, command: C, code: pb.ServerError = pb.AuthenticationError) -> str:
    """Send CONNECT, which must be answered with this error and the end; return the error's text."""
    peer = room.open()
    peer.send(command)
    error = (await peer.expect(C.ERROR)).error
    await peer.closed()
    assert (error.request_id, error.error) == (U64_MAX, code)
    return error.message


async def login(room: Room, command: C) -> tuple[Peer, Connection]:
    peer = room.open()
    peer.send(command)
    answer = (await peer.expect(C.CONNECTED)).connected
    assert answer.feature_flags.supports_auth_refresh
    [*_, connection] = room.broker.connections
    return peer, connection


def now(room: Room) -> float:
    return room.broker.context.world.clock.wall_ms() / 1000


async def test_without_authentication_there_are_no_roles_and_no_refresh() -> None:
    async with in_broker() as room:
        peer = room.open()
        peer.send(connect("token", "anything", original_principal="admin"))
        answer = (await peer.expect(C.CONNECTED)).connected
        assert not answer.feature_flags.supports_auth_refresh
        [connection] = room.broker.connections
        assert connection.principal is None
        peer.send(C(type=C.AUTH_RESPONSE, authResponse=pb.CommandAuthResponse()))
        assert (await peer.error())[0] == pb.NotAllowedError
        assert await peer.lookup()


async def test_right_credentials_give_the_connection_its_role() -> None:
    async with secured(anonymous_role="guest", proxy_roles=("proxy",)) as room:
        for command, principal in (
            (connect("token", token()), Principal("alice")),
            (connect("basic", "admin:123456"), Principal("admin")),
            (connect(None), Principal("guest")),
            (connect("token", token("proxy"), original_principal="bob"), Principal("proxy", "bob")),
        ):
            peer, connection = await login(room, command)
            assert connection.principal == principal
            assert (await peer.lookup()).response == pb.CommandLookupTopicResponse.Connect


async def test_old_clients_name_their_method_by_a_number() -> None:
    async with secured(anonymous_role="guest") as room:
        _, connection = await login(room, connect(None, auth_method=pb.AuthMethodNone))
        assert connection.principal == Principal("guest")


async def test_the_role_of_a_certificate_is_taken_from_the_stream() -> None:
    async with secured(providers=(TLS,)) as room:
        await refused(room, connect("tls", certificate("client")))
        peer = room.open()
        peer.stream.peer_certificate = certificate("client")
        peer.send(connect("tls"))
        await peer.expect(C.CONNECTED)
        [*_, connection] = room.broker.connections
        assert connection.principal == Principal("client")


async def test_wrong_credentials_are_refused_alike_and_closed(log_events: list[dict[str, Any]]) -> None:
    async with secured() as room:
        texts = {
            await refused(room, command)
            for command in (
                connect("token", "x"),
                connect("token", token(exp=1)),
                connect("token", token(key=bytes(64))),
                connect("basic", token()),
                connect("basic", "admin:wrong"),
                connect("basic", "nobody:123456"),
                connect("unknown", token()),
                connect("none"),
                connect(None),
                connect("tls"),
            )
        }
        assert texts == {"Failed to authenticate"}
        assert not room.broker.connections
        assert room.broker.context.connects == 0
        reasons = [str(each.get("reason")) for each in log_events if each["event"] == "authentication failed"]
        assert len(reasons) == 10
        assert "the token has expired" in reasons


async def test_roles_that_do_not_go_together_are_refused_as_such() -> None:
    async with secured(proxy_roles=("proxy",)) as room:
        for command in (
            connect("token", token("proxy")),
            connect("token", token(), original_principal="admin"),
            connect("token", token("proxy"), original_principal="proxy"),
        ):
            assert await refused(room, command, pb.AuthorizationError) == "Invalid roles."


@pytest.mark.parametrize(
    "command",
    [
        C(type=C.PING, ping=pb.CommandPing()),
        C(type=C.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="t", request_id=1)),
        C(type=C.PARTITIONED_METADATA, partitionMetadata=pb.CommandPartitionedTopicMetadata(topic="t", request_id=1)),
        C(type=C.AUTH_RESPONSE, authResponse=pb.CommandAuthResponse()),
        C(type=C.PRODUCER, producer=pb.CommandProducer(topic="t", producer_id=1, request_id=1)),
    ],
    ids=lambda command: C.Type.Name(command.type),
)
async def test_nothing_is_served_before_connected(command: C) -> None:
    async with secured() as room:
        peer = room.open()
        for _ in range(1000):
            peer.send(command)
        await peer.closed()
        peer.take()
        assert peer.stream.sent == b""
        assert not room.broker.connections


async def test_a_large_frame_before_connected_is_refused_from_its_header_and_later_accepted() -> None:
    announced = (1 << 20).to_bytes(4, "big") + bytes(4)
    async with secured() as room:
        peer = room.open()
        peer.stream.arrive(announced)
        await trio.testing.wait_all_tasks_blocked()
        assert peer.stream.closed, "at once, and not when the time for CONNECT is over"
        peer, connection = await login(room, connect("token", token()))
        peer.stream.arrive(announced + bytes(300 << 10))
        await until(lambda: connection._buffer.buffered > 300 << 10)
        assert not connection.closed


async def test_the_largest_credentials_fit_into_a_connect() -> None:
    most = "x" * DATA_BYTES_MAX
    async with secured() as room:
        command = connect("token", most, original_auth_data=most, original_principal="x" * 1000)
        assert await refused(room, command) == "Failed to authenticate"


async def test_what_follows_a_refused_connect_is_not_served() -> None:
    async with secured() as room:
        peer = room.open()
        lookup = C(type=C.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="t", request_id=1))
        peer.stream.arrive(frame(connect("token", "x")) + frame(lookup) + frame(connect("token", token())))
        assert (await peer.error())[0] == pb.AuthenticationError
        await peer.closed()
        peer.take()
        assert not peer._frames
        assert room.broker.context.connects == 0


async def test_many_connects_in_one_chunk_are_checked_once() -> None:
    """Each check of a password takes a millisecond: a chunk has room for a thousand of them."""
    async with secured() as room:
        peer = room.open()
        peer.stream.arrive(frame(connect("basic", "admin:wrong")) * 1000 + frame(connect("token", token())))
        assert (await peer.error())[0] == pb.AuthenticationError
        await peer.closed()
        checks = room.broker.context.authentication
        assert checks is not None
        assert (checks.failures.total(), checks.successes.total()) == (1, 0)


async def test_a_second_connect_cannot_change_the_role() -> None:
    async with secured() as room:
        peer, connection = await login(room, connect("token", token()))
        peer.send(connect("token", token("admin")))
        await peer.closed()
        assert connection.principal == Principal("alice")


async def challenged(room: Room, **claims: Any) -> tuple[Peer, Connection]:
    """Return a connection that was asked for newer credentials."""
    peer, connection = await login(
        room, connect("token", token(exp=int(now(room)) + 100, **claims), feature_flags=REFRESHES)
    )
    with trio.fail_after(200):
        challenge = (await peer.expect(C.AUTH_CHALLENGE)).authChallenge
    assert challenge.challenge.auth_method_name == "token"
    assert challenge.challenge.auth_data == b"PulsarAuthRefresh"
    assert now(room) > 100
    return peer, connection


def response(data: str, method: str = "token") -> C:
    body = pb.CommandAuthResponse(client_version="test", protocol_version=20)
    body.response.auth_method_name = method
    body.response.auth_data = data.encode()
    return C(type=C.AUTH_RESPONSE, authResponse=body)


async def test_expired_credentials_are_replaced_on_the_connection() -> None:
    async with secured() as room:
        peer, connection = await challenged(room)
        peer.send(response(token(exp=int(now(room)) + 300)))
        assert await peer.silent(250)
        assert (await peer.lookup()).response == pb.CommandLookupTopicResponse.Connect
        assert connection.principal == Principal("alice")
        assert (await peer.expect(C.AUTH_CHALLENGE)).authChallenge


@pytest.mark.parametrize(
    ("role", "method"), [("admin", "token"), ("alice", "basic"), ("", "token")], ids=["role", "method", "no token"]
)
async def test_a_refresh_with_other_credentials_ends_the_connection(role: str, method: str) -> None:
    async with secured() as room:
        peer, connection = await challenged(room)
        peer.send(response(token(role) if role else "", method))
        assert (await peer.error())[0] == pb.AuthenticationError
        await peer.closed()
        assert connection.principal == Principal("alice")


async def test_a_refresh_that_does_not_come_ends_the_connection() -> None:
    async with secured() as room:
        peer, _ = await challenged(room)
        with trio.fail_after(70):
            while not peer.stream.closed:
                await trio.sleep(1)
                peer.take()


async def test_credentials_that_cannot_be_refreshed_end_the_connection() -> None:
    async with secured(proxy_roles=("proxy",)) as room:
        expiry = int(now(room)) + 100
        unable, _ = await login(room, connect("token", token(exp=expiry)))
        proxy, _ = await login(
            room, connect("token", token("proxy", exp=expiry), original_principal="a", feature_flags=REFRESHES)
        )
        staying, _ = await login(room, connect("token", token()))
        for seconds, open_still in ((95, True), (80, False)):
            async with trio.open_nursery() as nursery:
                for peer in (unable, proxy, staying):
                    nursery.start_soon(peer.silent, seconds)
            assert (unable.stream.closed, proxy.stream.closed) == (not open_still, not open_still)
        assert (unable.stream.closed, proxy.stream.closed, staying.stream.closed) == (True, True, False)


async def test_credentials_that_were_not_asked_for_end_the_connection() -> None:
    """Checking credentials costs time, so a client decides neither when nor how often it is done."""
    async with secured() as room:
        for first in (token(), token(exp=int(now(room)) + 1000)):
            peer, _ = await login(room, connect("token", first, feature_flags=REFRESHES))
            peer.send(response(token()))
            await peer.closed()


async def test_fuzzed_connects_are_refused_without_an_error_in_the_log(log_events: list[dict[str, Any]]) -> None:
    rng = random.Random(7)
    good = token().encode()
    methods = ("token", "token", "basic", "basic", "tls", "none", "", "x" * 300, "sasl", "\u20ac")
    connected = ended = 0
    connects = effort(quick=3000, full=10_000)
    async with secured(proxy_roles=("proxy",), verify_original=True) as room:
        for count in range(connects):
            data = bytearray(rng.choice((good, b"admin:123456", b"", rng.randbytes(rng.randrange(200)))))
            if data and rng.random() < 0.5:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            command = connect(rng.choice(methods), bytes(data))
            if rng.random() < 0.2:
                command.connect.original_principal = rng.choice(("proxy", "admin", "\u20ac"))
                command.connect.original_auth_data = rng.choice((good.decode(), "", "x:y"))
                command.connect.original_auth_method = rng.choice(methods)
            sent = bytearray(frame(command))
            if rng.random() < 0.3:
                sent[rng.randrange(8, len(sent))] ^= 1 << rng.randrange(8)
            peer = room.open()
            peer.stream.arrive(bytes(sent))
            await trio.testing.wait_all_tasks_blocked()
            peer.take()
            if peer.stream.closed:
                ended += 1
                assert [each.type for each, _ in peer._frames] in ([C.ERROR], [])
            else:
                connected += 1
                assert [each.type for each, _ in peer._frames] in ([C.CONNECTED], [])
                peer.stream.close()
            if count % 500 == 0:
                await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        assert connected + ended == connects
        assert connected > connects // 100
        assert ended > connects // 5
        assert not room.broker.connections
    shown = repr(log_events)
    assert good.decode() not in shown
    assert "123456" not in shown


async def test_a_credential_in_the_wrong_place_is_not_logged(log_events: list[dict[str, Any]]) -> None:
    async with secured() as room:
        for command in (
            connect("s3cret"),
            connect("token", "s3cret"),
            connect("basic", "admin:s3cret"),
            connect("basic", "s3cret"),
            connect("token", token(), original_principal="s3cret"),
        ):
            peer = room.open()
            peer.send(command)
            await peer.expect(C.ERROR)
        assert len([each for each in log_events if each["event"] == "authentication failed"]) == 5
        assert "s3cret" not in repr(log_events)


async def test_refused_clients_that_reconnect_cost_one_check_each_and_a_few_lines(
    log_events: list[dict[str, Any]],
) -> None:
    """Five hundred clients with passwords that were changed, reconnecting again and again within a minute."""
    times = effort(quick=4, full=20)
    async with secured() as room:
        checks = room.broker.context.authentication
        assert checks is not None
        for _ in range(times):
            for client in range(500):
                peer = room.open()
                peer.send(connect("basic", f"admin:wrong{client}"))
            await trio.testing.wait_all_tasks_blocked()
        assert not room.broker.connections
        assert sum(checks.failures.values()) == 500 * times
        assert checks.failures["AuthenticationProviderBasic", "basic", "INVALID_AUTH_DATA"] == 500
        good, _ = await login(room, connect("basic", "admin:123456"))
        assert not good.stream.closed
        written = len(log_events)
        await until(lambda: any(each["event"] == "lines left out" for each in log_events[written:]), within=90)
    lines = [each for each in log_events if each["event"] in ("authentication failed", "lines left out")]
    assert 10 < len(lines) < 15
    assert lines[-1]["count"] == 500 * times - 10


async def test_guessed_passwords_of_an_address_are_refused_unchecked_above_the_bound() -> None:
    async with secured(failures_per_address_max=50) as room:
        checks = room.broker.context.authentication
        assert checks is not None
        kept, _ = await login(room, connect("basic", "admin:123456"))
        for guess in range(300):
            room.open().send(connect("basic", f"admin:guess{guess}"))
        await trio.testing.wait_all_tasks_blocked()
        assert len(room.broker.connections) == 1
        assert checks.failures["AuthenticationProviderBasic", "basic", "INVALID_AUTH_DATA"] == 50
        assert checks.logins.unchecked == 250
        again, _ = await login(room, connect("basic", "admin:123456"))
        assert not again.stream.closed, "a client that was right before is served"
        assert not kept.stream.closed


async def test_a_flood_of_frames_that_are_none_writes_a_few_lines(room: Room, log_events: list[dict[str, Any]]) -> None:
    for _ in range(200):
        room.open().stream.arrive(b"\0\0\0\x01")
    await trio.testing.wait_all_tasks_blocked()
    assert not room.broker.connections
    assert len([each for each in log_events if each["event"] == "connection closed: protocol violation"]) == 10
