from __future__ import annotations

import ast
import gc
import re
from pathlib import Path

import pytest
import trio

import simulation
from simulation.machines.scheduler import deterministic, run_seeded

ROOT = Path(simulation.__file__).parents[1]
PACKAGES = ("broker", "bookie", "managed_ledger", "cursors", "autorecovery", "quire", "simulation")


async def trace() -> tuple[tuple[str, int], ...]:
    """Source: trio's tests/test_scheduler_determinism.py."""
    steps = []

    async def tracer(name: str) -> None:
        for number in range(50):
            steps.append((name, number))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(tracer, str(number), name=f"tracer-{number}")
    return tuple(steps)


async def woken() -> tuple[int, ...]:
    """Return the order in which waiters wake. Trio keeps those of an event in a set that is ordered by address."""
    order: list[int] = []
    event = trio.Event()

    async def waiter(number: int) -> None:
        await event.wait()
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(waiter, number, name=f"waiter-{number}")
        await trio.testing.wait_all_tasks_blocked()
        event.set()
    return tuple(order)


@pytest.mark.parametrize("story", [trace, woken])
def test_one_seed_gives_one_schedule_and_others_give_others(story):
    assert len({run_seeded(1, story) for _ in range(5)}) == 1
    assert len({run_seeded(seed, story) for seed in range(5)}) == 5


def test_without_the_seed_trio_chooses_as_before():
    run_seeded(1, trace)
    assert len({trio.run(trace) for _ in range(5)}) == 5
    assert gc.isenabled()


def test_the_scheduler_is_restored_even_after_an_error():
    def fail() -> None:
        with deterministic(1):
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()
    assert len({trio.run(trace) for _ in range(5)}) == 5


async def long_sleep() -> tuple[float, float]:
    begin = trio.current_time()
    await trio.sleep(80_000)
    return begin, trio.current_time()


def test_time_is_virtual_and_starts_at_0():
    assert run_seeded(1, long_sleep) == (0.0, 80_000)


def test_each_step_can_be_watched():
    steps: list[str] = []
    run_seeded(1, trace, on_step=steps.append)
    assert all(steps.count(f"tracer-{number}") == 51 for number in range(5))


def test_only_the_scheduler_touches_trio_s_private_names():
    touchers = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if not re.search(r"trio[\w.]*\._|from trio[\w.]* import (\(|.*\b_)", text):
                continue
            for node in ast.walk(ast.parse(text)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                    names = [ast.unparse(node)]
                if any(name.startswith("trio.") and "._" in name for name in names):
                    touchers.add(str(path.relative_to(ROOT)))
    assert touchers == {"simulation/machines/scheduler.py"}
