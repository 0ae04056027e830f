"""One HTTP request to a server whose answer the test determines."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio
import trio.testing

from broker.ownership import http_client
from broker.ownership.http_client import HttpAnswer, request
from quire.world.doors import World
from quire.world.real import real_world
from simulation import Universe, run
from tests.support.refusals import raises, refuses


def ask(answered: bytes) -> tuple[bytes, HttpAnswer]:
    """Return the request as received, and the client's result; the server closes after its answer."""
    asked = bytearray()
    came: list[HttpAnswer | OSError] = []

    async def main() -> None:
        network = real_world().network
        listener = await network.listen("127.0.0.1", 0)

        async def serve() -> None:
            stream = await listener.accept()
            chunk = bytearray(4096)
            size = await stream.receive_into(memoryview(chunk))
            asked.extend(chunk[:size])
            rest = answered
            while rest:
                rest = rest[stream.send_nowait((rest,)) :]
                await stream.wait_writable()
            stream.close()

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve)
                try:
                    came.append(await request(network, "PUT", f"http://127.0.0.1:{listener.address[1]}/a?b=c"))
                except OSError as error:
                    came.append(error)
        listener.close()

    trio.run(main)
    [answer] = came
    if isinstance(answer, OSError):
        raise answer
    return bytes(asked), answer


def test_the_whole_answer_is_read_whatever_its_status() -> None:
    head = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://b/c\r\n"
    asked, answer = ask(head + b"Content-Length: 5\r\n\r\n[1,2]")
    assert asked.startswith(b"PUT /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")
    assert answer == HttpAnswer(307, "http://b/c", b"[1,2]")
    assert answer.json() == [1, 2]


@pytest.mark.parametrize("body", [b"", b"{"])
def test_a_body_that_is_no_json_is_none(body: bytes) -> None:
    _, answer = ask(b"HTTP/1.1 500 Error\r\n\r\n" + body)
    assert (answer.status, answer.body, answer.json()) == (500, body, None)


@pytest.mark.parametrize(
    "answered", [b"", b"not HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1", b"HTTP/1.1 200 OK\r\n"]
)
def test_an_answer_that_makes_no_sense_or_ends_early_is_an_error(answered: bytes) -> None:
    refuses(OSError, lambda: ask(answered), r"127\.0\.0\.1")


def test_an_answer_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "ANSWER_BYTES_MAX", 9)
    refuses(OSError, lambda: ask(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(10)), "too long")


@pytest.mark.real_clock
@pytest.mark.parametrize("url", ["", "/a", "http://", "http://a:x", "http://a:99999", "http://[a"])
async def test_what_is_no_url_of_a_server_is_an_error(url: str) -> None:
    await raises(OSError, request(real_world().network, "GET", url), match=r"is not a URL|names no server")


@pytest.mark.real_clock
@pytest.mark.parametrize("url", ["https://a/b", "ftp://a/b"])
async def test_only_plain_http_is_spoken(url: str) -> None:
    await raises(OSError, request(real_world().network, "GET", url), match="only http is")


def test_a_broker_that_starts_has_not_imported_the_http_client() -> None:
    """The import costs more CPU than a whole start may."""
    code = "import sys, quire.servers.broker.process; sys.exit(bool({'httpx2', 'httpcore2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


async def serve_late(world: World, stop: trio.Event) -> None:
    listener = await world.network.listen("0.0.0.0", 8080)
    while True:
        stream = await listener.accept()
        await stream.receive_into(memoryview(bytearray(4096)))
        stream.send_nowait((b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",))
        await trio.sleep(1)
        stream.send_nowait((b"17",))


async def asked_and_cut(universe: Universe) -> tuple[HttpAnswer, float, str]:
    """Return an answer, the time it took, and what became of a request into a partition."""
    server, asking = universe.host("server"), universe.host("client")
    server.start(serve_late)
    await trio.testing.wait_all_tasks_blocked()
    network = asking.world().network
    answer = await request(network, "GET", "http://server:8080/")
    took_s = trio.current_time()
    universe.network.partition(["client"], ["server"])
    with trio.move_on_after(5) as waiting:
        await request(network, "GET", "http://server:8080/")
    return answer, took_s, f"cut={waiting.cancelled_caught}"


def test_requests_go_through_the_network_of_the_world() -> None:
    """In two runs of one seed, requests and answers have the same virtual times: the client is entirely inside the
    simulated world."""
    first, again = run(7, asked_and_cut), run(7, asked_and_cut)
    assert first == again
    assert (first[0], first[2]) == (HttpAnswer(200, "", b"17"), "cut=True")
    assert first[1] >= 1
