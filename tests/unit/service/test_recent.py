"""Covers quire/service/recent.py."""

from __future__ import annotations

import random

import trio

from quire.service.recent import Recent

TTL_S = 10.0


async def test_an_entry_stays_for_half_of_its_time_at_least_and_for_its_time_at_most() -> None:
    rng = random.Random(1)
    recent = Recent[int, float](10_000, TTL_S)
    put_at: dict[int, float] = {}
    early = late = 0
    for _ in range(3000):
        await trio.sleep(rng.choice((0.125, 0.75, 3.0, 12.0)))
        now, key = trio.current_time(), rng.randrange(5)
        found = recent.get(key)
        age = now - put_at.get(key, float("-inf"))
        if age < TTL_S / 2:
            assert found == put_at[key], "it was put less than half of the time ago"
            early += 1
        elif age >= TTL_S:
            assert found is None, "its time is over"
            late += 1
        if rng.random() < 0.5:
            recent.put(key, now)
            put_at[key] = now
    assert early > 100
    assert late > 100


async def test_it_holds_no_more_than_it_may() -> None:
    recent = Recent[int, int](100, TTL_S)
    for number in range(1000):
        recent.put(number, number)
        assert len(recent) <= 100
        assert recent.get(number) == number
    assert recent.get(960) == 960
    assert recent.get(800) is None


async def test_what_is_put_again_or_forgotten_is_not_found_as_it_was() -> None:
    recent = Recent[str, int](100, TTL_S)
    recent.put("a", 1)
    await trio.sleep(TTL_S / 2)
    recent.put("a", 2)
    assert recent.get("a") == 2
    recent.forget("a")
    recent.forget("b")
    assert recent.get("a") is None
