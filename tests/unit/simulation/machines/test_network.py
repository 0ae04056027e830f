from __future__ import annotations

import errno

import pytest
import trio

from quire.world.doors import Stream
from simulation import Universe, run
from tests.support.refusals import raises, refuses


class Echo:
    """Two hosts, a connection between them, and the data that each side received."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.network = universe.network
        self.server = universe.host("server")
        self.client = universe.host("client")
        self.accepted: list[Stream] = []
        self.server.start(self._serve)
        self._client_world = self.client.world()

    async def _serve(self, world, stop):
        listener = await world.network.listen("0.0.0.0", 6650)
        while True:
            self.accepted.append(await listener.accept())

    async def connect(self):
        await trio.testing.wait_all_tasks_blocked()
        near = await self._client_world.network.connect("server", 6650)
        await trio.sleep(0.1)
        return near, self.accepted[-1]


async def receive_all(stream) -> bytes:
    """Return everything up to the end; if the connection breaks, its error is appended."""
    data = bytearray()
    buffer = bytearray(1000)
    try:
        while count := await stream.receive_into(memoryview(buffer)):
            data += buffer[:count]
    except OSError as error:
        data += b"|" + errno.errorcode[error.errno or 0].encode()
    return bytes(data)


@pytest.mark.parametrize("seed", range(10))
async def test_bytes_take_time_and_arrive_in_order(universe, seed):
    near, far = await Echo(universe).connect()
    begin = trio.current_time()
    sent = 0
    for number in range(200):
        sent += near.send_nowait([b"%03d," % number])
    near.close()
    data = await receive_all(far)
    assert len(data) == sent
    numbers = [part for part in data.split(b",") if len(part) == 3]
    assert numbers == sorted(numbers)
    assert trio.current_time() - begin >= 50e-6


async def test_receives_are_split_at_places_that_the_sender_did_not_choose(universe):
    near, far = await Echo(universe).connect()
    sizes = []
    for _ in range(100):
        near.send_nowait([b"0123456789"])
        await trio.sleep(0.1)
        sizes.append(await far.receive_into(memoryview(bytearray(1000))))
    assert 10 in sizes
    assert len(set(sizes)) > 2


@pytest.mark.parametrize("seed", range(5))
async def test_a_cut_holds_bytes_back_and_healing_lets_them_through(universe, seed):
    echo = Echo(universe)
    near, far = await echo.connect()
    echo.network.partition(["client"], ["server"])
    near.send_nowait([b"x"])
    with trio.move_on_after(1000) as waited:
        await far.receive_into(memoryview(bytearray(9)))
    assert waited.cancelled_caught
    async with trio.open_nursery() as nursery:

        async def heal():
            await trio.sleep(5)
            echo.network.heal()

        nursery.start_soon(heal, name="heal")
        assert await far.receive_into(memoryview(bytearray(9))) == 1
    assert trio.current_time() > 1005


async def test_a_connection_into_a_partition_waits_and_gives_up(universe):
    echo = Echo(universe)
    await trio.testing.wait_all_tasks_blocked()
    echo.network.cut("server", "client")
    begin = trio.current_time()
    await raises(TimeoutError, echo._client_world.network.connect("server", 6650))
    assert trio.current_time() - begin > 100


async def test_a_reset_breaks_both_sides_after_what_had_arrived(universe):
    echo = Echo(universe)
    near, far = await echo.connect()
    far.send_nowait([b"x"])
    assert echo.network.reset("client", "server") == 1
    await trio.sleep(0.2)
    refuses(BrokenPipeError, lambda: near.send_nowait([b"y"]))
    assert (await receive_all(near), await receive_all(far)) == (b"x|ECONNRESET", b"|ECONNRESET")


@pytest.mark.parametrize("reset", [False, True])
async def test_a_writer_waiting_for_the_window_is_woken_by_the_end(universe, reset):
    echo = Echo(universe)
    near, far = await echo.connect()
    while near.send_nowait([bytes(1 << 20)]):
        pass
    async with trio.open_nursery() as nursery:

        async def writer():
            await raises(BrokenPipeError, near.wait_writable())

        nursery.start_soon(writer, name="writer")
        await trio.testing.wait_all_tasks_blocked()
        if reset:
            echo.network.reset("server", "client")
        else:
            far.close()


@pytest.mark.parametrize("seed", range(5))
async def test_a_connection_closed_with_something_unread_is_reset(universe, seed):
    near, far = await Echo(universe).connect()
    near.send_nowait([b"unread"])
    await trio.sleep(0.1)
    far.send_nowait([b"x"])
    await trio.sleep(0.1)
    far.close()
    assert await receive_all(near) == b"x|ECONNRESET"


async def received_from_a_crashing_host(universe: Universe) -> bytes:
    echo = Echo(universe)
    near, far = await echo.connect()
    for number in range(10):
        far.send_nowait([b"%d" % number])
    echo.server.cut_power()
    data = await receive_all(near)
    await raises(ConnectionRefusedError, echo._client_world.network.connect("server", 6650))
    await trio.sleep(1)
    refuses(BrokenPipeError, lambda: near.send_nowait([b"x"]))
    return data


def test_a_crash_ends_or_resets_its_connections_and_may_lose_what_was_under_way():
    seen = {run(seed, received_from_a_crashing_host) for seed in range(60)}
    assert {data.endswith(b"|ECONNRESET") for data in seen} == {True, False}
    assert all(b"0123456789".startswith(data.removesuffix(b"|ECONNRESET")) for data in seen)
    assert len({len(data.removesuffix(b"|ECONNRESET")) for data in seen}) > 5


async def test_a_host_listens_only_for_itself_and_once_per_port(universe):
    world = universe.host("a").world()
    listener = await world.network.listen("localhost", 0)
    assert listener.address[0] == "a"
    await raises(OSError, world.network.listen("b", 1), "Cannot assign")
    await raises(OSError, world.network.listen("a", listener.address[1]), "in use")
    other = await universe.host("b").world().network.listen("", listener.address[1])
    assert other.address == ("b", listener.address[1])
    await raises(ConnectionRefusedError, world.network.connect("nowhere", 1))
