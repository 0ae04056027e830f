"""Runs `async def test_*` and async fixtures under trio. Loaded from tests/conftest.py.

    async def test_a_lease_ends(store): ...            # a clock that jumps to the next deadline when all tasks wait

    @pytest.mark.real_clock                            # real sockets, threads, processes: the clock does not jump
    async def test_a_port_is_taken(tmp_path): ...

    @pytest.fixture
    async def store():                                 # of function scope; entered around the test, in the test's task
        async with open_store() as store:
            yield store

    @pytest.mark.seeded(7)                           # trio takes its choices from the seed: for simulated machines
    async def test_a_host_crashes(universe): ...     # `universe` and `world` (tests/support/universes.py) imply seed 1,
                                                     # or the one of a parameter called `seed`

Under the jumping clock a test fails at once if all its tasks wait and no deadline is ahead. Any test fails after
`WALL_S` of real time, or the `seconds` of the marker. An exception comes out of the groups that hold nothing else, so
that its traceback begins in the test.
"""

from __future__ import annotations

import inspect
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import Any

import pytest
import trio

from simulation.machines.scheduler import deterministic, virtual_clock

VIRTUAL_S = 864_000.0
"""Seconds of a clock that jumps after which a test has failed. Ten days: longer than any test's story."""
WALL_S = 120.0
"""Seconds of real time after which a test has failed."""
SHIELDED_S = 10.0
"""Seconds that a test is then given to end; a task that is shielded from that is interrupted."""
SEED = 1
"""Seed of a test that names none."""


class TestTooSlowError(Exception):
    """A test has not ended by its deadline. Look at the tasks it waits for."""

    __test__ = False


@dataclass(frozen=True, eq=False)
class AsyncFixture:
    """An async fixture that pytest has set up, and that is entered when the test runs."""

    name: str
    make: Callable[..., AbstractAsyncContextManager[Any]]
    arguments: dict[str, Any]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "real_clock(seconds): an async test whose clock does not jump; it fails after so many seconds"
    )
    config.addinivalue_line(
        "markers", f"seeded(seed={SEED}): an async test whose loop takes its choices from the seed; the clock jumps"
    )
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that runs a job in the background has it ignored, and trio then leaves it so.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> object | None:
    """Set an async fixture up; None leaves the others to pytest."""
    function: Any = fixturedef.func
    if not (inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)):
        if not isinstance(request.node, pytest.Function):
            return None  # of a wider scope: pytest refuses those that ask for one of function scope
        for name in fixturedef.argnames:
            if isinstance(request.getfixturevalue(name), AsyncFixture):
                pytest.fail(f"the fixture {fixturedef.argname} must be async: it takes the async fixture {name}")
        return None
    if fixturedef.scope != "function":
        pytest.fail(
            f"the async fixture {fixturedef.argname} must be of function scope: each test has a loop of its own"
        )
    if not inspect.isasyncgenfunction(function):
        function = _yielding(function)
    arguments = {name: request.getfixturevalue(name) for name in fixturedef.argnames}
    made = AsyncFixture(str(fixturedef.argname), asynccontextmanager(function), arguments)
    # pytest types the request as the private class it makes itself, and offers no other way to give a fixture a value.
    fixturedef.cached_result = (made, fixturedef.cache_key(request), None)  # type: ignore[arg-type]
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test; None leaves the others to pytest."""
    function = pyfuncitem.obj
    fixtures = [each for each in pyfuncitem.funcargs.values() if isinstance(each, AsyncFixture)]
    examples = getattr(function, "hypothesis", None)
    if examples is not None and inspect.iscoroutinefunction(examples.inner_test):
        if fixtures:
            pytest.fail(f"each example needs its own {fixtures[0].name}: enter it in the test instead of the fixture")
        examples.inner_test = _in_loop(pyfuncitem, examples.inner_test)
        return None
    if not inspect.iscoroutinefunction(function):
        if fixtures:
            pytest.fail(f"a test that takes the async fixture {fixtures[0].name} must be `async def`")
        return None
    taken = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def whole() -> None:
        async with AsyncExitStack() as stack:
            entered: dict[AsyncFixture, Any] = {}
            for fixture in fixtures:  # those that the test does not take itself, too
                await _enter(fixture, entered, stack)
            await function(**{name: _value(each, entered) for name, each in taken.items()})

    _run(pyfuncitem, whole)
    return True


def _yielding(make: Callable[..., Awaitable[Any]]) -> Callable[..., AsyncIterator[Any]]:
    async def made(**arguments: Any) -> AsyncIterator[Any]:
        yield await make(**arguments)

    return made


async def _enter(fixture: AsyncFixture, entered: dict[AsyncFixture, Any], stack: AsyncExitStack) -> None:
    """Enter the fixture after those that it takes, each once."""
    if fixture not in entered:
        for each in fixture.arguments.values():
            if isinstance(each, AsyncFixture):
                await _enter(each, entered, stack)
        arguments = {name: _value(each, entered) for name, each in fixture.arguments.items()}
        entered[fixture] = await stack.enter_async_context(fixture.make(**arguments))


def _value(given: object, entered: dict[AsyncFixture, Any]) -> object:
    return entered[given] if isinstance(given, AsyncFixture) else given


def _in_loop(item: pytest.Function, test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def example(*args: Any, **kwargs: Any) -> None:
        async def whole() -> None:
            await test(*args, **kwargs)

        _run(item, whole)

    return example


def _run(item: pytest.Function, whole: Callable[[], Awaitable[None]]) -> None:
    """Run a test in a loop of its own, with the clock that its marker names; raise the one error of it."""
    marker = item.get_closest_marker("real_clock")
    seconds = WALL_S if marker is None else marker.kwargs.get("seconds", WALL_S)
    clock = virtual_clock() if marker is None else None
    seed = seed_of(item)
    if seed is not None and marker is not None:
        pytest.fail("a test is either `seeded`, or takes the time and the order of real things: `real_clock`")

    async def main() -> None:
        scope = trio.CancelScope()
        if clock is not None:
            scope.deadline = trio.current_time() + VIRTUAL_S
        with scope, _ending(seconds, scope, ended):
            await whole()
        if scope.cancelled_caught and not ended:
            raise TestTooSlowError("the test waited for ever: no task had anything left to wait for")

    ended: list[bool] = []
    failure: BaseException | None = None
    try:
        with nullcontext() if seed is None else deterministic(seed):
            trio.run(main, clock=clock)
    except BaseException as error:
        failure = single(error)
    if ended:
        raise TestTooSlowError(f"the test did not end within {seconds:g} s") from failure
    if failure is not None:
        raise failure


def seed_of(item: pytest.Function) -> int | None:
    """Return the seed of a test's loop, which its parameter `seed` may give; None if trio makes its own choices."""
    marker = item.get_closest_marker("seeded")
    if marker is None and "universe" not in item.fixturenames:
        return None
    if marker is not None and marker.args:
        seed: object = marker.args[0]
    else:
        seed = item.callspec.params.get("seed", SEED) if hasattr(item, "callspec") else SEED
    assert isinstance(seed, int), f"{seed!r} is no seed"
    return seed


def single(error: BaseException) -> BaseException:
    """Return the error inside groups of one; groups that hold more keep their shape."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@contextmanager
def _ending(seconds: float, scope: trio.CancelScope, ended: list[bool]) -> Iterator[None]:
    """Cancel `scope` after `seconds` of real time, whatever the clock, and note it in `ended`. What goes on after that
    is interrupted where it is: a task may be shielded, and a loop without a checkpoint cannot be cancelled."""
    token = trio.lowlevel.current_trio_token()

    def at_end(number: int, frame: FrameType | None) -> None:
        ended.append(True)
        if len(ended) == 1:
            token.run_sync_soon(scope.cancel)
        else:
            # As Control-C: trio delivers it where it breaks nothing, shielded or not.
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, at_end)
    signal.setitimer(signal.ITIMER_REAL, seconds, SHIELDED_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
async def nursery() -> AsyncIterator[trio.Nursery]:
    """Yield a nursery for tasks beside the test; it is cancelled at the test's end."""
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()
