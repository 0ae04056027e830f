from __future__ import annotations

import trio

from cursors.flusher import Flusher


class Dirty:
    def __init__(self) -> None:
        self.flushed_at: list[float] = []

    def flush(self) -> None:
        self.flushed_at.append(trio.current_time())


async def test_dirty_cursors_are_flushed_together_a_moment_after_the_first() -> None:
    flusher = Flusher(0.01)
    one, other = Dirty(), Dirty()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flusher.run)
        await trio.sleep(1)
        flusher.add(one)
        await trio.sleep(0.005)
        flusher.add(other)
        await trio.sleep(1)
        assert one.flushed_at == other.flushed_at
        assert abs(one.flushed_at[0] - 1.01) < 1e-6
        flusher.add(one)
        await trio.sleep(1)
        assert (len(one.flushed_at), len(other.flushed_at)) == (2, 1)
        nursery.cancel_scope.cancel()
