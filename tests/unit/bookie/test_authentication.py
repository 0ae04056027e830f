"""Authentication of bookies and their clients (bookie/sessions/authentication.py,
quire/ledger/bookies/authentication.py)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio

from bookie.bookie import Bookie
from bookie.server import serve_client
from bookie.sessions.authentication import (
    FRAME_MAX,
    AuthGate,
    CertificateRoles,
    Method,
    OfferedAuthentication,
    Passwords,
    role_of,
)
from bookie.sessions.start_tls import OfferedTls
from quire.ledger.bookies.authentication import BookieCredentials, authenticate, read_credentials
from quire.ledger.bookies.link_tcp import TcpLink
from quire.ledger.bookies.start_tls import start_tls
from quire.service.password_files import read_users
from quire.service.serve import serve_connections
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.auth import NO_AUTHENTICATION, PASSWORD_FILE, auth_message
from quire.wire.bookkeeper.v2 import Opcode, Rc
from quire.wire.bookkeeper.v2_messages import HEAD
from quire.world.doors import Stream, World
from quire.world.real import real_world
from quire.world.real_tls import TlsFiles
from quire.world.tls_sides import ClientTls, ServerTls
from tests.support.certificates import Authority
from tests.support.credentials import PASSWORD, USERS
from tests.unit.bookie.build import cluster, opened
from tests.unit.world.pipes import Pipe, pipe_pair

METHOD = Passwords(read_users(USERS.encode()))
KNOWN = BookieCredentials("admin", PASSWORD)
WRONG = BookieCredentials("admin", "opensesame")
AUTH_3 = v3.auth_request(5, PASSWORD_FILE, KNOWN.payload())
KEY = bytes(20)
ENTRY = b"\x00" * 7 + b"\x01" + bytes(24) + b"data"
"""An entry of ledger 1 with the id 0."""


def frame_2(opcode: Opcode, body: bytes) -> bytes:
    return HEAD.pack(4 + len(body), v2.header(opcode)) + body


AUTH_2 = frame_2(Opcode.AUTH, auth_message(PASSWORD_FILE, KNOWN.payload()))
ADD_2 = v2.add_head(len(ENTRY), KEY) + ENTRY
ADD_3 = b"".join(
    b"".join(frame) if isinstance(frame, tuple) else bytes(frame)
    for frame in v3.add_requests(3, 1, range(1), KEY, [ENTRY], 0, 0)
)


# --- decisions


def answered(*frames: bytes, method: Method = METHOD, certificate: bytes | None = None) -> tuple[AuthGate, list[Any]]:
    gate = AuthGate(method, certificate)
    answers: list[Any] = []
    for frame in frames:
        answer = gate.answer(frame)
        if answer:
            answers += v3.decode_responses(answer) if v3.is_version_3(answer) else v2.decode_responses(answer)
    return gate, answers


def test_a_right_password_authenticates_in_both_versions() -> None:
    gate, answers = answered(AUTH_3)
    assert (gate.role, gate.refused) == ("admin", "")
    assert answers == [v3.Reply(5, v3.AuthAnswer(Rc.OK, PASSWORD_FILE, b""))]
    gate, answers = answered(AUTH_2)
    assert (gate.role, gate.refused) == ("admin", "")
    assert answers == [v2.AuthResponse(auth_message(PASSWORD_FILE, b""))]


@pytest.mark.parametrize(
    "payload", [b"", b"admin", b"admin:wrong", b"nobody:123456", b"\xff:\xff", b"admin:" + b"1" * 300]
)
@pytest.mark.parametrize("plugin", [PASSWORD_FILE, NO_AUTHENTICATION, "", "BookieAuthZFactory"])
def test_anything_else_is_refused_and_ends_the_connection(payload: bytes, plugin: str) -> None:
    gate, answers = answered(v3.auth_request(5, plugin, payload))
    assert gate.role == ""
    assert gate.refused
    assert answers == [v3.Reply(5, v2.OtherResponse(v3.Operation.AUTH, Rc.UNAUTHORIZED, -1, -1))]
    gate, answers = answered(frame_2(Opcode.AUTH, auth_message(plugin, payload)))
    assert gate.role == ""
    assert gate.refused
    assert answers == []


def test_the_right_password_of_another_plug_in_is_refused() -> None:
    gate, _ = answered(v3.auth_request(5, NO_AUTHENTICATION, KNOWN.payload()))
    assert gate.refused


REQUESTS_3 = {
    "add": ADD_3,
    "read": v3.read_request(3, 1, 0),
    "fence": v3.read_request(3, 1, -1, v2.DO_FENCING, KEY),
    "write lac": v3.write_lac_request(3, 1, 0, KEY, bytes(40)),
    "read lac": v3.read_lac_request(3, 1),
    "force": v3.force_request(3, 1),
    "list": v3.list_of_entries_request(3, 1),
    "info": v3.bookie_info_request(3, 3),
}


@pytest.mark.parametrize("request_of", REQUESTS_3)
def test_other_requests_of_version_3_are_unauthorized_and_the_connection_stays(request_of: str) -> None:
    gate, answers = answered(REQUESTS_3[request_of], AUTH_3)
    first, last = answers
    assert getattr(first, "outcome", first).rc == Rc.UNAUTHORIZED
    assert last.outcome.rc == Rc.OK
    assert gate.role == "admin"


def test_adds_and_reads_of_version_2_are_unauthorized_and_others_end_the_connection() -> None:
    _, answers = answered(ADD_2, v2.read_request(1, 7), v2.read_request(1, -1, v2.DO_FENCING, KEY))
    assert answers == [
        v2.AddAcks(Rc.UNAUTHORIZED, 1, 0, 0),
        v2.ReadResponse(Rc.UNAUTHORIZED, 1, 7, memoryview(b"")),
        v2.ReadResponse(Rc.UNAUTHORIZED, 1, -1, memoryview(b"")),
    ]
    gate, answers = answered(v2.batch_read_request(1, 0, 1, 10, 100))
    assert gate.refused
    assert answers == []
    gate, _ = answered(frame_2(Opcode.AUTH, b"\xff\xff"))
    assert gate.refused


def test_start_tls_after_the_beginning_is_a_bad_request() -> None:
    gate, [answer] = answered(v3.start_tls_request(3))
    assert answer.outcome.rc == Rc.BAD_REQUEST
    assert gate.role == ""


def certificate(tmp_path: Path, unit: str | None) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    pair = Authority(tmp_path).issue("client", unit=unit, file="client")
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("unit", "role"),
    [
        ("0:broker", "broker"),
        ("1:cluster;0: broker ,other", "broker"),
        ("0:other,broker", "other"),
        ("1:broker", ""),
        ("broker", ""),
        ("0:", ""),
        (None, ""),
    ],
)
def test_the_role_of_a_certificate_is_the_first_of_its_unit(tmp_path: Path, unit: str | None, role: str) -> None:
    shown = certificate(tmp_path, unit)
    found = role_of(shown)
    assert found == role or unit is None
    method = CertificateRoles({"broker", "auditor"})
    assert (AuthGate(method, shown).role == "broker") == (role == "broker")
    assert AuthGate(method, None).role == ""
    assert AuthGate(method, b"no certificate").role == ""


def test_a_client_without_an_authorized_role_can_do_nothing_with_a_password() -> None:
    method = CertificateRoles({"broker"})
    gate, answers = answered(v3.auth_request(5, method.plugin, KNOWN.payload()), method=method)
    assert gate.role == ""
    assert gate.refused
    assert answers[0].outcome.rc == Rc.UNAUTHORIZED


# --- a bookie


@asynccontextmanager
async def served(world: World, bookie: Bookie, **options: Any) -> AsyncIterator[Pipe]:
    """Serve one connection; yield the client's end."""
    near, far = pipe_pair()
    options.setdefault("authentication", OfferedAuthentication(METHOD, 5))

    async def serve() -> None:
        try:
            await serve_client(bookie, far, **options)
        finally:
            far.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield near
        near.close()


@pytest.fixture
async def bookie(world: World) -> AsyncIterator[Bookie]:
    from quire.metadata.local.memory import MemoryTree

    tree = MemoryTree()
    await cluster(tree, world)
    async with opened(world, tree) as made:
        yield made


async def frame_from(stream: Stream) -> bytes:
    """Receive one whole frame; empty at the end of the connection."""
    received = bytearray()
    with trio.fail_after(60):
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            left = 4 - len(received) if len(received) < 4 else 4 + int.from_bytes(received[:4], "big") - len(received)
            buffer = memoryview(bytearray(left))
            count = await stream.receive_into(buffer)
            if not count:
                return b""
            received += buffer[:count]
    return bytes(received)


@pytest.mark.parametrize("auth", [AUTH_2, AUTH_3])
@pytest.mark.parametrize("add", [ADD_2, ADD_3])
async def test_requests_right_behind_a_right_auth_are_served(world, bookie, auth: bytes, add: bytes) -> None:
    async with served(world, bookie) as near:
        near.send_nowait((auth + add,))
        await frame_from(near)
        answer = await frame_from(near)
        decode = v3.decode_responses if add is ADD_3 else v2.decode_responses
        assert decode(answer) == [v2.AddAcks(Rc.OK, 1, 0, 0)]


async def test_nothing_is_stored_for_a_client_that_is_not_authenticated(world, bookie) -> None:
    async with served(world, bookie) as near:
        near.send_nowait((ADD_3,))
        assert v3.decode_responses(await frame_from(near)) == [v2.AddAcks(Rc.UNAUTHORIZED, 1, 0, 0)]
        near.send_nowait((v3.auth_request(1, PASSWORD_FILE, b"admin:wrong") + ADD_3,))
        await frame_from(near)
        assert await frame_from(near) == b"", "the connection ends"
    assert bookie.storage.master_key(1) is None


@pytest.mark.parametrize("sent", [b"", b"\x00\x00", ADD_2])
async def test_a_client_that_does_not_authenticate_in_time_is_disconnected(world, bookie, sent: bytes) -> None:
    async with served(world, bookie) as near:
        near.send_nowait((sent,))
        if sent is ADD_2:
            await frame_from(near)
        since = trio.current_time()
        assert await frame_from(near) == b""
        assert trio.current_time() - since == pytest.approx(5, abs=0.5)


@pytest.mark.parametrize("length", [FRAME_MAX + 1, 3, 0, (1 << 31) - 1, (1 << 32) - 1])
async def test_a_frame_that_is_too_long_or_none_ends_the_connection_at_once(world, bookie, length: int) -> None:
    async with served(world, bookie) as near:
        near.send_nowait((length.to_bytes(4, "big"),))
        since = trio.current_time()
        assert await frame_from(near) == b""
        assert trio.current_time() - since < 1


async def test_a_thousand_mutated_frames_authenticate_nobody(world, bookie, capsys) -> None:
    """Each is its own connection, and an add follows it."""
    rng = random.Random(7)
    seeds = [AUTH_2, AUTH_3, ADD_2, ADD_3, v3.start_tls_request(1), *REQUESTS_3.values()]
    done = 0
    while done < 1000:
        frame = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(frame))
            match rng.randrange(3):
                case 0:
                    frame[at] ^= 1 << rng.randrange(8)
                case 1:
                    del frame[at + 1 :]
                case _:
                    frame[at:at] = rng.randbytes(rng.choice((1, 4, 40)))
        if KNOWN.payload() in frame and PASSWORD_FILE.encode() in frame:
            continue  # what was changed is not what counts
        done += 1
        near, far = pipe_pair()
        near.send_nowait((bytes(frame), ADD_2))
        with trio.fail_after(20):
            await serve_client(bookie, far, authentication=OfferedAuthentication(METHOD, 5))
    assert bookie.storage.master_key(1) is None
    assert bookie.stats.reads == 0
    assert "Traceback" not in capsys.readouterr().err


async def test_guessed_passwords_of_an_address_are_refused_unchecked_above_the_bound(world, bookie, log_events) -> None:
    offered = OfferedAuthentication(METHOD, 5, failures_max=20)
    for guess in range(100):
        for _ in range(2):
            near, far = pipe_pair()
            near.send_nowait((v3.auth_request(1, PASSWORD_FILE, b"admin:guess%d" % guess),))
            await serve_client(bookie, far, authentication=offered)
    assert offered.logins.unchecked == 200 - 20
    async with served(world, bookie, authentication=offered) as near:
        near.send_nowait((v3.auth_request(1, PASSWORD_FILE, KNOWN.payload()),))
        assert await frame_from(near)
        assert await frame_from(near) == b"", "right ones too, if they were not before"
    lines = Counter(each["reason"] for each in log_events if each["event"] == "authentication failed")
    assert sorted(lines.values()) == [10, 10], "of each reason"


# --- the client


async def test_a_client_authenticates_and_a_wrong_password_is_an_error(world, bookie, log_events) -> None:
    async with served(world, bookie) as near:
        await authenticate(near, KNOWN)
        near.send_nowait((ADD_2,))
        assert v2.decode_responses(await frame_from(near)) == [v2.AddAcks(Rc.OK, 1, 0, 0)]
    async with served(world, bookie) as near:
        with pytest.raises(OSError, match="refuses the user or password") as caught:
            await authenticate(near, WRONG)
        assert near.closed
    logged = str(log_events)
    assert "authentication failed" in logged
    for text in (logged, str(caught.value), repr(KNOWN), repr(METHOD), repr(OfferedAuthentication(METHOD))):
        assert PASSWORD not in text
        assert "opensesame" not in text
        assert "$apr1$" not in text


async def test_a_bookie_without_authentication_is_used(world, bookie) -> None:
    async with served(world, bookie, authentication=None) as near:
        await authenticate(near, KNOWN)
        near.send_nowait((ADD_2,))
        assert v2.decode_responses(await frame_from(near)) == [v2.AddAcks(Rc.OK, 1, 0, 0)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (v3.auth_response(0, Rc.OK, "another", b""), "another plug-in"),
        (v3.start_tls_response(0, Rc.OK), "refuses"),
        (b"\x7f\xff\xff\xff", "an answer to AUTH of 2147483647 bytes"),
        (b"\x00\x00\x00\x05abcde", "not an answer to AUTH|refuses"),
        (b"", "closed the connection instead of an answer"),
    ],
)
async def test_another_answer_is_an_error_of_the_connection(answer: bytes, reason: str) -> None:
    near, far = pipe_pair()
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await far.receive_into(memoryview(bytearray(1000)))
            if answer:
                far.send_nowait((answer,))
            else:
                far.close()

        nursery.start_soon(serve)
        with pytest.raises(OSError, match=reason):
            await authenticate(near, KNOWN)
    assert near.closed


def test_a_file_of_credentials_has_one_line() -> None:
    assert read_credentials(b"admin:123456\n").payload() == b"admin:123456"
    for bad in (
        b"",
        b"admin",
        b"admin:",
        b":x",
        b"admin:s3cr3t:x",
        b"a:s3cr3t\nb:y",
        b"\xff:x",
        b"a:" + b"s3cr3t" * 50,
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at
            read_credentials(bad)
        assert "s3cr3t" not in str(caught.value)


async def test_every_connection_of_real_sockets_authenticates_anew(bookie) -> None:
    world = real_world()
    listener = await world.network.listen("127.0.0.1", 0)
    where = "{}:{}".format(*listener.address)
    serve = partial(serve_client, bookie, authentication=OfferedAuthentication(METHOD, inf))
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_connections, listener, serve, stop=trio.Event(), grace_s=1, name="bookie"))
        for round_ in range(2):
            for credentials, rc in (
                (KNOWN, Rc.OK),
                (BookieCredentials("admin", "wrong"), None),
                (None, Rc.UNAUTHORIZED),
            ):
                link = TcpLink(world.network, nursery, where, credentials=credentials, connect_timeout_s=inf)
                heard, answers = trio.Event(), bytearray()
                errors: list[Exception] = []

                def receive(chunk, heard=heard, answers=answers) -> None:
                    answers += chunk
                    heard.set()

                def closed(error, heard=heard, errors=errors) -> None:
                    errors.append(error)
                    heard.set()

                link.set_receiver(receive)
                link.closed = closed
                link.send([ADD_2])
                await heard.wait()
                if rc is None:
                    assert "refuses the user or password" in str(errors[0])
                    assert not answers
                else:
                    assert v2.decode_responses(bytes(answers)) == [v2.AddAcks(rc, 1, 0, 0)], round_
                link.close()
        nursery.cancel_scope.cancel()


# --- with TLS


class Sides:
    def __init__(self, world: World, folder: Path, unit: str) -> None:
        authority = Authority(folder)
        server = TlsFiles(authority.server(require_certificate=True), server_side=True)
        self.offered = OfferedTls(ServerTls(server, world.offload, refresh_s=inf), 5, required=True)
        pair = authority.issue("client", unit=unit, file="client")
        self.client = ClientTls(TlsFiles(authority.client(pair), server_side=False), world.offload, refresh_s=inf)


async def test_auth_comes_after_start_tls_and_the_password_is_not_in_the_clear(world, bookie, tmp_path: Path) -> None:
    sides = Sides(world, tmp_path, "0:broker")
    async with served(world, bookie, tls=sides.offered) as near:
        stream = await start_tls(near, sides.client, "localhost")
        await authenticate(stream, KNOWN)
        stream.send_nowait((ADD_2,))
        assert v2.decode_responses(await frame_from(stream)) == [v2.AddAcks(Rc.OK, 1, 0, 0)]
        assert PASSWORD.encode() not in bytes(near.sent)
        stream.close()
    async with served(world, bookie, tls=sides.offered) as near:
        near.send_nowait((AUTH_3,))
        assert await frame_from(near) == b"", "TLS is required first"


@pytest.mark.parametrize(("unit", "rc"), [("0:broker", Rc.OK), ("0:stranger", Rc.UNAUTHORIZED)])
async def test_the_role_of_the_certificate_decides(world, bookie, tmp_path: Path, unit: str, rc: Rc) -> None:
    sides = Sides(world, tmp_path, unit)
    asked = OfferedAuthentication(CertificateRoles({"broker"}), 5)
    async with served(world, bookie, tls=sides.offered, authentication=asked) as near:
        stream = await start_tls(near, sides.client, "localhost")
        stream.send_nowait((ADD_2,))
        assert v2.decode_responses(await frame_from(stream)) == [v2.AddAcks(rc, 1, 0, 0)]
        stream.close()
    assert (bookie.storage.master_key(1) is None) == (rc != Rc.OK)


async def test_a_client_that_asks_for_tls_and_stops_is_disconnected_in_time(world, bookie, tmp_path: Path) -> None:
    sides = Sides(world, tmp_path, "0:broker")
    async with served(world, bookie, tls=replace(sides.offered, handshake_timeout_s=50)) as near:
        since = trio.current_time()
        assert await frame_from(near) == b""
        assert trio.current_time() - since == pytest.approx(5, abs=0.5)
