"""START_TLS of bookies and of their clients (bookie/sessions/start_tls.py, quire/ledger/bookies/start_tls.py)."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio

from bookie.sessions.start_tls import Begun, OfferedTls, begin
from quire.ledger.bookies.start_tls import start_tls
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.v2 import Rc
from quire.world.real_tls import TlsFiles
from quire.world.tls_sides import ClientTls, ServerTls
from tests.support.certificates import Authority
from tests.unit.world.pipes import Pipe, pipe_pair


class Inline:
    """Offload that runs its jobs at once."""

    async def run(self, job, *, name=""):
        return job()


class Sides:
    def __init__(self, folder: Path, **server: Any) -> None:
        self.authority = Authority(folder)
        self.files = TlsFiles(self.authority.server(**server), server_side=True)

    def offered(self, *, required: bool = False) -> OfferedTls:
        return OfferedTls(ServerTls(self.files, Inline(), refresh_s=inf), 5, required)

    def client(self, authority: Authority | None = None, **more: Any) -> ClientTls:
        made = (authority or self.authority).client(**more)
        return ClientTls(TlsFiles(made, server_side=False), Inline())


@pytest.fixture
async def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)


async def taken(pipe: Pipe, size: int = 1 << 16) -> bytes:
    buffer = memoryview(bytearray(size))
    return bytes(buffer[: await pipe.receive_into(buffer)])


@pytest.mark.parametrize("cut", [1, 3, 7, 1 << 20])
async def test_a_client_that_asks_gets_tls(sides: Sides, cut: int) -> None:
    near, far = pipe_pair(cuts=[cut])
    begun: list[Begun | None] = []
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            begun.append(await begin(far, sides.offered()))

        nursery.start_soon(serve)
        stream = await start_tls(near, sides.client(), "localhost")
    assert begun[0] is not None
    assert begun[0].received == b""
    request = v2.read_request(1, 2)
    stream.send_nowait((request,))
    assert request not in near.sent
    buffer = memoryview(bytearray(100))
    assert bytes(buffer[: await begun[0].stream.receive_into(buffer)]) == request


REQUESTS = {
    "of version 2": v2.read_request(1, 2),
    "of version 3": v3.read_lac_request(1, 7),
    "an add of version 2": v2.add_head(2000, bytes(20)) + bytes(2000),
    "of a length that is none": b"\x00\x00\x00\x01" + bytes(10),
    "of a negative length": b"\xff\xff\xff\xff" + bytes(10),
}


@pytest.mark.parametrize("first", REQUESTS)
async def test_a_client_that_does_not_ask_is_served_without_unless_tls_is_required(sides: Sides, first: str) -> None:
    near, far = pipe_pair()
    near.send_nowait((REQUESTS[first],))
    begun = await begin(far, sides.offered())
    assert begun is not None
    assert begun.stream is far
    near.close()
    rest = await taken(far)
    assert begun.received + rest == REQUESTS[first]
    near, far = pipe_pair()
    near.send_nowait((REQUESTS[first],))
    assert await begin(far, sides.offered(required=True)) is None
    assert far.sent == b"", "nothing was answered"


async def test_bytes_behind_the_request_are_not_taken_for_bytes_with_tls(sides: Sides) -> None:
    """They could be of a third party that only adds to the connection."""
    near, far = pipe_pair()
    near.send_nowait((v3.start_tls_request(1), v2.read_request(1, 2)))
    assert await begin(far, sides.offered()) is None
    assert far.sent == b""


async def test_a_handshake_that_does_not_come_ends_the_connection(sides: Sides) -> None:
    near, far = pipe_pair()
    near.send_nowait((v3.start_tls_request(1),))
    with trio.fail_after(6):
        assert await begin(far, sides.offered()) is None
    [answer] = v3.decode_responses(await taken(near))
    assert answer == v3.decode_responses(v3.start_tls_response(1, Rc.OK))[0]


async def test_a_client_that_goes_before_its_first_request_is_nothing_special(sides: Sides) -> None:
    near, far = pipe_pair()
    near.send_nowait((b"\x00\x00",))
    near.close()
    assert await begin(far, sides.offered(required=True)) is None


async def refused(sides: Sides, client: ClientTls) -> str:
    """Return the reason for which a client cannot connect."""
    near, far = pipe_pair()

    async def connect() -> None:
        stream = await start_tls(near, client, "localhost")
        await stream.receive_into(memoryview(bytearray(1)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(begin, far, sides.offered())
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the caller looks at the text
            await connect()
        near.close()
    return str(caught.value)


async def test_bookies_and_clients_that_are_not_trusted_are_refused(tmp_path: Path) -> None:
    sides = Sides(tmp_path, require_certificate=True)
    stranger = Authority(tmp_path, "stranger")
    known = sides.authority.issue("client", file="known")
    foreign = stranger.issue("client", file="foreign")
    assert "certificate verify failed" in await refused(sides, sides.client(stranger, check_host=False))
    assert "certificate required" in await refused(sides, sides.client())
    given: dict[str, Any] = {"certificate_file": str(foreign.certificate), "key_file": str(foreign.key)}
    assert "unknown ca" in await refused(sides, sides.client(**given))
    given = {"certificate_file": str(known.certificate), "key_file": str(known.key)}
    near, far = pipe_pair()
    begun: list[Begun | None] = []
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            begun.append(await begin(far, sides.offered()))

        nursery.start_soon(serve)
        await start_tls(near, sides.client(**given), "localhost")
    assert begun[0] is not None
    assert begun[0].stream.peer_certificate is not None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (v3.start_tls_response(0, Rc.BAD_REQUEST), "it has no TLS"),
        (b"\x7f\xff\xff\xff", "an answer to START_TLS of 2147483647 bytes"),
        (b"\x00\x00\x00\x05abcde", "not an answer to START_TLS|has no TLS"),
        (b"", "closed the connection instead of an answer"),
    ],
)
async def test_a_bookie_without_tls_is_an_error_of_the_connection(sides: Sides, answer: bytes, reason: str) -> None:
    near, far = pipe_pair()
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await taken(far)
            if answer:
                far.send_nowait((answer,))
            else:
                far.close()

        nursery.start_soon(serve)
        with pytest.raises(OSError, match=reason):
            await start_tls(near, sides.client(), "localhost")
    assert near.closed
