"""quire.servers.process"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio

from bookie.errors import JournalDamagedError
from quire.metadata.errors import UnsupportedLayoutError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.autorecovery.process import exit_code as autorecovery_exit_code
from quire.servers.bookie.process import exit_code as bookie_exit_code
from quire.servers.errors import DataDirectoryError
from quire.servers.process import SWITCH_INTERVAL_S, closing, run_server
from quire.service.errors import ConfigError
from quire.service.log import Event


@pytest.fixture(autouse=True)
def switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def signalled(number: signal.Signals, *, stops: bool) -> Callable[[trio.Event], Awaitable[None]]:
    """Return a server that sends the process a signal, and fails unless that asks it to stop, or does not."""

    async def serve(stop: trio.Event) -> None:
        os.kill(os.getpid(), number)
        with trio.move_on_after(5 if stops else 0.05):
            await stop.wait()
        assert stop.is_set() == stops

    return serve


def failing(error: Exception) -> Callable[[trio.Event], Awaitable[None]]:
    """Return a server that raises an error out of a nursery."""

    async def serve(stop: trio.Event) -> None:
        async with trio.open_nursery():
            raise error

    return serve


def test_sigterm_asks_the_server_to_stop() -> None:
    assert run_server("test", signalled(signal.SIGTERM, stops=True)) == 0


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_without_a_meaning_changes_nothing(number: signal.Signals) -> None:
    assert run_server("test", signalled(number, stops=False)) == 0


def test_a_hangup_is_a_stop_unless_the_process_was_started_to_ignore_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # (the tests themselves may run under nohup)
    try:
        assert run_server("test", signalled(signal.SIGHUP, stops=True)) == 0
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert run_server("test", signalled(signal.SIGHUP, stops=False)) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


async def has_all_descriptors(stop: trio.Event) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard


def test_a_server_takes_as_many_descriptors_as_it_may_have() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        assert run_server("test", has_all_descriptors) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def goes_on_after_a_signal(stop: trio.Event) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    await stop.wait()
    os.kill(os.getpid(), signal.SIGINT)
    with trio.fail_after(5):
        await trio.sleep_forever()


def test_a_second_signal_cuts_a_server_that_does_not_end() -> None:
    assert run_server("test", goes_on_after_a_signal) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DataDirectoryError("is in use"), 1),
        (OSError(98, "Address already in use"), 1),
        (ConfigError("no such key"), 2),
        (JournalDamagedError("1a.txn", 512, "a good group stands behind it"), 1),
        (UnsupportedLayoutError("layout version 9"), 1),
    ],
)
def test_what_an_operator_can_mend_is_one_line(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_server("test", failing(error)) == code
    assert capsys.readouterr().err == f"quire test: {error}\n"


@pytest.mark.real_clock
async def test_a_store_is_closed_though_the_process_is_cut() -> None:
    class Store(MemoryStore):
        ended = False

        async def aclose(self) -> None:
            await super().aclose()
            self.ended = True

    store = Store(MemoryTree())
    with trio.CancelScope() as process:
        async with closing(store):
            process.cancel()
            await trio.sleep_forever()
    assert store.ended


@pytest.mark.expect_error("internal error, the server ends")
def test_our_mistakes_have_an_exit_code_and_keep_their_traceback_in_the_log(
    log_events: list[Event], capsys: pytest.CaptureFixture[str]
) -> None:
    serve = failing(ZeroDivisionError("by nothing"))
    assert run_server("test", serve) == 1
    said = capsys.readouterr().err
    assert "quire test: internal error: ZeroDivisionError('by nothing'); see the traceback in the log" in said
    (event,) = [each for each in log_events if each["level"] == "error"]
    assert "in serve" in str(event)
    assert run_server("autorecovery", serve, autorecovery_exit_code) == 2
    assert run_server("bookie", serve, bookie_exit_code) == 2


async def switches_soon(stop: trio.Event) -> None:
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)


def test_waiting_threads_get_the_interpreter_soon() -> None:
    assert run_server("test", switches_soon) == 0
