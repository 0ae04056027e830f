"""TLS streams (quire/world/tls.py, tls_sides.py) on simulated networks, whose windows are small and whose receives
return part of what arrived, and on pipes that cut the records anywhere."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as some

from quire.world.doors import Buffer, Stream, World
from quire.world.outbox import Outbox
from quire.world.real_tls import TlsFiles
from quire.world.tls import ENCRYPTED_MAX, Scratch, TlsError, TlsStream
from quire.world.tls_options import TlsOptions
from quire.world.tls_sides import ClientTls, ServerTls
from tests.support.certificates import Authority, options
from tests.unit.world.pipes import Pipe, pipe_pair

SECRET = b"a text that nobody on the way may read"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def context(made: TlsOptions, *, server_side: bool):
    return TlsFiles(made, server_side=server_side).context


async def handshaken(
    authority: Authority, near: Stream, far: Stream, server: TlsOptions | None = None, client: TlsOptions | None = None
) -> tuple[TlsStream, TlsStream]:
    """Return client and server side over two ends of a connection. Errors of the client come first."""
    scratch = Scratch()
    one = TlsStream(
        near, context(client or authority.client(), server_side=False), scratch, server_side=False, host="localhost"
    )
    other = TlsStream(far, context(server or authority.server(), server_side=True), scratch, server_side=True)
    failures: list[Exception] = []

    async def shake(stream: TlsStream) -> None:
        try:
            await stream.handshake()
        except OSError as error:
            failures.append(error)
            stream.close()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shake, one)
            nursery.start_soon(shake, other)
    if failures:
        raise failures[0]
    return one, other


async def take(stream: Stream, size: int, chunk: int = 1 << 16) -> bytes:
    """Receive `size` bytes, or fewer at the end."""
    received = bytearray()
    buffer = memoryview(bytearray(chunk))
    while len(received) < size and (count := await stream.receive_into(buffer)):
        received += buffer[:count]
    return bytes(received)


# --- what is sent arrives


@given(
    cuts=some.lists(some.integers(1, 3000), min_size=1, max_size=20),
    window=some.integers(1, 40_000),
    sizes=some.lists(some.integers(0, 60_000), min_size=1, max_size=6),
    chunk=some.integers(1, 70_000),
)
async def test_records_may_be_cut_at_any_byte(authority, cuts, window, sizes, chunk):
    near, far = pipe_pair(window=window, cuts=cuts)
    one, other = await handshaken(authority, near, far)
    parts = [bytes([number]) * size for number, size in enumerate(sizes)]
    whole = b"".join(parts)
    outbox = Outbox(one)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        outbox.write(parts)
        outbox.flush()
        assert await take(other, len(whole), chunk) == whole
        assert outbox.pending_bytes == 0
        nursery.cancel_scope.cancel()


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(6))
async def test_a_slow_peer_gets_everything_in_order_and_the_sender_waits(universe, seed, authority):
    """The window of the simulated connection is 4 to 256 KiB, and what is sent is a megabyte."""
    near, far = await sim_pair(universe)
    one, other = await handshaken(authority, near, far)
    parts = [bytes([number]) * 4096 for number in range(250)]
    whole = b"".join(parts)
    outbox = Outbox(one)
    pending: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        outbox.write(parts)
        outbox.flush()
        buffer = memoryview(bytearray(3000))
        received = bytearray()
        while len(received) < len(whole):
            pending.append(outbox.pending_bytes)
            received += buffer[: await other.receive_into(buffer)]
        nursery.cancel_scope.cancel()
    assert received == whole
    assert pending[0] > len(whole) // 2, "the outbox still has what the window did not accept"
    assert pending == sorted(pending, reverse=True)


async def sim_pair(universe) -> tuple[Stream, Stream]:
    server, client = universe.host("server"), universe.host("localhost")
    accepted: list[Stream] = []

    async def serve(world: World, stop) -> None:
        accepted.append(await (await world.network.listen("", 6651)).accept())
        await stop.wait()

    server.start(serve)
    await trio.testing.wait_all_tasks_blocked()
    near = await client.world().network.connect("server", 6651)
    await trio.sleep(0.1)
    return near, accepted[0]


async def test_nothing_of_what_is_sent_is_readable_on_the_way(authority):
    near, far = pipe_pair()
    one, other = await handshaken(authority, near, far)
    begun = len(near.sent)
    assert one.send_nowait((SECRET, SECRET)) == 2 * len(SECRET)
    assert SECRET not in near.sent
    assert await take(other, 2 * len(SECRET)) == 2 * SECRET
    assert len(near.sent) - begun < 2 * len(SECRET) + 100, "both parts are in one record"


async def test_a_run_of_parts_leaves_in_one_write_and_arrives_in_one_receive(authority):
    near, far = pipe_pair()
    one, other = await handshaken(authority, near, far)
    before = near.sends
    assert one.send_nowait([bytes(1000)] * 200) == 200_000
    assert near.sends == before + 1
    receives = far.receives
    assert await other.receive_into(memoryview(bytearray(300_000))) == 200_000
    assert far.receives == receives + 1


async def test_what_the_window_refuses_is_bounded_and_counts_as_not_sent(authority):
    near, far = pipe_pair()
    one, other = await handshaken(authority, near, far)
    near.window = 1000
    data = bytes(range(256)) * (8 * ENCRYPTED_MAX // 256)
    assert one.send_nowait((data,)) == 0
    assert one.send_nowait((data,)) == 0, "no more is encrypted before the first run has left"
    near.window = 1 << 30
    assert one.send_nowait((data,)) == len(data)
    assert await take(other, len(data)) == data


async def test_a_small_buffer_gets_the_rest_of_a_record_without_a_receive(authority):
    near, far = pipe_pair()
    one, other = await handshaken(authority, near, far)
    one.send_nowait((SECRET,))
    receives = far.receives
    buffer = memoryview(bytearray(5))
    got = b"".join([bytes(buffer[: await other.receive_into(buffer)]) for _ in range(4)])
    assert got == SECRET[:20]
    assert far.receives == receives + 1


async def test_the_loop_runs_others_between_many_receives_of_what_has_arrived(authority):
    near, far = pipe_pair()
    one, other = await handshaken(authority, near, far)
    one.send_nowait((bytes(ENCRYPTED_MAX),))
    steps = 0

    async def count() -> None:
        nonlocal steps
        while True:
            steps += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await take(other, ENCRYPTED_MAX, 1024)
        nursery.cancel_scope.cancel()
    assert steps >= 3


# --- the end


async def test_a_close_is_announced_and_ends_the_receives_of_the_peer(authority):
    near, far = pipe_pair()
    one, other = await handshaken(authority, near, far)
    one.send_nowait((b"last",))
    one.close()
    one.close()
    assert await take(other, 100) == b"last"
    assert await other.receive_into(memoryview(bytearray(10))) == 0
    assert await one.receive_into(memoryview(bytearray(10))) == 0
    with pytest.raises(OSError, match="closed on this side"):
        one.send_nowait((b"more",))


async def test_an_end_without_notice_is_an_error_after_what_arrived(authority):
    near, far = pipe_pair()
    one, other = await handshaken(authority, near, far)
    one.send_nowait((b"all of it?",))
    near.close()
    assert await other.receive_into(memoryview(bytearray(100))) == 10
    with pytest.raises(TlsError, match="without the notice"):
        await other.receive_into(memoryview(bytearray(100)))


async def test_a_close_with_unsent_bytes_does_not_claim_that_all_was_sent(authority):
    near, far = pipe_pair()
    one, other = await handshaken(authority, near, far)
    near.window = 500
    one.send_nowait((bytes(10_000),))
    near.window = 1 << 20
    one.close()
    with pytest.raises(TlsError, match="without the notice"):
        await take(other, 20_000)


async def test_a_changed_byte_breaks_the_connection(authority):
    near, far = pipe_pair()
    one, other = await handshaken(authority, near, far)
    one.send_nowait((b"good",))
    near.flip_next = True
    one.send_nowait((b"changed",))
    buffer = memoryview(bytearray(100))
    assert await other.receive_into(buffer) == 4
    with pytest.raises(TlsError, match="bad record mac"):
        await other.receive_into(buffer)
    with pytest.raises(TlsError, match="bad record mac"):
        await other.receive_into(buffer)


async def test_a_record_above_the_size_that_the_protocol_allows_is_refused(authority):
    near, far = pipe_pair()
    _, other = await handshaken(authority, near, far)
    near.send_nowait((b"\x17\x03\x03\xff\xff" + bytes(70_000),))
    with pytest.raises(TlsError):
        await other.receive_into(memoryview(bytearray(100)))


@pytest.mark.parametrize(
    "hello",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x10\x00\x00\x00\x0c" + bytes(40), bytes(100), b"\x16\x03\x01\xff"],
)
async def test_a_peer_that_does_not_speak_tls_is_refused(authority, hello):
    near, far = pipe_pair()
    near.send_nowait((hello,))
    near.close()
    stream = TlsStream(far, context(authority.server(), server_side=True), Scratch(), server_side=True)
    with pytest.raises(TlsError, match="TLS handshake"):
        await stream.handshake()
    assert stream.send_nowait((b"too early",)) == 0


async def test_a_handshake_ends_at_the_deadline_of_its_caller(authority):
    _, far = pipe_pair()
    stream = TlsStream(far, context(authority.server(), server_side=True), Scratch(), server_side=True)
    with pytest.raises(trio.TooSlowError):
        with trio.fail_after(5):
            await stream.handshake()


async def test_bytes_received_before_belong_to_the_handshake(authority):
    """A bookie may have received the first bytes of it with the request to start TLS."""
    near, far = pipe_pair()
    scratch = Scratch()
    client = TlsStream(
        near, context(authority.client(), server_side=False), scratch, server_side=False, host="localhost"
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.handshake)
        await trio.testing.wait_all_tasks_blocked()
        buffer = memoryview(bytearray(7))
        received = bytes(buffer[: await far.receive_into(buffer)])
        made = context(authority.server(), server_side=True)
        server = TlsStream(far, made, scratch, server_side=True, received=received)
        await server.handshake()
    client.send_nowait((SECRET,))
    assert await take(server, len(SECRET)) == SECRET


# --- who the peer is


async def test_the_certificate_of_a_client_is_known_if_it_is_verified(authority):
    pair = authority.issue("a-role", common_name="a-role", file="client")
    server = authority.server()
    _, far = await handshaken(authority, *pipe_pair(), server, authority.client(pair))
    assert far.peer_certificate is not None
    assert b"a-role" in far.peer_certificate
    _, far = await handshaken(authority, *pipe_pair(), server, authority.client())
    assert far.peer_certificate is None
    trusting = authority.server(verify=False)
    _, far = await handshaken(authority, *pipe_pair(), trusting, authority.client(pair))
    assert far.peer_certificate is None, "a certificate that was not verified identifies nobody"


async def test_the_certificate_of_a_server_is_known(authority):
    near, _ = await handshaken(authority, *pipe_pair())
    assert near.peer_certificate is not None
    near, _ = await handshaken(authority, *pipe_pair(), None, authority.client(verify=False))
    assert near.peer_certificate is None


def stranger(folder: Path) -> Authority:
    return Authority(folder, "stranger")


REFUSED: dict[str, tuple[Callable[[Authority, Path], tuple[TlsOptions, TlsOptions]], str]] = {
    "a server of another authority": (
        lambda ca, folder: (stranger(folder).server(), ca.client()),
        "unable to get local issuer|self-signed",
    ),
    "an expired server": (
        lambda ca, folder: (ca.server(ca.issue("localhost", file="old", expired=True)), ca.client()),
        "certificate has expired",
    ),
    "a server of another name": (
        lambda ca, folder: (ca.server(ca.issue("elsewhere", file="elsewhere")), ca.client()),
        "Hostname mismatch.*localhost",
    ),
    "a client without a certificate": (
        lambda ca, folder: (ca.server(require_certificate=True), ca.client()),
        "peer did not return a certificate|certificate required",
    ),
    "a client of another authority": (
        lambda ca, folder: (ca.server(), ca.client(stranger(folder).issue("a", file="stranger"))),
        "certificate verify failed|unknown ca",
    ),
    "an expired client": (
        lambda ca, folder: (ca.server(), ca.client(ca.issue("a", file="old", expired=True))),
        "certificate has expired|certificate expired",
    ),
    "a version that is too old": (
        lambda ca, folder: (ca.server(versions=("TLSv1.3",)), ca.client(versions=("TLSv1.2",))),
        "version|unsupported protocol",
    ),
    "no common cipher suite": (
        lambda ca, folder: (
            ca.server(versions=("TLSv1.2",), ciphers=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)),
            ca.client(ciphers=("ECDHE-ECDSA-CHACHA20-POLY1305",)),
        ),
        "handshake failure|no shared cipher",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refused_is(authority, tmp_path, case):
    make, reason = REFUSED[case]
    server, client = make(authority, tmp_path)

    async def connect_and_receive() -> None:
        near, _ = await handshaken(authority, *pipe_pair(), server, client)
        # With TLS 1.3 a client learns only with its first receive that the server refused its certificate.
        await near.receive_into(memoryview(bytearray(1)))

    with pytest.raises(TlsError, match=reason):
        await connect_and_receive()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_both_versions_are_spoken(authority, version):
    near, far = await handshaken(authority, *pipe_pair(), authority.server(versions=(version,)))
    assert near.version == far.version == version
    near.send_nowait((SECRET,))
    assert await take(far, len(SECRET)) == SECRET


# --- files that change


class Inline:
    """Offload that runs its jobs at once."""

    async def run(self, job, *, name=""):
        return job()


async def test_changed_files_hold_for_new_connections_and_live_ones_go_on(tmp_path):
    ca = Authority(tmp_path)
    first = ca.issue("localhost", common_name="first")
    reports: list[str] = []
    files = TlsFiles(options(first, trust=None), server_side=True)
    server = ServerTls(
        files, Inline(), refresh_s=300, on_reload=lambda: reports.append("taken"), on_broken=reports.append
    )
    client = ClientTls(TlsFiles(ca.client(), server_side=False), Inline())

    async def connected() -> tuple[TlsStream, TlsStream]:
        near, far = pipe_pair()
        made: list[TlsStream] = []
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                made.append(await server.secure(far))

            nursery.start_soon(serve)
            stream = await client.secure(near, "localhost")
        return stream, made[0]

    live, far = await connected()
    assert b"first" in (live.peer_certificate or b"")
    ca.issue("localhost", common_name="second")  # the same files
    assert b"first" in ((await connected())[0].peer_certificate or b""), "the files are looked at every 300 s"
    await trio.sleep(301)
    assert b"second" in ((await connected())[0].peer_certificate or b"")
    first.key.write_text("broken")
    await trio.sleep(301)
    assert b"second" in ((await connected())[0].peer_certificate or b""), "files that cannot be used change nothing"
    await trio.sleep(301)
    await connected()
    assert reports[0] == "taken"
    assert len(reports) == 2, "a problem is reported once"
    assert str(first.key) in reports[1]
    live.send_nowait((SECRET,))
    assert await take(far, len(SECRET)) == SECRET
    ca.issue("localhost", common_name="third")
    await trio.sleep(301)
    assert b"third" in ((await connected())[0].peer_certificate or b"")
    assert reports[2:] == ["taken"]


async def test_a_client_that_fails_leaves_no_connection_open(authority, tmp_path):
    near, far = pipe_pair()
    client = ClientTls(TlsFiles(stranger(tmp_path).client(), server_side=False), Inline())
    server = TlsStream(far, context(authority.server(), server_side=True), Scratch(), server_side=True)
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            with pytest.raises(TlsError, match="unknown ca"):
                await server.handshake()

        nursery.start_soon(serve)
        with pytest.raises(TlsError, match="certificate verify failed"):
            await client.secure(near, "localhost")
    assert near.closed


def test_an_error_of_tls_is_an_os_error_with_a_number():
    assert TlsError(errno.EPROTO, "why").errno == errno.EPROTO
    assert isinstance(TlsError(errno.EPROTO, "why"), OSError)


def _types(pipe: Pipe, buffer: Buffer) -> Stream:
    """Let mypy check that a pipe is a Stream."""
    return pipe
