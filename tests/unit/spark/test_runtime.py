"""The loop of a process, which is created at its first use, and clients that are shared and closed when unused."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

from quire.client.options import ClientOptions
from quire.spark import runtime as runtime_module
from quire.spark.options.parse import Options
from quire.spark.runtime import Runtime, client_options, close_runtime, runtime
from tests.support.refusals import refuses
from tests.support.waiting import wait_until

URL = "pulsar://127.0.0.1:1"
OPTIONS = ClientOptions()


class Opened:
    """Replacement of the client package that records the clients that are opened and closed."""

    def __init__(self) -> None:
        self.now = 0
        self.times = 0
        self.error: Exception | None = None

    @asynccontextmanager
    async def open_client(self, _world: object, _url: str, _options: object) -> AsyncGenerator[object, None]:
        if self.error is not None:
            raise self.error
        self.now += 1
        self.times += 1
        try:
            yield object()
        finally:
            self.now -= 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    made = Opened()
    monkeypatch.setattr(runtime_module, "open_client", made.open_client)
    return made


@pytest.fixture
def loop(opened: Opened) -> Iterator[Runtime]:
    made = Runtime(idle_s=0.05)
    yield made
    made.close()
    assert opened.now == 0, "a client outlived its loop"


def release(loop: Runtime, lease: runtime_module.ClientLease) -> None:
    async def give_back() -> None:
        lease.release()

    loop.call(give_back)


async def double(number: int) -> int:
    await trio.lowlevel.checkpoint()
    return number * 2


async def fail() -> None:
    raise ValueError("as it is")


def test_a_call_returns_what_the_loop_returns_and_raises_what_it_raises(loop: Runtime):
    assert loop.call(double, 21) == 42
    refuses(ValueError, lambda: loop.call(fail), "as it is")
    assert loop.call(double, 1) == 2, "the loop goes on"


def test_clients_of_one_cluster_are_shared(loop: Runtime, opened: Opened):
    first, second = loop.call(loop.lease, URL, OPTIONS), loop.call(loop.lease, URL, OPTIONS)
    other = loop.call(loop.lease, "pulsar://127.0.0.1:2", OPTIONS)
    assert first.client is second.client
    assert other.client is not first.client
    assert (opened.now, loop.clients) == (2, 2)
    release(loop, first)
    release(loop, first)  # a second close has no effect
    release(loop, other)
    wait_until(lambda: opened.now == 1)
    assert loop.call(loop.lease, URL, OPTIONS).client is second.client


def test_a_client_that_nobody_uses_is_closed_after_a_while_and_opened_again(loop: Runtime, opened: Opened):
    release(loop, loop.call(loop.lease, URL, OPTIONS))
    wait_until(lambda: opened.now == 0 and loop.clients == 0)
    loop.call(loop.lease, URL, OPTIONS)
    assert (opened.now, opened.times) == (1, 2)


def test_a_client_that_is_used_again_meanwhile_stays(opened: Opened):
    loop = Runtime(idle_s=60)
    try:
        for _ in range(3):
            release(loop, loop.call(loop.lease, URL, OPTIONS))
        assert (opened.now, opened.times) == (1, 1)
    finally:
        loop.close()
    assert opened.now == 0


def test_a_client_that_cannot_be_opened_is_an_error_and_nothing_stays(loop: Runtime, opened: Opened):
    opened.error = ValueError("no such url")
    refuses(ValueError, lambda: loop.call(loop.lease, URL, OPTIONS), "no such url")
    opened.error = None
    wait_until(lambda: loop.clients == 0)
    loop.call(loop.lease, URL, OPTIONS)
    assert opened.now == 1


def test_the_loop_of_a_process_is_made_at_the_first_use_and_again_after_its_end():
    close_runtime()
    before = threading.active_count()
    made = runtime()
    assert runtime() is made
    assert threading.active_count() == before + 1
    close_runtime()
    assert threading.active_count() == before
    assert runtime() is not made
    close_runtime()


def test_importing_the_package_starts_no_thread_and_a_process_that_used_it_ends():
    code = (
        "import threading, quire.spark.source, quire.spark.runtime as r, trio;"
        "assert threading.active_count() == 1, threading.enumerate();"
        "r.runtime().call(trio.sleep, 0); print('ends')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("ends\n", "", 0)


def test_a_forked_child_gets_a_loop_of_its_own():
    code = (
        "import os, trio; from quire.spark.runtime import runtime\n"
        "parent = runtime(); parent.call(trio.sleep, 0); child = os.fork()\n"
        "if child == 0:\n"
        "    mine = runtime(); mine.call(trio.sleep, 0); os._exit(0 if mine is not parent else 7)\n"
        "print(os.waitpid(child, 0)[1]); parent.call(trio.sleep, 0)"
    )
    # Newer Pythons warn of forks beside threads; Spark forks its workers before there are any.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


def test_deadlines_come_from_the_options():
    made = client_options(Options.parse({"topic": "t", "operationTimeoutMs": "2500"}, use="batch"))
    assert (made.operation_timeout_s, made.connect_timeout_s) == (2.5, 2.5)
