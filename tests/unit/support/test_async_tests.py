"""tests/support/async_tests.py: an async test is run to its end, and an error in it fails it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PLUGIN = 'pytest_plugins = ("tests.support.async_tests",)\n'

SCRIPT = """
import time

import pytest
import trio
from hypothesis import HealthCheck, given, settings, strategies as st

STEPS = []


@pytest.fixture
async def outer():
    STEPS.append("outer opened")
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()
    STEPS.append("outer closed")


@pytest.fixture
async def inner(outer, tmp_path):
    STEPS.append("inner opened")
    try:
        yield outer, tmp_path
    finally:
        STEPS.append("inner closed")


@pytest.fixture
async def unused():
    STEPS.append("unused opened")
    yield


@pytest.fixture
async def returns(outer):
    await trio.sleep(0)
    return outer


@pytest.fixture
def sync_above_async(outer):
    return outer


@pytest.fixture
async def torn():
    yield
    raise OSError("torn down")


@pytest.fixture
async def not_made():
    raise OSError("not made")
    yield


async def test_passes():
    await trio.sleep(0)


async def test_fails():
    await trio.sleep(0)
    assert 1 == 2


async def test_virtual_hours():
    began = time.monotonic()
    await trio.sleep(7200)
    assert time.monotonic() - began < 5


@pytest.mark.real_clock
async def test_real_time():
    began = time.monotonic()
    await trio.sleep(0.3)
    assert time.monotonic() - began > 0.25


async def test_waits_for_nothing():
    await trio.Event().wait()


@pytest.mark.real_clock(seconds=0.3)
async def test_real_wait():
    await trio.Event().wait()


@pytest.mark.real_clock(seconds=0.3)
async def test_busy_without_end():
    while True:
        await trio.lowlevel.checkpoint()


async def test_order(inner, outer, tmp_path):
    assert inner[0] is outer
    assert inner[1] == tmp_path
    assert STEPS == ["outer opened", "inner opened"]
    outer.start_soon(trio.sleep_forever)


def test_order_afterwards():
    assert STEPS == ["outer opened", "inner opened", "inner closed", "outer closed"]
    STEPS.clear()


@pytest.mark.usefixtures("unused")
async def test_use():
    assert STEPS == ["unused opened"]


async def test_task_fails(outer):
    async def fails():
        raise KeyError("of a task")
    outer.start_soon(fails)
    await trio.sleep(1)


async def test_nested_groups():
    async with trio.open_nursery(), trio.open_nursery():
        assert "deep" == "in groups"


async def test_two_errors():
    async def fails(error):
        raise error
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, KeyError("one"))
        nursery.start_soon(fails, ValueError("two"))


@pytest.mark.parametrize("number", [1, 2])
async def test_parameters(number, outer):
    assert number == 1


@settings(max_examples=20, database=None)
@given(number=st.integers(0, 100))
async def test_examples(number):
    await trio.sleep(1000)
    assert number < 50


@settings(suppress_health_check=list(HealthCheck))
@given(number=st.integers())
async def test_examples_with_a_fixture(number, outer):
    pass


def test_sync_test_takes_async_fixture(outer):
    pass


async def test_sync_fixture_takes_async_fixture(sync_above_async):
    pass


async def test_fixture_returns(returns, outer):
    assert returns is outer


async def test_torn(torn):
    pass


async def test_not_made(not_made):
    pass


def test_coroutine_returned():
    return test_passes()


async def test_generator():
    yield


@pytest.mark.usefixtures("nursery")
class TestMethods:
    async def test_method(self, nursery):
        nursery.start_soon(trio.sleep_forever)
"""


@dataclass
class Run:
    """Output of pytest on each test."""

    outcomes: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    """Output of pytest below the name of each test that failed."""

    def must_fail(self, name: str, *parts: str) -> str:
        assert self.outcomes[name] == "FAILED"
        for part in parts:
            assert part in self.said[name]
        return self.said[name]


def run(folder: Path, script: str, conftest: str) -> Run:
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(script)
    command = [sys.executable, "-m", "pytest", "-rA", "--tb=short", "-p", "no:cacheprovider", "-W", "error"]
    command += ["--rootdir", str(folder), "-c", "/dev/null", str(folder)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100).stdout
    made = Run()
    for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR) \S*::([\w\[\]]+)", shown, re.MULTILINE):
        assert name not in made.outcomes, f"{name} passed, and then failed after its end"
        made.outcomes[name] = outcome
    for name, text in re.findall(
        r"^_{3,} (?:ERROR at setup of )?([\w\[\].]+) _{3,}$\n(.*?)(?=^_{3,} |^={3,} |\Z)", shown, re.M | re.S
    ):
        made.said[name.rpartition(".")[2]] = text
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    began = time.monotonic()
    made = run(tmp_path_factory.mktemp("plugin"), SCRIPT, PLUGIN)
    assert time.monotonic() - began < 100
    return made


@pytest.mark.parametrize(
    "name",
    [
        "test_passes",
        "test_virtual_hours",
        "test_real_time",
        "test_order",
        "test_order_afterwards",
        "test_use",
        "test_fixture_returns",
        "test_method",
    ],
)
def test_an_async_test_is_run(made: Run, name: str) -> None:
    assert made.outcomes[name] == "PASSED"


def test_every_test_of_the_script_has_an_outcome(made: Run) -> None:
    names = re.findall(r"def (test_\w+)", SCRIPT)
    assert {each.partition("[")[0] for each in made.outcomes} == set(names)


def test_a_failed_assert_begins_in_the_test(made: Run) -> None:
    text = made.must_fail("test_fails", "assert 1 == 2")
    first_place = next(line for line in text.splitlines() if re.match(r"\S+:\d+: in ", line))
    assert first_place.endswith("in test_fails")


def test_groups_of_one_are_taken_off(made: Run) -> None:
    for name in ("test_nested_groups", "test_task_fails"):
        assert "ExceptionGroup" not in made.must_fail(name).splitlines()[-1]
    text = made.must_fail("test_nested_groups", "AssertionError: assert 'deep' == 'in groups'")
    assert re.match(r"\S+:\d+: in test_nested_groups", text)
    assert "KeyError: 'of a task'" in made.said["test_task_fails"]


def test_two_errors_stay_a_group(made: Run) -> None:
    made.must_fail("test_two_errors", "ExceptionGroup", "KeyError: 'one'", "ValueError: two")


def test_a_test_that_nothing_can_wake_fails_at_once(made: Run) -> None:
    made.must_fail("test_waits_for_nothing", "no task had anything left to wait for")


@pytest.mark.parametrize("name", ["test_real_wait", "test_busy_without_end"])
def test_a_test_without_end_fails_at_its_deadline(made: Run, name: str) -> None:
    made.must_fail(name, "the test did not end within 0.3 s")


def test_what_cannot_be_cancelled_is_interrupted(tmp_path: Path) -> None:
    script = """
import pytest, trio
from tests.support import async_tests
async_tests.SHIELDED_S = 0.2

@pytest.mark.real_clock(seconds=0.2)
async def test_shielded():
    with trio.CancelScope(shield=True):
        await trio.sleep(60)

@pytest.mark.real_clock(seconds=0.2)
async def test_no_checkpoint():
    while True:
        pass
"""
    made = run(tmp_path, script, PLUGIN)
    for name in ("test_shielded", "test_no_checkpoint"):
        made.must_fail(name, "the test did not end within 0.2 s")


def test_each_parameter_is_a_test(made: Run) -> None:
    assert made.outcomes["test_parameters[1]"] == "PASSED"
    assert made.outcomes["test_parameters[2]"] == "FAILED"


def test_each_example_has_a_loop_of_its_own(made: Run) -> None:
    made.must_fail("test_examples", "assert 50 < 50", "number=50")
    made.must_fail("test_examples_with_a_fixture", "each example needs its own outer")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("test_sync_test_takes_async_fixture", "must be `async def`"),
        ("test_sync_fixture_takes_async_fixture", "the fixture sync_above_async must be async"),
        ("test_torn", "OSError: torn down"),
        ("test_not_made", "OSError: not made"),
        ("test_coroutine_returned", "async def"),
        ("test_generator", "async def"),
    ],
)
def test_what_would_check_nothing_fails(made: Run, name: str, reason: str) -> None:
    assert made.outcomes[name] in ("FAILED", "ERROR")
    assert reason in made.said[name]


def test_without_the_plugin_an_async_test_is_no_pass(tmp_path: Path) -> None:
    assert run(tmp_path, "async def test_it(): assert 1 == 2\n", "").outcomes == {"test_it": "FAILED"}


SEEDED = """
import pytest
import trio
from hypothesis import given, settings, strategies as st

from simulation.machines.world import in_universe
from tests.support import async_tests

ORDERS = {}


async def order():
    met = []

    async def meet(number):
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            met.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(meet, number)
    return met


@pytest.mark.seeded(7)
async def test_seven():
    ORDERS["seven"] = await order()
    begun = trio.current_time()
    await trio.sleep(3600)
    assert 3600 <= trio.current_time() - begun < 3601


@pytest.mark.seeded(7)
async def test_seven_again():
    assert await order() == ORDERS["seven"]


@pytest.mark.seeded(8)
async def test_eight():
    assert await order() != ORDERS["seven"]


@pytest.mark.seeded
async def test_one():
    ORDERS["one"] = await order()


async def test_a_universe_is_seeded_with_one(universe):
    assert universe.seed == async_tests.SEED == 1
    ORDERS["universe"] = await order()


async def test_the_same_universe(universe):
    assert await order() == ORDERS["universe"]


@pytest.mark.seeded(9)
async def test_world(world, universe):
    assert universe.seed == 9
    assert universe.host("host").running
    world.disk.make_dirs("/made")
    assert world.disk.exists("/made")


async def test_error_beside_a_world(world):
    raise KeyError("in the test")


async def test_wakes_never(universe):
    await trio.sleep_forever()


async def test_not_seeded():
    async with in_universe(1):
        pass


@pytest.mark.seeded
@pytest.mark.real_clock
async def test_both():
    pass


@pytest.mark.parametrize("seed", [7, 8])
async def test_parameter(universe, seed):
    assert universe.seed == seed
    ORDERS.setdefault("as parameter", {})[seed] = await order()


@pytest.mark.parametrize("seed", [7, 8])
async def test_parameter_again(universe, seed):
    assert await order() == ORDERS["as parameter"][seed]
    assert await order() != ORDERS["as parameter"][15 - seed]


@pytest.mark.seeded(7)
@settings(max_examples=5)
@given(st.integers(0, 99))
async def test_each_example(number):
    assert await order() == ORDERS["seven"]
"""


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    plugins = 'pytest_plugins = ("tests.support.async_tests", "tests.support.universes")\n'
    return run(tmp_path_factory.mktemp("seeded"), SEEDED, plugins)


@pytest.mark.parametrize(
    "name",
    [
        "test_seven",
        "test_seven_again",
        "test_eight",
        "test_one",
        "test_a_universe_is_seeded_with_one",
        "test_the_same_universe",
        "test_world",
        "test_parameter[7]",
        "test_parameter[8]",
        "test_parameter_again[7]",
        "test_parameter_again[8]",
        "test_each_example",
    ],
)
def test_a_seeded_test_takes_its_order_from_the_seed(seeded: Run, name: str) -> None:
    assert seeded.outcomes[name] == "PASSED"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("test_error_beside_a_world", "KeyError: 'in the test'"),
        ("test_wakes_never", "TooSlowError"),
        ("test_not_seeded", "a universe lives in a loop that takes its choices from a seed"),
        ("test_both", "either `seeded`, or"),
    ],
)
def test_a_seeded_test_fails_for_its_own_reason(seeded: Run, name: str, reason: str) -> None:
    text = seeded.must_fail(name, reason)
    assert "ExceptionGroup" not in text.splitlines()[-1]
