"""quire.service.measuring.scrapes"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from quire.service.measuring import scrapes
from quire.service.measuring.scrapes import ScrapeRefusedError, Scrapes
from quire.service.metrics import LINES_TOGETHER

LINES = 10_000


class Made:
    """Lines that count how many of them were made."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Iterator[str]:
        for number in range(LINES):
            self.count += 1
            yield f"line {number}\n"


WHOLE = "".join(f"line {number}\n" for number in range(LINES)).encode()


async def read(scrapes: Scrapes, *, slow_s: float = 0.0) -> bytes:
    found: list[bytes] = []
    with scrapes.text() as text:
        while part := await text.part(len(found)):
            found.append(part)
            await trio.sleep(slow_s)
    return b"".join(found)


async def test_scrapes_at_the_same_time_share_one_text_and_each_gets_all_of_it() -> None:
    made = Made()
    shared, found = Scrapes(made), []

    async def one(slow_s: float) -> None:
        found.append(await read(shared, slow_s=slow_s))

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(one, 0.1 * number)
    assert found == [WHOLE] * 5
    assert (made.count, shared.made) == (LINES, 1)


async def test_a_later_scrape_gets_another_text_though_the_first_is_still_read_by_a_slow_one() -> None:
    shared = Scrapes(Made())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: read(shared, slow_s=10))
        await trio.sleep(1.5)
        assert await read(shared) == WHOLE
        assert shared.made == 2
        nursery.cancel_scope.cancel()


async def test_a_scraper_that_leaves_does_not_end_the_text_of_the_others() -> None:
    made = Made()
    shared, found = Scrapes(made), []

    async def all_of_it() -> None:
        found.append(await read(shared, slow_s=0.5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(all_of_it)
        with trio.move_on_after(0.1):
            await read(shared, slow_s=1)
    assert found == [WHOLE]
    assert (made.count, shared.made) == (LINES, 1)


async def test_only_so_many_texts_are_read_at_a_time() -> None:
    shared = Scrapes(Made())
    async with trio.open_nursery() as nursery:
        for _ in range(scrapes.TEXTS_MAX):
            nursery.start_soon(lambda: read(shared, slow_s=100))
            await trio.sleep(2)
        with pytest.raises(ScrapeRefusedError, match="retry later"):
            await read(shared)
        nursery.cancel_scope.cancel()


async def test_a_text_above_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "TEXT_BYTES_MAX", 70_000)
    with pytest.raises(ScrapeRefusedError, match="quireMaxTopicsInMetrics"):
        await read(Scrapes(Made()))


async def test_a_step_makes_a_bounded_number_of_lines() -> None:
    made = Made()
    with Scrapes(made).text() as text:
        before = 0
        while not text._done:
            text._step()
            assert made.count - before <= LINES_TOGETHER
            before = made.count
